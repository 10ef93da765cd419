// Requests to the server that sent this page. The key is held here alone, and is written nowhere.

let key = "";

export function setKey(text) {
  key = text.trim();
}

/** A request that the server refused, with its status; 0 where it was not reached. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function send(path, options = {}) {
  if (/[^\x20-\x7e]/.test(key)) throw new Refusal(401, "The API key has characters that no key may have.");
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  throw new Refusal(answer.status, await reason(answer));
}

async function reason(answer) {
  try {
    return String((await answer.json()).error.message);
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

export async function getProps() {
  return (await send("props")).json();
}

/** Whether another request is running. */
export async function isBusy() {
  return (await (await send("slots")).json()).some(slot => slot.is_processing);
}

/** Server-sent events of an answer, as objects. Throws Refusal where the server refuses, or the answer breaks off. */
export async function* readEvents(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const answer = await send(path, { method: "POST", signal, headers, body: JSON.stringify(body) });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await read(reader);
    if (done) throw new Refusal(0, "The connection broke off before the answer ended.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.trim() === "data: [DONE]") return;
      if (!line.startsWith("data: {")) continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Refusal(500, String(event.error.message));
      yield event;
    }
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The connection broke off before the answer ended.");
  }
}
