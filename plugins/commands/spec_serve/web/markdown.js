// Blocks and emphasis of simple Markdown, as ranges of a text. Blocks are never nested, and their size is bounded, so a
// text of any form takes time in proportion to its length. Nothing is read as HTML, and there are no links.

const BLOCK_MAX = 4000, LINE_LOOK = 200, LEVEL_MAX = 4, OPEN_MAX = 8;
export const BOLD = 1, ITALIC = 2, CODE = 4;
const HIDDEN = 128;
const FENCE = /^( *)(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(?=\S)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(?=\S)/;
const QUOTE = /^ {0,3}>[> ]*/;
const TABLE = /^ {0,3}\|/;

function lineEnd(text, at, end) {
  const stop = text.indexOf("\n", at);
  return stop < 0 || stop > end ? end : stop;
}

const isBlank = (text, at, stop) => stop - at < BLOCK_MAX && !text.slice(at, stop).trim();

/** Kind of the block that a line begins, and where its content begins. */
function readLine(text, at, stop) {
  const line = text.slice(at, Math.min(stop, at + LINE_LOOK)), short = stop - at <= LINE_LOOK;
  let match;
  if (short && (match = FENCE.exec(line)))
    return { kind: "code", fence: { mark: match[2], indent: match[1].length }, language: match[3], from: stop };
  if (short && RULE.test(line)) return { kind: "rule", from: stop };
  if ((match = HEADING.exec(line))) return { kind: "heading", level: match[1].length, from: at + match[0].length };
  if ((match = ITEM.exec(line)))
    return { kind: "item", level: Math.min(LEVEL_MAX, match[1].length >> 1), marker: match[2], from: at + match[0].length };
  if ((match = QUOTE.exec(line))) return { kind: "quote", from: at + match[0].length };
  return { kind: TABLE.test(line) ? "table" : "paragraph", from: at };
}

/** The block that begins at an offset: its kind, the ranges of its content, its end, and whether it was cut.
 * fence: of the code block that goes on here, or null. */
export function readBlock(text, start, end, fence) {
  if (fence) return readCode(text, start, end, fence, { continued: true });
  const stop = lineEnd(text, start, end);
  if (isBlank(text, start, stop)) return readBlanks(text, start, end);
  const first = readLine(text, start, stop);
  if (first.kind === "code") return readCode(text, Math.min(stop + 1, end), end, first.fence, { language: first.language });
  const ranges = [cut(text, first.from, stop, start)];
  const block = { ...first, ranges, end: ranges[0][1] < stop ? ranges[0][1] : Math.min(stop + 1, end) };
  block.cut = ranges[0][1] < stop;
  if (first.kind === "heading" || first.kind === "rule") return block;
  while (!block.cut && block.end < end && takeLine(text, block, start, end));
  trimEnd(text, ranges);
  return block;
}

function readBlanks(text, start, end) {
  const block = { kind: "blank", ranges: [], end: start };
  for (let stop; block.end < end && isBlank(text, block.end, (stop = lineEnd(text, block.end, end)));) {
    block.end = Math.min(stop + 1, end);
    block.cut = block.end - start > BLOCK_MAX;
    if (block.cut) break;
  }
  return block;
}

/** A range that ends at a space where the block has its greatest size. */
function cut(text, from, stop, start) {
  const limit = Math.max(from, start + BLOCK_MAX);
  if (stop <= limit) return [from, stop];
  const space = text.lastIndexOf(" ", limit);
  const end = space > limit - LINE_LOOK && space > from ? space + 1 : limit;
  return [from, /[\ud800-\udbff]/.test(text[end - 1]) ? end + 1 : end];
}

/** Add the next line to a block, if it belongs to it. */
function takeLine(text, block, start, end) {
  const at = block.end, stop = lineEnd(text, at, end);
  if (isBlank(text, at, stop)) return false;
  const next = readLine(text, at, stop);
  const goesOn = next.kind === "paragraph" ? block.kind !== "table" : next.kind === block.kind && next.kind !== "item";
  if (!goesOn) return false;
  if (at - start > BLOCK_MAX) return void (block.cut = true);
  const indent = block.kind === "item" ? /^ */.exec(text.slice(at, at + LINE_LOOK))[0].length : 0;
  const range = cut(text, Math.max(next.from, at + indent), stop, start);
  block.ranges.at(-1)[1] = at; // with its line break
  block.ranges.push(range);
  block.cut = range[1] < stop;
  block.end = block.cut ? range[1] : Math.min(stop + 1, end);
  return true;
}

function trimEnd(text, ranges) {
  const last = ranges.at(-1);
  while (last[1] > last[0] && /\s/.test(text[last[1] - 1])) last[1] -= 1;
}

/** Lines of a code block up to its closing fence, or as many as a block may have. */
function readCode(text, start, end, fence, more) {
  const block = { kind: "code", ranges: [], end: start, fence, mark: fence.mark, ...more };
  while (block.end < end) {
    const at = block.end, stop = lineEnd(text, at, end);
    if (isClosing(text.slice(at, Math.min(stop, at + LINE_LOOK)), fence.mark)) {
      block.end = Math.min(stop + 1, end);
      block.fence = null;
      break;
    }
    const from = at + Math.min(fence.indent, /^ */.exec(text.slice(at, Math.min(stop, at + LINE_LOOK)))[0].length);
    const range = cut(text, from, stop, start);
    block.cut = range[1] < stop || stop - start >= BLOCK_MAX;
    block.end = range[1] < stop ? range[1] : Math.min(stop + 1, end);
    block.ranges.push([range[0], range[1] < stop ? range[1] : block.end]);
    if (block.cut) break;
  }
  const last = block.ranges.at(-1);
  if (last && !block.cut && text[last[1] - 1] === "\n") last[1] -= 1;
  return block;
}

export function isClosing(line, mark) {
  const closing = line.trim();
  return closing.length >= mark.length && closing === mark[0].repeat(closing.length);
}

/** Parts of a block's content: [start, end, style]. Marks of emphasis belong to no part. */
export function readInline(text, ranges) {
  const first = ranges[0][0], last = ranges.at(-1)[1];
  const styles = new Uint8Array(last - first);
  markEmphasis(styles, first, readDelimiters(text, first, last, styles));
  const parts = [];
  for (const [start, end] of ranges)
    for (let at = start; at < end;) {
      const style = styles[at - first];
      let stop = at + 1;
      while (stop < end && styles[stop - first] === style) stop += 1;
      if (!(style & HIDDEN)) parts.push([at, stop, style]);
      at = stop;
    }
  return parts;
}

/** Runs of * and _ outside of code, in their order. Marks code and escapes in the styles. */
function readDelimiters(text, first, last, styles) {
  const ticks = lastTicks(text, first, last), runs = [];
  for (let at = first; at < last;) {
    const sign = text[at];
    if (sign === "\\" && at + 1 < last && /[!-/:-@[-`{-~]/.test(text[at + 1])) {
      styles[at - first] = HIDDEN;
      at += 2;
    } else if (sign === "`") {
      at = markCode(text, at, last, ticks, styles, first);
    } else if (sign === "*" || sign === "_") {
      const end = runEnd(text, at, last);
      runs.push(delimiter(text, at, end, first, last));
      at = end;
    } else at += 1;
  }
  return runs;
}

function runEnd(text, at, last) {
  let end = at + 1;
  while (end < last && text[end] === text[at]) end += 1;
  return end;
}

/** {length: start of the last run of so many backticks}: a run without a later one of its length begins no code. */
function lastTicks(text, first, last) {
  const ticks = new Map();
  for (let at = first; at < last;) {
    const end = text[at] === "`" ? runEnd(text, at, last) : at + 1;
    if (text[at] === "`") ticks.set(end - at, at);
    at = end;
  }
  return ticks;
}

function markCode(text, at, last, ticks, styles, first) {
  const end = runEnd(text, at, last), size = end - at;
  if (ticks.get(size) <= at) return end;
  for (let close = end; close < last;) {
    const stop = text[close] === "`" ? runEnd(text, close, last) : close + 1;
    if (text[close] === "`" && stop - close === size) {
      styles.fill(HIDDEN, at - first, end - first);
      styles.fill(CODE, end - first, close - first);
      styles.fill(HIDDEN, close - first, stop - first);
      return stop;
    }
    close = stop;
  }
  return end;
}

function delimiter(text, at, end, first, last) {
  const before = at > first ? text[at - 1] : " ", after = end < last ? text[end] : " ";
  const word = sign => /[\p{L}\p{N}]/u.test(sign), inside = text[at] === "_" && word(before) && word(after);
  return { at, end, sign: text[at], opens: !/\s/.test(after) && !inside, closes: !/\s/.test(before) && !inside };
}

/** Match delimiters of the same sign and length, at most three signs long. */
function markEmphasis(styles, first, delimiters) {
  const open = [];
  for (const run of delimiters) {
    const size = run.end - run.at;
    if (size > 3) continue;
    const match = run.closes ? open.findLastIndex(o => o.sign === run.sign && o.end - o.at === size) : -1;
    if (match >= 0) {
      const [from] = open.splice(match);
      for (let i = from.end; i < run.at; i++) styles[i - first] |= size === 1 ? ITALIC : size === 2 ? BOLD : BOLD | ITALIC;
      styles.fill(HIDDEN, from.at - first, from.end - first);
      styles.fill(HIDDEN, run.at - first, run.end - first);
    } else if (run.opens) {
      if (open.length === OPEN_MAX) open.shift();
      open.push(run);
    }
  }
}
