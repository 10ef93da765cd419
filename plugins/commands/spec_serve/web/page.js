// The chat page: its form, its conversation, and what its keys and buttons do.

import { clearStored, loadStored, store, turns } from "./conversation.js";
import { make, makeButton, makeCopyButton } from "./dom.js";
import { generate, requestOf } from "./generation.js";
import { markOf, setLegend } from "./marks.js";
import { PLAIN, Race } from "./race.js";
import { Refusal, getProps, setKey } from "./server.js";
import { readPictures } from "./pictures.js";
import { Trace } from "./trace.js";
import { AnswerTurn, describeMaker, makePicture, showMessage } from "./turn.js";

const at = id => document.getElementById(id);
const NUMBERS = ["n_max", "temperature", "top_p", "top_k", "max_tokens", "seed"];
const TEXTS = ["method", "system"], SWITCHES = ["chat", "markdown", "rejected"];
const FOLLOW = 24, BACK = 100, WIDE = "(min-width: 50rem)", BUSY = ["send", "clear"];

let props = { model_alias: "spec serve", modalities: {}, speculative: { types: [], switched_off: {}, may_differ: {} },
  default_generation_settings: { n_ctx: 0, params: {} } };
let running = null; // the AbortController of the answer that is generated
let race = null;
let editing = null; // index of the message that is edited
let pictures = [];
let isLeaving = false;
const follow = { on: true, top: 0 };

const context = () => props.default_generation_settings.n_ctx;
const isRunning = () => Boolean(running || race?.running);

// --- the server

async function about() {
  try {
    props = await getProps();
  } catch (error) {
    return complain(error);
  }
  complain(null);
  const { types, switched_off } = props.speculative;
  at("title").textContent = types.length ? props.model_alias : `${props.model_alias}, plain decoding`;
  if (!props.chat_template) at("chat").checked = false;
  for (const name of types) {
    if (![...at("method").options].some(option => option.value === name)) at("method").add(new Option(name, name));
    markOf(name);
  }
  at("sources").hidden = !types.length;
  const off = Object.keys(switched_off);
  note(off.length ? `Switched off after a failure: ${off.join(", ")}.` : "");
  at("picture").hidden = !props.modalities.vision;
  document.body.dataset.ready = "true";
}

/** Say what went wrong; without a key, name the field for it. */
function complain(error) {
  const needsKey = error?.status === 401;
  at("key").toggleAttribute("aria-invalid", false);
  if (!error) return void (at("problem").textContent = "");
  if (needsKey) {
    at("problem").textContent = `${at("key").value ? "The API key is wrong" : "This server needs an API key"}: type it in the field “API key” below. It is not stored.`;
    at("settings").open = true;
    at("key").setAttribute("aria-invalid", "true");
    at("key").focus();
  } else at("problem").textContent = error.message;
}

const note = text => (at("note").textContent = text);

// --- settings and storage

function readSettings() {
  const settings = {};
  for (const id of NUMBERS) settings[id] = at(id).value === "" ? undefined : Number(at(id).value);
  for (const id of TEXTS) settings[id] = at(id).value;
  for (const id of SWITCHES) settings[id] = at(id).checked;
  return settings;
}

function writeSettings(settings) {
  for (const id of [...NUMBERS, "system"]) if (id in settings) at(id).value = settings[id] ?? "";
  for (const id of SWITCHES) if (id in settings) at(id).checked = settings[id] === true;
  if (typeof settings.method === "string" && settings.method) {
    if (![...at("method").options].some(option => option.value === settings.method)) at("method").add(new Option(settings.method, settings.method));
    at("method").value = settings.method;
  }
}

function keep() {
  if (isLeaving) return; // requests fail now, which is no part of the conversation
  const fields = { ...readSettings(), ...Object.fromEntries(NUMBERS.map(id => [id, at(id).value])) };
  const left = store(fields);
  if (left) note(`This conversation is too large for the tab's storage: ${left} will be lost when the page is reloaded.`);
}

// --- showing

/** Change the conversation; it is scrolled only if the reader is at its end. */
function following(change) {
  change();
  if (follow.on) scrollToEnd();
}

/** Blocks out of view get their height when they are drawn, so the end is looked for again then. */
function scrollToEnd() {
  const log = at("log");
  setFollow(true);
  log.scrollTop = log.scrollHeight;
  for (const wait of [1, 2]) afterFrames(wait, () => follow.on && (log.scrollTop = log.scrollHeight));
}

