// The text of an answer with the source of every part, its rejected drafts, and the time of every step.

/** runs: [end, source] of parts of the text, source null for the model's own. rejected: [offset, text, methods].
 * answerFrom: where the answer begins after what the model thought. isThinking: it has not begun.
 * steps: [milliseconds, length of the text, number of tokens] after each step; not stored. */
export class Trace {
  constructor(stored = {}) {
    this.text = stored.text ?? "";
    this.runs = stored.runs ?? [];
    this.rejected = stored.rejected ?? [];
    this.tokens = stored.tokens ?? 0;
    this.count = stored.count ?? 0;
    this.answerFrom = stored.answerFrom ?? 0;
    this.isThinking = false;
    this.steps = [];
  }

  /** Add a step as the server reports it: rejected drafts stand before the token that took their place. */
  addStep(step, milliseconds) {
    const own = step.tokens.findIndex(token => !token.source);
    step.tokens.forEach((token, i) => {
      if (i === own) this.addRejected(step);
      this.addToken(token);
    });
    if (own < 0) this.addRejected(step);
    this.tokens += step.tokens.length;
    this.count += 1;
    this.steps.push([milliseconds, this.text.length, this.tokens]);
  }

  addToken({ text, source }) {
    if (!text) return;
    this.text += text;
    const last = this.runs.at(-1);
    if (last && last[1] === (source ?? null)) last[0] = this.text.length;
    else this.runs.push([this.text.length, source ?? null]);
  }

  addRejected(step) {
    if (!step.rejected.length) return;
    this.rejected.push([this.text.length, step.rejected.map(t => t.text).join(""), step.drafted_by.join(" and ")]);
  }

  /** Tokens per second between the first and the last step; null for a single step. */
  get speed() {
    const first = this.steps[0], last = this.steps.at(-1);
    return last && last[0] > first[0] ? (1000 * (last[2] - first[2])) / (last[0] - first[0]) : null;
  }

  /** Index of the run that holds a character. */
  runAt(offset) {
    return firstAbove(this.runs, offset);
  }

  /** Index of the first rejected draft at an offset or after it. */
  rejectedFrom(offset) {
    return firstAbove(this.rejected, offset - 1);
  }

  /** What is kept of it; JSON.stringify calls this. */
  toJSON() {
    const { text, runs, rejected, tokens, count, answerFrom } = this;
    return { text, runs, rejected, tokens, count, answerFrom };
  }
}

/** Index of the first entry whose number is above the limit; the entries are in order. */
function firstAbove(entries, limit) {
  let low = 0, high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle][0] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}
