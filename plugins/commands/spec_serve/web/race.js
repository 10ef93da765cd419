// The same request twice, with different methods: one after the other, since both at once would share the machine, and
// then replayed side by side at the measured speeds. No text is drawn while a run is measured.

import { AnswerView } from "./answer.js";
import { make, makeButton } from "./dom.js";
import { generate, perSecond, requestOf, speedOf } from "./generation.js";
import { isBusy } from "./server.js";
import { Trace } from "./trace.js";

export const PLAIN = "none";
const FOLLOW = 24;

export const nameOf = method => (method === PLAIN ? "no drafts" : method || "all methods");

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Number of equal characters at the beginning of two texts. */
export function equalLength(one, other) {
  const end = Math.min(one.length, other.length);
  let at = 0;
  while (at < end && one[at] === other[at]) at += 1;
  return at;
}

/** A sentence on whether two texts are equal. mayDiffer: the rule or the engine does not promise it. */
export function compareTexts(one, other, mayDiffer) {
  const equal = equalLength(one.text, other.text);
  if (equal === one.text.length && equal === other.text.length)
    return { equal, same: true, text: `= Equal text: all ${one.tokens} tokens` };
  const where = `≠ The texts differ after ${equal} characters`;
  return { equal, same: false, text: mayDiffer ? `${where}, as they may with this rule or engine` : `${where}, which must not be: please report it` };
}

/** One runner: its lane in the page, its trace, and its replay. */
class Lane {
  constructor(parent, method) {
    this.method = method;
    this.box = make("section", "lane");
    this.box.setAttribute("aria-label", nameOf(method));
    this.head = make("div", "lane-head");
    this.head.append(make("strong", "", nameOf(method)), (this.speed = make("span", "speed")));
    this.bar = make("progress", "");
    this.bar.setAttribute("aria-label", `Tokens of ${nameOf(method)}`);
    this.bar.value = 0;
    this.body = make("div", "lane-text");
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "region");
    this.body.setAttribute("aria-label", `Text of ${nameOf(method)}`);
    this.box.append(this.head, this.bar, this.body);
    parent.append(this.box);
    this.trace = new Trace();
  }

  async measure(request, signal) {
    this.bar.removeAttribute("value");
    this.answer = await generate(request, this.trace, { onStep: () => (this.speed.textContent = `${this.trace.tokens} tokens`), signal });
    this.bar.value = 0;
    if (this.answer.reason === "failed") throw new Error(this.answer.problem);
    if (this.answer.reason === "stopped") throw new DOMException("stopped", "AbortError");
    if (!this.trace.tokens) throw new Error("the answer is empty.");
    this.tokensPerSecond = speedOf(this.answer, this.trace);
    this.speed.textContent = "measured";
  }

  /** Milliseconds of the replay: as long as the server took from the first token to the last. */
  get duration() {
    return this.tokensPerSecond ? (1000 * (this.trace.tokens - this.trace.steps[0][2])) / this.tokensPerSecond : 0;
  }

  begin(equal, markdown) {
    this.body.replaceChildren();
    this.view = new AnswerView(this.body, this.trace, markdown);
    if (equal < this.trace.text.length) this.view.differs = equal;
    this.bar.max = this.trace.tokens;
    this.next = 0;
  }

  /** Show the steps of the first milliseconds; returns whether it has arrived. */
  show(milliseconds) {
    const { steps } = this.trace, first = steps[0][0], span = steps.at(-1)[0] - first;
    const scale = span > 0 ? this.duration / span : 0, before = this.next;
    while (this.next < steps.length && (steps[this.next][0] - first) * scale <= milliseconds) this.next += 1;
    const done = this.next === steps.length;
    if (this.next > before) {
      const [, length, tokens] = steps[this.next - 1], { body } = this;
      const atEnd = body.scrollHeight - body.scrollTop - body.clientHeight < FOLLOW;
      this.view.render(length, done);
      this.bar.value = tokens;
      if (atEnd) body.scrollTop = body.scrollHeight;
    }
    const speed = done && this.tokensPerSecond ? `${perSecond(this.tokensPerSecond)} · ${(this.duration / 1000).toFixed(2)} s` : `${this.bar.value} tokens`;
    this.speed.textContent = speed;
    this.box.classList.toggle("done", done);
    return done;
  }
}

/** A race in a panel. asked, turns: of the answer that runs again. props: of the server.
 * mayRun: whether no answer is generated. onChange: called when a race begins or ends. */
