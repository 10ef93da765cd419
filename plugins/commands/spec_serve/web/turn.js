// Turns of the conversation in the page.

import { AnswerView } from "./answer.js";
import { make, makeButton, makeCopyButton } from "./dom.js";
import { describeEnd, describeNumbers, isCut } from "./generation.js";
import { PLAIN } from "./race.js";
import { Trace } from "./trace.js";

/** What made an answer, in a few words. */
export function describeMaker(model, asked, types) {
  const methods = asked.method === PLAIN || asked.n_max === 0 || !types.length ? "no drafts" : asked.method || types.join(", ");
  const temperature = asked.temperature === undefined ? "" : `, temperature ${asked.temperature}`;
  return `${model} · ${methods}${temperature}`;
}

function makeTurn(log, kind, head) {
  const box = make("article", `turn ${kind}`), heading = make("h2", "who");
  heading.append(make("bdi", "", head));
  box.append(heading);
  box.actions = make("div", "actions");
  log.append(box);
  return box;
}

/** The message of a user, with a button that edits it. */
export function showMessage(log, turn, onEdit) {
  const box = makeTurn(log, "user", turn.chat ? "You" : "You, without chat template"), text = make("div", "message-text", turn.text);
  text.dir = "auto";
  for (const picture of turn.pictures ?? []) box.append(makePicture(picture));
  box.append(text, box.actions);
  box.actions.append(makeButton("Edit", "small", onEdit), makeCopyButton(() => turn.text, "small"));
  return box;
}

export function makePicture({ url, name }) {
  const image = make("img", "picture");
  image.src = url;
  image.alt = name;
  return image;
}

/** An answer: a view for what the model thinks, one for what it says, and what is said about it at its end. */
export class AnswerTurn {
  constructor(log, head, markdown) {
    this.box = makeTurn(log, "assistant", head);
    this.thought = make("details", "thought");
    this.thought.hidden = true;
    this.thought.append(make("summary", "", "Thought"), make("div", ""));
    this.body = make("div", "answer");
    this.ended = make("p", "ended");
    this.numbers = make("p", "numbers");
    this.box.append(this.thought, this.body, this.ended, this.numbers, this.box.actions);
    this.setTrace(new Trace(), markdown);
  }

  setTrace(trace, markdown) {
    this.trace = trace;
    this.body.replaceChildren();
    this.thought.lastChild.replaceChildren();
    this.thoughtView = new AnswerView(this.thought.lastChild, trace, false);
    this.view = new AnswerView(this.body, trace, markdown);
    this.begun = false;
  }

  /** Show what the trace has by now. */
  render(isLast = false) {
    const { trace } = this, from = trace.answerFrom;
    this.box.setAttribute("aria-busy", String(!isLast));
    this.thought.hidden = !trace.isThinking && !from;
    if (trace.isThinking || from) this.thoughtView.render(from || trace.text.length, isLast || Boolean(from));
    if (trace.isThinking) return;
    if (from && !this.begun) this.view.at = from;
    this.begun = true;
    this.view.render(trace.text.length, isLast);
  }

  /** Say how it ended, and its numbers. */
  finish(answer, context) {
    this.render(true);
    this.ended.textContent = describeEnd(answer, context);
    this.ended.classList.toggle("cut", isCut(answer));
    this.numbers.textContent = describeNumbers(answer, this.trace).join(" · ");
  }
}
