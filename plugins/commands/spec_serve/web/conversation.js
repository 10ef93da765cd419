// The conversation and the settings of this tab, kept in its storage until it is closed. The key is not among them.

const NAME = "spec-serve";

/** Turns: of the user ({role, text, pictures, chat}) and the model ({role, asked, content, trace, reason, ...}). */
export const turns = [];

export function loadStored() {
  let stored;
  try {
    stored = JSON.parse(sessionStorage.getItem(NAME)) ?? {};
  } catch {
    return {}; // no storage, or of another program
  }
  if (Array.isArray(stored.turns)) turns.push(...stored.turns.filter(isTurn));
  return typeof stored.settings === "object" && stored.settings ? stored.settings : {};
}

function isTurn(turn) {
  if (turn?.role === "user") return typeof turn.text === "string";
  return turn?.role === "assistant" && typeof turn.content === "string" && typeof turn.trace?.text === "string" &&
    Array.isArray(turn.trace.runs) && Array.isArray(turn.trace.rejected) && typeof turn.asked === "object";
}

const withoutPictures = turn => (turn.pictures ? { ...turn, pictures: [] } : turn);
const withoutMarks = turn => (turn.trace ? { ...turn, trace: { ...turn.trace, runs: [], rejected: [] } } : turn);

/** Keep the conversation: whole, or without pictures, or without marks too. Returns what had to be left out. */
export function store(settings) {
  const attempts = [["", turn => turn], ["pictures", withoutPictures],
    ["pictures and the marks of drafts", turn => withoutMarks(withoutPictures(turn))]];
  for (const [left, change] of attempts)
    try {
      sessionStorage.setItem(NAME, JSON.stringify({ turns: turns.map(change), settings }));
      return left;
    } catch {
      continue; // too large
    }
  return "everything";
}

export function clearStored() {
  turns.length = 0;
  try {
    sessionStorage.removeItem(NAME);
  } catch {
    return; // no storage
  }
}
