// How methods are marked: each by its own style or thickness of underline, and its colour, and how white space is drawn.

import { make } from "./dom.js";

const LINES = 5, HUES = 6, DRAWN_MAX = 80;
const numbers = new Map();
let legend = null;

/** Use an element as the legend, to which every method is added when it is first seen. */
export function setLegend(element) {
  legend = element;
}

/** Classes of a text that a method drafted. */
export function markOf(source) {
  if (!numbers.has(source)) {
    numbers.set(source, numbers.size);
    if (legend) legend.append(" ", make("bdi", `drafted ${markOf(source)}`, source));
  }
  const number = numbers.get(source);
  return `line-${number % LINES} hue-${number % HUES}${Math.floor(number / LINES) % 2 ? " thick" : ""}`;
}

const SIGNS = { "\n": "↵", "\t": "⇥", " ": "␣" };

/** A rejected draft as one short line: it is no part of the answer and must not break its lines. */
export function drawRejected(text) {
  const blank = !text.trim();
  const signs = text.slice(0, DRAWN_MAX).replace(/\r\n?/g, "\n").replace(/[\n\t]| {2,}/g, run => SIGNS[run[0]].repeat(run.length));
  const drawn = (blank ? signs.replace(/ /g, "␣") : signs).replace(/([↵⇥␣])\1{2,}/g, (run, sign) => `${sign}×${run.length}`);
  return text.length > DRAWN_MAX ? `${drawn}…` : drawn;
}

/** Line breaks of a drafted text, as one sign. */
export function drawBreaks(count) {
  return count > 2 ? `↵×${count}` : "↵".repeat(count);
}
