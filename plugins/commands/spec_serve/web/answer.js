// The text of an answer in the page: simple Markdown and marked drafts, as text nodes in elements made here.

import { make, makeCopyButton } from "./dom.js";
import { BOLD, CODE, ITALIC, isClosing, readBlock, readInline } from "./markdown.js";
import { drawBreaks, drawRejected, markOf } from "./marks.js";

const NODES_MAX = 60000, PLAIN_MAX = 4000;
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const BREAKS_LOOK = 100;

/** Shows a trace in an element. Blocks that are complete stay as they are; the rest is drawn anew with every call. */
export class AnswerView {
  constructor(parent, trace, markdown = true) {
    Object.assign(this, { parent, trace, markdown, at: 0, fence: null, tail: [], nodes: 0, kept: 0, drawn: 0, length: 0 });
    this.differs = Infinity; // the character from which the text differs from another one
  }

  /** Show the first characters of the text. isLast: no more will come. */
  render(length = this.trace.text.length, isLast = false) {
    this.tail.forEach(node => node.remove());
    this.tail = [];
    this.nodes = this.kept;
    this.length = length;
    let at = this.at, fence = this.fence, fixed = true;
    this.drawn = this.trace.rejectedFrom(at);
    while (at < length) {
      const block = this.readBlock(at, length, fence);
      if (fixed) fixed = isLast || block.cut || this.trace.text.slice(block.end, length).includes("\n");
      const node = this.makeBlock(block);
      [at, fence] = [block.end, block.fence ?? null];
      if (node) this.parent.append(node);
      if (fixed) {
        [this.at, this.fence, this.kept] = [at, fence, this.nodes];
      } else if (node) this.tail.push(node);
    }
    this.appendLastRejected(length, isLast);
  }

  /** The next block: whole Markdown, or a piece of text where there is none, or the page has enough nodes. */
  readBlock(at, length, fence) {
    const { text } = this.trace;
    if (this.markdown && this.nodes < NODES_MAX) return readBlock(text, at, length, fence);
    const limit = Math.min(length, at + PLAIN_MAX), stop = text.lastIndexOf("\n", limit - 1) + 1;
    const end = limit < length && stop > at ? stop : limit;
    return { kind: "plain", ranges: [[at, end]], end, cut: end < length };
  }

  makeBlock(block) {
    if (block.kind === "blank") return null;
    this.nodes += 1;
    if (block.kind === "code") return this.makeCode(block);
    const element = make(block.kind === "quote" ? "blockquote" : "p", `block ${block.kind}`);
    element.dir = "auto";
    if (block.level) element.classList.add(`level-${block.level}`);
    if (block.kind === "item") element.append(make("span", "marker", /\d/.test(block.marker) ? block.marker : "•"), " ");
    const inline = this.markdown && block.kind !== "plain" && block.kind !== "table";
    const parts = inline ? readInline(this.trace.text, block.ranges) : block.ranges.map(range => [...range, 0]);
    for (const [from, to, style] of parts) this.appendRange(styled(element, style), from, to, style & CODE);
    this.appendRejected(element, block.end);
    this.appendLastBreaks(element, block.end - 1);
    return element;
  }

  makeCode(block) {
    const element = make("div", block.continued ? "block code continued" : "block code");
    if (!block.continued) {
      const head = make("div", "code-head");
      head.append(make("bdi", "", (block.language || "code").slice(0, 30)));
      head.append(makeCopyButton(() => readCodeText(this.trace.text, block), "small"));
      element.append(head);
    }
    const code = make("code"), pre = make("pre");
    code.dir = "ltr";
    for (const [from, to] of block.ranges) this.appendRange(code, from, to, true);
    this.appendRejected(code, block.end);
    pre.append(code);
    element.append(pre);
    return element;
  }