export class Race {
  constructor(panel, { asked, turns, props, markdown, mayRun, onChange }) {
    Object.assign(this, { panel, asked, turns, props, markdown, mayRun, onChange, frame: 0, runs: new Map() });
    this.status = make("p", "verdict");
    this.status.setAttribute("role", "status");
    this.lanes = make("div", "lanes");
    const { types } = props.speculative, choices = types.length > 1 ? ["", ...types, PLAIN] : [...types, PLAIN];
    this.selects = ["First", "Second"].map(label => this.makeSelect(label, choices));
    this.again = makeButton("Race", "", () => this.run());
    this.replayButton = makeButton("Replay", "", () => this.replay());
    this.skipButton = makeButton("Skip", "skip", () => this.replay(Infinity));
    const controls = make("div", "controls");
    controls.append(...this.selects.map(select => select.parentElement), this.again, this.replayButton, this.skipButton,
      makeButton("Close", "", () => this.close()));
    panel.append(controls, this.lanes, this.status);
    this.update(false, false);
  }

  makeSelect(label, methods) {
    const select = make("select", "");
    for (const method of methods) select.add(new Option(nameOf(method), method));
    make("label", "", label).append(select);
    return select;
  }

  choose(first, second) {
    const { types } = this.props.speculative;
    this.selects[0].value = first || (types.length > 1 ? "" : (types[0] ?? PLAIN));
    this.selects[1].value = second;
  }

  /** Measure both in random order, then replay. */
  async run() {
    if (this.running || !this.mayRun()) return;
    this.running = new AbortController();
    this.onChange();
    cancelAnimationFrame(this.frame);
    this.lanes.replaceChildren();
    this.pair = this.selects.map(select => new Lane(this.lanes, select.value));
    this.result = null;
    this.update(true, false);
    try {
      const order = Math.random() < 0.5 ? this.pair : [...this.pair].reverse();
      const busy = await isBusy();
      for (const [i, lane] of order.entries()) {
        this.status.textContent = `Run ${i + 1} of 2: ${nameOf(lane.method)}. The order is random.`;
        await lane.measure(this.request(lane.method), this.running.signal);
      }
      this.finish(busy || (await isBusy()));
    } catch (error) {
      this.lanes.replaceChildren();
      this.status.textContent = error.name === "AbortError" ? "The race was stopped." : `The race failed: ${error.message}`;
      this.update(false, false);
    } finally {
      this.running = null;
      this.onChange();
    }
    if (this.result) this.replay(matchMedia("(prefers-reduced-motion: reduce)").matches ? Infinity : 0);
  }

  request(method) {
    const salt = { cache_salt: String(Math.random()) }; // one run must not learn from the other
    return requestOf({ ...this.asked, method }, this.turns, this.props.speculative.shares_learning ? salt : {});
  }

  finish(busy) {
    const [one, other] = this.pair, promises = this.props.speculative.may_differ;
    const temperature = this.asked.temperature ?? this.props.default_generation_settings.params.temperature;
    const mayDiffer = temperature > 0 ? promises.sampled : promises.greedy;
    this.result = compareTexts(one.trace, other.trace, mayDiffer);
    const notes = [make("strong", this.result.same ? "same" : "differs", this.result.text), ". "];
    if (this.result.same && mayDiffer) notes.push("With this rule or engine it may differ. ");
    if (one.tokensPerSecond && other.tokensPerSecond) {
      const runs = this.addSpeeds(), speeds = [0, 1].map(i => median(runs.map(run => run[i])));
      const [first, second] = speeds.map((speed, i) => `${nameOf(this.pair[i].method)} ${perSecond(speed)}`);
      const counted = runs.length > 1 ? `medians of ${runs.length} runs each` : "one run each";
      notes.push(`${first}, ${second}: `, make("strong", "ratio", `${(speeds[0] / speeds[1]).toFixed(2)} times as fast`), `, ${counted}. `);
    } else notes.push("Too short to be timed. ");
    if (busy) notes.push("Another request ran at the same time: the speeds are unreliable.");
    this.verdict = notes;
  }

  /** Add the speeds of this race to the earlier races of the same two, and return all. */
  addSpeeds() {
    const name = this.pair.map(lane => lane.method).join();
    const runs = this.runs.get(name) ?? [];
    this.runs.set(name, [...runs, this.pair.map(lane => lane.tokensPerSecond)]);
    return this.runs.get(name);
  }

  /** Show both at their measured speeds. from: milliseconds that are skipped. */
  replay(from = 0) {
    cancelAnimationFrame(this.frame);
    for (const lane of this.pair) lane.begin(this.result.equal, this.markdown());
    this.status.textContent = "Replayed at the measured speeds.";
    this.update(false, true);
    const start = performance.now() - from;
    const step = now => {
      const done = this.pair.map(lane => lane.show(now - start));
      if (!done.every(Boolean)) return void (this.frame = requestAnimationFrame(step));
      this.status.replaceChildren(...this.verdict);
      this.update(false, false);
    };
    step(performance.now());
  }

  update(running, replaying) {
    this.panel.setAttribute("aria-busy", String(running));
    this.again.disabled = running;
    this.replayButton.disabled = running || replaying || !this.result;
    this.skipButton.disabled = !replaying;
  }

  stop() {
    this.running?.abort();
  }

  close() {
    this.stop();
    cancelAnimationFrame(this.frame);
    this.panel.remove();
    this.onClose?.();
  }
}
