// Byte-pair encoding as the package `tokenizers` has it (Sennrich et al. 2016, section 3.2): text is normalised and cut, and in each part the pair of
// neighbours that was learned first becomes one piece, until none is left.

const LETTERS = 20_000; // letters of a text that are read

// `options` are from play/bpe.py. `encode(text)` returns { ids, words, spaced, all }, `decode(ids)` a text.
export function createBpe(options) {
  const numbers = new Map(options.pieces.map((piece, number) => [piece, number]));
  const count = options.pieces.length;
  const merges = new Map();
  options.merges.forEach((pair, rank) => {
    const [left, right] = pair.split(" ");
    merges.set(numbers.get(left) * count + numbers.get(right), { rank, number: numbers.get(left + right) });
  });
  const self = { ...options, numbers, count, merges, known: new Map() };
  return { encode: (text) => encoded(self, text), decode: (ids) => decoded(self, ids), piece: (id) => options.pieces[id] };
}

function encoded(self, text) {
  const all = text.length <= LETTERS;
  const tokens = partsOf(self, normalized(self, text.slice(0, LETTERS).replaceAll(/\p{Surrogate}/gu, "\ufffd"))).flatMap((part) => piecesOf(self, part));
  const words = tokens.map(({ id, letters }) => visibleWord(self, id, letters));
  return { ids: tokens.map(({ id }) => id), words: words.map(({ word }) => word), spaced: words.map(({ spaced }, i) => Number(spaced && i > 0)), all };
}

// A piece for display: without the mark of its space, an unknown letter as it was typed.
function visibleWord(self, id, letters) {
  const mark = self.cuts.find(({ kind }) => kind === "Metaspace")?.mark;
  const piece = self.pieces[id] === self.unknown && letters ? letters : self.pieces[id];
  if (!mark) return { word: self.suffix && piece.endsWith(self.suffix) ? piece.slice(0, -self.suffix.length) : piece, spaced: true };
  return { word: piece.startsWith(mark) && piece.length > mark.length ? piece.slice(mark.length) : piece, spaced: piece.startsWith(mark) };
}

function normalized({ normal }, text) {
  return normal.reduce((text, step) => {
    if (step.kind === "form") return text.normalize(step.form);
    if (step.kind === "Replace") return text.replaceAll(new RegExp(step.pattern, "gu"), () => step.content);
    if (step.kind === "Lowercase") return Array.from(text, (letter) => letter.toLowerCase()).join("");
    return text.replaceAll(/^\p{White_Space}+|\p{White_Space}+$/gu, "");
  }, text);
}

function partsOf({ cuts }, text) {
  return cuts.reduce((parts, step) => parts.flatMap((part) => {
    if (step.kind === "WhitespaceSplit") return part.split(/\p{White_Space}+/u).filter(Boolean);
    if (step.kind === "Split") return isolated(part, new RegExp(step.pattern, "gu"));
    const marked = part.replaceAll(" ", step.mark);
    return marked && !marked.startsWith(step.mark) ? step.mark + marked : marked;
  }), [text]).filter(Boolean);
}

// Yields each match, and each part between two matches.
function isolated(text, pattern) {
  const parts = [];
  let last = 0;
  for (const { 0: match, index } of text.matchAll(pattern)) {
    parts.push(text.slice(last, index), match);
    last = index + match.length;
  }
  return [...parts, text.slice(last)].filter(Boolean);
}

function piecesOf(self, part) {
  const { known, numbers } = self;
  if (self.whole && numbers.has(part)) return [{ id: numbers.get(part), letters: part }];
  if (!known.has(part)) {
    if (known.size > 20_000) known.clear();
    known.set(part, merged(self, symbolsOf(self, part)));
  }
  return known.get(part);
}

// The pieces of letters; a letter without a piece becomes its bytes, or the unknown piece.
function symbolsOf({ numbers, suffix, bytes, unknown, fused }, part) {
  const symbols = [];
  let waiting = null; // an unknown letter, to which the next may be appended
  const flush = () => waiting && symbols.push(waiting);
  const letters = Array.from(part);
  letters.forEach((letter, i) => {
    const piece = i === letters.length - 1 ? letter + suffix : letter;
    if (numbers.has(piece)) {
      flush();
      waiting = null;
      return void symbols.push({ id: numbers.get(piece), letters: letter });
    }
    const codes = bytes ? Array.from(new TextEncoder().encode(piece), (byte) => numbers.get(byteName(byte))) : [undefined];
    if (!codes.includes(undefined)) return void symbols.push(...codes.map((id) => ({ id, letters: "" })));
    if (unknown === null) return undefined;
    if (waiting && fused) return void (waiting = { ...waiting, letters: waiting.letters + letter });
    flush();
    waiting = { id: numbers.get(unknown), letters: letter };
    return undefined;
  });
  flush();
  return symbols;
}