  /** Append a part of the text: one node for what one method drafted in a row. */
  appendRange(parent, start, end, isCode) {
    const { runs, rejected } = this.trace;
    if (this.nodes > NODES_MAX) return parent.append(this.trace.text.slice(start, end));
    for (let run = this.trace.runAt(start), at = start; at < end; run++) {
      const runEnd = runs[run]?.[0] ?? end, source = runs[run]?.[1] ?? null;
      while (at < end && at < runEnd) {
        this.appendRejected(parent, at + 1);
        const next = rejected[this.drawn]?.[0] ?? end;
        const stop = Math.min(end, runEnd, next, at < this.differs ? this.differs : end);
        this.appendPiece(parent, this.trace.text.slice(at, stop), source, isCode, at >= this.differs);
        at = stop;
      }
    }
  }

  appendPiece(parent, text, source, isCode, differs) {
    this.nodes += 2;
    if (this.nodes > NODES_MAX) return parent.append(text);
    if (!source && !differs) return appendSigned(parent, text, isCode);
    const element = make("span", [source && `drafted ${markOf(source)}`, differs && "differs"].filter(Boolean).join(" "));
    if (source) element.title = `drafted by ${source}`;
    if (source && text.includes("\n")) appendBreaks(element, text, isCode);
    else appendSigned(element, text, isCode);
    parent.append(element);
  }

  /** Append the rejected drafts before an offset that are not in the page yet. */
  appendRejected(parent, end) {
    for (const { rejected } = this.trace; this.drawn < rejected.length && rejected[this.drawn][0] < end; this.drawn++) {
      const [, text, methods] = rejected[this.drawn];
      this.nodes += 2;
      if (this.nodes > NODES_MAX) continue;
      const element = make("del", "rejected", drawRejected(text));
      element.title = `drafted by ${methods}, rejected`;
      parent.append(element);
    }
  }

  /** Append rejected drafts after the last character. */
  appendLastRejected(length, isLast) {
    const block = this.parent.lastElementChild;
    if (length < this.trace.text.length || !block || !(isLast || this.tail.includes(block))) return;
    this.appendRejected(block.querySelector("code") ?? block, length + 1);
  }

  /** Append a sign for drafted line breaks after a block. offset: of the first. */
  appendLastBreaks(block, offset) {
    const { text, runs } = this.trace, source = runs[this.trace.runAt(offset)]?.[1];
    if (text[offset] !== "\n" || !source || this.nodes > NODES_MAX) return;
    const count = /^\n*/.exec(text.slice(offset, Math.min(this.length, offset + BREAKS_LOOK)))[0].length;
    const sign = make("span", `sign drafted ${markOf(source)}`, drawBreaks(count));
    sign.title = `drafted by ${source}`;
    this.nodes += 2;
    block.append(sign);
  }
}

/** The lines of a code block, however many blocks of the page show them. */
function readCodeText(text, block) {
  const from = block.ranges[0]?.[0] ?? block.end;
  let end = block.end;
  for (let { fence } = block; fence && end < text.length;) {
    const next = readBlock(text, end, text.length, fence);
    [end, fence] = [next.end, next.fence];
  }
  const lines = text.slice(from, end).replace(/\n$/, "").split("\n");
  return (isClosing(lines.at(-1), block.mark) ? lines.slice(0, -1) : lines).join("\n");
}

/** The element for a style of text within a block. */
function styled(parent, style) {
  for (const [bit, tag] of [[BOLD, "strong"], [ITALIC, "em"], [CODE, "code"]])
    if (style & bit) {
      const element = document.createElement(tag);
      if (bit === CODE) element.dir = "ltr";
      parent.append(element);
      parent = element;
    }
  return parent;
}

/** Append text; in code, marks that change the direction of writing are drawn, so that no line looks like another. */
function appendSigned(parent, text, isCode) {
  if (!isCode || !DIRECTIONS.test(text)) return void parent.append(text);
  for (const part of text.split(/([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/)) {
    if (!DIRECTIONS.test(part)) parent.append(part);
    else parent.append(make("span", "sign", `U+${part.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`));
  }
}

/** Append drafted text with a sign before its line breaks, which would not be seen. */
function appendBreaks(parent, text, isCode) {
  for (const part of text.split(/(\n+)/)) {
    if (part.startsWith("\n")) parent.append(make("span", "sign", drawBreaks(part.length)));
    appendSigned(parent, part, isCode);
  }
}