const afterFrames = (count, action) => requestAnimationFrame(() => (count > 1 ? afterFrames(count - 1, action) : action()));

function setFollow(isOn) {
  follow.on = isOn;
  at("log").classList.toggle("following", isOn);
}

/** Whether the reader is at the end: scrolling upwards leaves it, scrolling down to it comes back. */
function noteScroll() {
  const { scrollTop, scrollHeight, clientHeight } = at("log"), left = scrollHeight - scrollTop - clientHeight;
  if (scrollTop > follow.top && left < BACK) setFollow(true);
  if (scrollTop < follow.top - FOLLOW && left > FOLLOW) setFollow(false);
  follow.top = scrollTop;
}

function noteWheel({ deltaY }) {
  const { scrollHeight, clientHeight } = at("log");
  if (!(deltaY > 0) && scrollHeight > clientHeight + FOLLOW) setFollow(false);
}

function showAll() {
  race?.close();
  at("log").querySelectorAll(".turn").forEach(turn => turn.remove());
  at("welcome").hidden = turns.length > 0;
  turns.forEach((turn, i) => (turn.role === "user" ? showUser(turn, i) : showAnswer(turn, i)));
}

/** Ask the server about itself, and show the conversation with that; an answer that runs is left as it is. */
const refresh = () => about().then(() => isRunning() || showAll());

function showUser(turn, index) {
  at("welcome").hidden = true;
  return showMessage(at("log"), turn, () => beginEdit(index));
}

function showAnswer(turn, index) {
  const shown = new AnswerTurn(at("log"), turn.maker, turn.asked.markdown);
  shown.setTrace(new Trace(turn.trace), turn.asked.markdown);
  shown.finish(turn, context());
  addActions(shown, turn, index);
}

function addActions(shown, turn, index) {
  for (const old of at("log").querySelectorAll(".again")) old.remove();
  const { actions } = shown.box;
  if (props.speculative.types.length || turn.trace.runs.some(run => run[1]))
    actions.append(makeButton("The same without drafts", "small compare", () => startRace(shown, turn, index)));
  actions.append(makeCopyButton(() => turn.content, "small"));
  if (index === turns.length - 1) actions.append(makeButton("Again", "small again", () => answerAgain(index)));
}

// --- generating

async function sendMessage(text) {
  complain(null);
  const before = editing === null ? null : turns.splice(editing);
  endEdit();
  if (before) showAll();
  const { chat } = readSettings();
  turns.push({ role: "user", text, pictures, chat });
  const sent = pictures, box = showUser(turns.at(-1), turns.length - 1);
  setPictures([]);
  at("prompt").value = "";
  scrollToEnd();
  if (await answer({})) return;
  box.remove(); // refused: the message goes back to where it was typed
  turns.pop();
  if (before) turns.push(...before);
  if (before) showAll();
  setPictures(sent);
  if (!at("prompt").value) at("prompt").value = text;
  keep();
}

/** Answer the last message. Returns whether anything came. */
async function answer(more) {
  const asked = { ...readSettings(), ...more }, before = [...turns];
  const turn = { role: "assistant", asked, chat: asked.chat, content: "", reason: "left", trace: null,
    maker: describeMaker(props.model_alias, asked, props.speculative.types) };
  const trace = new Trace(), shown = new AnswerTurn(at("log"), turn.maker, asked.markdown);
  shown.setTrace(trace, asked.markdown);
  turn.trace = trace;
  turns.push(turn);
  running = new AbortController();
  setBusy();
  let frame = 0;
  const draw = () => {
    frame = 0;
    following(() => shown.render());
  };
  const onStep = () => {
    turn.content = trace.text.slice(trace.answerFrom);
    frame ||= requestAnimationFrame(draw);
  };
  try {
    Object.assign(turn, await generate(requestOf(asked, before), trace, { onStep, signal: running.signal }));
    return true;
  } catch (error) {
    turns.pop();
    shown.box.remove();
    if (!(error instanceof Refusal)) throw error;
    complain(error);
    return false;
  } finally {
    cancelAnimationFrame(frame);
    running = null;
    if (turns.at(-1) === turn) following(() => endAnswer(shown, turn));
    setBusy();
  }
}

function endAnswer(shown, turn) {
  shown.finish(turn, context());
  addActions(shown, turn, turns.length - 1);
  keep();
  if (document.activeElement === document.body) at("prompt").focus();
}