const byteName = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

// Merges the earliest learned pairs first, of equal ones the leftmost. `next` and `last` join what is left; a symbol that was merged away is null.
function merged({ merges, count }, symbols) {
  const [next, last, heap] = [symbols.map((_, i) => i + 1), symbols.map((_, i) => i - 1), createHeap()];
  const add = (i) => {
    const merge = i >= 0 && next[i] < symbols.length && merges.get(symbols[i].id * count + symbols[next[i]].id);
    if (merge) heap.push({ ...merge, at: i });
  };
  symbols = symbols.slice();
  symbols.forEach((_, i) => add(i));
  for (let top = heap.pop(); top; top = heap.pop()) {
    const { at, number } = top;
    if (!symbols[at] || next[at] >= symbols.length) continue;
    const right = next[at];
    if (merges.get(symbols[at].id * count + symbols[right].id)?.number !== number) continue; // one of the two has been merged
    symbols[at] = { id: number, letters: symbols[at].letters + symbols[right].letters };
    symbols[right] = null;
    next[at] = next[right];
    if (next[at] < symbols.length) last[next[at]] = at;
    add(last[at]);
    add(at);
  }
  return symbols.filter(Boolean);
}

// The lowest rank first, of equal ranks the leftmost.
function createHeap() {
  const items = [];
  const before = (a, b) => items[a].rank < items[b].rank || (items[a].rank === items[b].rank && items[a].at < items[b].at);
  const swap = (a, b) => ([items[a], items[b]] = [items[b], items[a]]);
  return {
    push(item) {
      items.push(item);
      for (let i = items.length - 1; i > 0 && before(i, (i - 1) >> 1); i = (i - 1) >> 1) swap(i, (i - 1) >> 1);
    },
    pop() {
      if (items.length < 2) return items.pop();
      swap(0, items.length - 1);
      const top = items.pop();
      for (let i = 0; ; ) {
        let best = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (child < items.length && before(child, best)) best = child;
        if (best === i) return top;
        swap(i, best);
        i = best;
      }
    },
  };
}

const SPECIAL = 4; // padding, start, end, unknown: never part of a text

function decoded({ pieces, joins }, ids) {
  const words = ids.filter((id) => id >= SPECIAL).map((id) => pieces[id]);
  if (!joins.length) return words.join(" ");
  return joins.reduce((parts, step) => joined(step, parts), words).join("");
}

function joined(step, parts) {
  const { kind } = step;
  if (kind === "Fuse") return [parts.join("")];
  if (kind === "ByteFallback") return fromBytes(parts);
  if (kind === "BPEDecoder") return parts.map((part, i) => part.replaceAll(step.suffix, i === parts.length - 1 ? "" : " "));
  if (kind === "Replace") return parts.map((part) => part.replaceAll(step.text, () => step.content));
  if (kind === "Strip") return parts.map((part) => stripped(part, step));
  return parts.map((part, i) => part.replaceAll(step.mark, i === 0 && step.first ? "" : " "));
}

// The UTF-8 text of a run of bytes; if it is invalid, a mark for each byte.
function fromBytes(parts) {
  const [result, run] = [[], []];
  const close = () => {
    if (!run.length) return;
    try {
      result.push(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(run)));
    } catch {
      result.push(...run.map(() => "\ufffd"));
    }
    run.length = 0;
  };
  for (const part of parts) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(part);
    if (byte) run.push(parseInt(byte[1], 16));
    else {
      close();
      result.push(part);
    }
  }
  close();
  return result;
}

function stripped(part, { text, start, stop }) {
  const letters = Array.from(part);
  let [from, to] = [0, letters.length];
  while (from < start && letters[from] === text) from++;
  while (letters.length - to < stop && to > from && letters[to - 1] === text) to--;
  return letters.slice(from, to).join("");
}
