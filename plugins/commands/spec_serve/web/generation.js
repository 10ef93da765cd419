// Requests for answers, and what is said about how one ended and how fast it was.

import { Refusal, readEvents } from "./server.js";

const BOUNDARY_LOOK = 64;
const ENDINGS = {
  stop: "Ended by the model",
  stopped: "Stopped by you",
  left: "Cut when the page was left",
  cancelled: "Cut by the server, which shuts down",
  deadline: "Cut at the server's time limit",
};

/** Messages of a chat as the API takes them: those before a turn, with a system prompt where there is one. */
export function messagesOf(system, turns) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const turn of turns) {
    if (!turn.chat) continue;
    if (turn.role === "assistant") messages.push({ role: "assistant", content: turn.content });
    else messages.push({ role: "user", content: contentOf(turn) });
  }
  return messages;
}

function contentOf({ text, pictures = [] }) {
  if (!pictures.length) return text;
  return [...pictures.map(picture => ({ type: "image_url", image_url: { url: picture.url } })), { type: "text", text }];
}

/** Path and body of a request. asked: settings of the answer. turns: that come before it, its message last. */
export function requestOf(asked, turns, more = {}) {
  const speculative = { trace: true };
  if (asked.method) speculative.method = asked.method;
  if (asked.n_max !== undefined) speculative.n_max = asked.n_max;
  const { temperature, top_p, top_k, max_tokens, seed } = asked;
  const body = { stream: true, stream_options: { include_usage: true }, speculative, temperature, top_p, top_k,
    max_tokens, seed, ...more };
  if (!asked.chat) return ["v1/completions", { ...body, prompt: turns.at(-1).text }];
  return ["v1/chat/completions", { ...body, messages: messagesOf(asked.system, turns) }];
}

/** Generate an answer into a trace. Returns how it ended and its numbers; throws Refusal if nothing came. */
export async function generate([path, body], trace, { onStep, signal }) {
  const answer = { content: "", thinking: "", reason: "" };
  try {
    for await (const event of readEvents(path, body, signal)) {
      for (const choice of event.choices) addChoice(answer, choice, trace);
      for (const name of ["timings", "usage", "seed"]) if (event[name]) answer[name] = event[name];
      onStep();
    }
  } catch (error) {
    if (error.name === "AbortError") answer.reason = "stopped";
    else if (error instanceof Refusal && trace.tokens) Object.assign(answer, { reason: "failed", problem: error.message });
    else throw error;
  }
  return answer;
}

function addChoice(answer, choice, trace) {
  const before = trace.text.length, content = choice.text ?? choice.delta?.content ?? "";
  if (choice.speculative) trace.addStep(choice.speculative, performance.now());
  answer.thinking += choice.delta?.reasoning_content ?? "";
  trace.isThinking = Boolean(answer.thinking) && !answer.content && !content;
  if (content && answer.thinking && !answer.content) {
    const start = trace.text.indexOf(content, Math.max(0, before - BOUNDARY_LOOK));
    trace.answerFrom = start < 0 ? before : start;
  }
  answer.content += content;
  answer.reason = choice.finish_reason ?? answer.reason;
}

/** One sentence on how an answer ended. */
export function describeEnd({ reason, problem, asked, usage }, context) {
  if (reason === "failed") return `Failed: ${problem}`;
  if (reason !== "length") return ENDINGS[reason] ?? `Ended: ${reason}`;
  if (usage && context && usage.total_tokens >= context) return `Cut: the context of ${context} tokens is full`;
  const tokens = usage?.completion_tokens ?? asked.max_tokens;
  return tokens === asked.max_tokens ? `Cut at the limit of ${tokens} tokens, “Max tokens”` : `Cut at the server's limit of ${tokens} tokens`;
}

export const isCut = ({ reason }) => reason !== "stop";

export const perSecond = speed => `${speed >= 100 ? speed.toFixed(0) : speed.toFixed(1)} tokens/s`;

/** Tokens per second: the server's number, or for an answer that did not end, the page's own. */
export function speedOf({ timings }, trace) {
  return timings?.predicted_per_second || trace.speed;
}

/** Numbers of an answer, each as a few words. */
export function describeNumbers(answer, trace) {
  const speed = speedOf(answer, trace), { tokens, count } = trace;
  const numbers = [`${tokens} ${tokens === 1 ? "token" : "tokens"} in ${count} ${count === 1 ? "step" : "steps"}`];
  if (count) numbers.push(`${(tokens / count).toFixed(2)} tokens per step`);
  if (speed) numbers.unshift(perSecond(speed));
  if (answer.timings) {
    const t = answer.timings;
    if (t.draft_n) numbers.push(`${t.draft_n_accepted} of ${t.draft_n} drafted accepted`);
    const read = t.prompt_n ? `, ${t.prompt_n} evaluated in ${t.prompt_ms.toFixed(0)} ms` : "";
    numbers.push(`prompt ${t.cache_n + t.prompt_n} tokens, ${t.cache_n} of them cached${read}`);
  }
  if (answer.seed !== undefined) numbers.push(`seed ${answer.seed}`);
  return numbers;
}