/** Answer again: with a new seed, or the next one where the seed is set. */
async function answerAgain(index) {
  if (isRunning() || index !== turns.length - 1) return;
  const [former] = turns.splice(index);
  complain(null);
  at("log").querySelector(".turn:last-child").remove();
  const { seed } = readSettings();
  if (await answer(seed === undefined ? {} : { seed: (former.seed ?? seed) + 1 })) return;
  turns.push(former);
  showAll();
}

function setBusy() {
  const busy = isRunning();
  at("stop").disabled = !busy;
  for (const id of BUSY) at(id).disabled = busy;
  for (const button of at("log").querySelectorAll(".actions button:not(.copy)")) button.disabled = busy;
}

function stop() {
  running?.abort();
  race?.stop();
}

// --- comparing

function startRace(shown, turn, index) {
  if (isRunning()) return;
  race?.close();
  const panel = make("section", "race");
  panel.setAttribute("aria-label", "The same request twice");
  shown.box.append(panel);
  const stopped = turn.reason !== "stop" && turn.reason !== "length";
  const asked = { ...turn.asked, seed: turn.seed ?? turn.asked.seed ?? 0 };
  if (stopped) asked.max_tokens = Math.max(1, turn.trace.tokens);
  const callbacks = { markdown: () => turn.asked.markdown, mayRun: () => !running, onChange: setBusy };
  race = new Race(panel, { asked, turns: turns.slice(0, index), props, ...callbacks });
  race.onClose = () => ((race = null), setBusy());
  race.choose(turn.asked.method === PLAIN || turn.asked.n_max === 0 ? "" : turn.asked.method, PLAIN);
  panel.scrollIntoView({ block: "nearest" });
  race.run().then(() => panel.isConnected && panel.scrollIntoView({ block: "nearest" }));
}

// --- editing and pictures

function beginEdit(index) {
  if (isRunning()) return;
  editing = index;
  at("prompt").value = turns[index].text;
  setPictures(turns[index].pictures ?? []);
  note("You edit an earlier message; sending replaces it and what follows. Escape leaves it as it is.");
  at("prompt").focus();
}

function endEdit() {
  if (editing === null) return;
  editing = null;
  note("");
}

function setPictures(chosen) {
  pictures = chosen;
  at("attached").replaceChildren(...pictures.map(makePicture));
  if (pictures.length) at("attached").append(makeButton("Remove", "small", () => setPictures([])));
}

async function addPictures(files) {
  if (!props.modalities.vision || !files.length) return;
  try {
    setPictures([...pictures, ...(await readPictures(files))]);
  } catch (error) {
    complain(error);
  }
}

// --- events

at("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = at("prompt").value;
  if (document.activeElement === at("key")) return void at("key").dispatchEvent(new Event("change"));
  if (!isRunning() && (text || pictures.length)) sendMessage(text);
});
at("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (isRunning()) return stop();
  if (editing === null) return;
  endEdit();
  at("prompt").value = "";
  setPictures([]);
});
at("stop").addEventListener("click", stop);
at("log").addEventListener("scroll", noteScroll);
at("log").addEventListener("wheel", noteWheel, { passive: true });
at("log").addEventListener("touchmove", noteWheel, { passive: true });
at("clear").addEventListener("click", () => {
  clearStored();
  endEdit();
  complain(null);
  showAll();
  keep();
  at("prompt").focus();
});
at("rejected").addEventListener("change", () => document.body.classList.toggle("show", at("rejected").checked));
at("key").addEventListener("change", () => {
  setKey(at("key").value);
  refresh();
});
at("form").addEventListener("change", event => event.target === at("key") || keep());
at("picture").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", () => addPictures([...at("file").files]).then(() => (at("file").value = "")));
at("prompt").addEventListener("paste", event => addPictures([...event.clipboardData.files]));
document.addEventListener("dragover", event => props.modalities.vision && event.preventDefault());
document.addEventListener("drop", event => {
  if (!props.modalities.vision) return;
  event.preventDefault();
  addPictures([...event.dataTransfer.files]);
});
for (const event of ["beforeunload", "pagehide"])
  addEventListener(event, () => {
    keep();
    isLeaving = true;
  });
addEventListener("pageshow", () => (isLeaving = false));

setLegend(at("sources"));
writeSettings(loadStored());
document.body.classList.toggle("show", at("rejected").checked);
at("settings").open = matchMedia(WIDE).matches;
refresh().then(scrollToEnd);
