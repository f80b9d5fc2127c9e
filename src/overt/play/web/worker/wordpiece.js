import { isChinese, isMark, isPunctuation, isRemoved, isSpace } from "./characters.js";

// BERT's tokenizer as Hugging Face's BertTokenizerFast has it: characters are cleaned and made lower case, words are cut at spaces and
// around punctuation, and each word into the longest pieces that the vocabulary has (Wu et al. 2016, section 4.1).

const LONGEST = 100; // characters of a word; a longer word is unknown

// `options` is { pieces, lowercase, accents, chinese, special, unknown, first, last }: pieces in the order of their numbers, whether letters are made
// lower case, accents are taken off and Chinese characters are words of their own; special tokens in a text are read as such.
export function createWordPiece(options) {
  const numbers = new Map(options.pieces.map((piece, number) => [piece, number]));
  const special = options.special.length ? new RegExp(options.special.toSorted((a, b) => b.length - a.length).map(escaped).join("|"), "gu") : null;
  const self = { ...options, numbers, special };
  // The first `limit` tokens of a text: { ids, pieces, spans, special, all }; `all` is true if the whole text was read.
  return (text, limit) => {
    const found = [];
    const all = addText(self, text, limit - 2, found);
    const tokens = [tokenOf(self, options.first, 0, 0), ...found.slice(0, limit - 2), tokenOf(self, options.last, 0, 0)];
    const list = (name) => tokens.map((each) => each[name]);
    const marks = tokens.map((_, i) => Number(i === 0 || i === tokens.length - 1));
    return { ids: list("id"), pieces: list("piece"), spans: tokens.map(({ start, stop }) => [start, stop]), special: marks, all };
  };
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/gu, "\\$&");

const tokenOf = (self, piece, start, stop) => ({ piece, id: self.numbers.get(piece), start, stop });

// Appends tokens until there are more than `most`; false if the text continues.
function addText(self, text, most, found) {
  let from = 0;
  for (const match of self.special ? text.matchAll(self.special) : []) {
    if (!addWords(self, text, from, match.index, most, found)) return false;
    from = match.index + match[0].length;
    found.push(tokenOf(self, match[0], match.index, from));
  }
  return addWords(self, text, from, text.length, most, found) && found.length <= most;
}

// Words are cut as their characters arrive, so that only the necessary part of a long text is read.
function addWords(self, text, start, stop, most, found) {
  let word = [];
  const close = () => {
    if (word.length) addPieces(self, word, found);
    word = [];
  };
  for (let at = start; at < stop; ) {
    const letter = String.fromCodePoint(text.codePointAt(at));
    const next = at + letter.length;
    for (const each of normalized(self, letter)) {
      const code = each.codePointAt(0);
      if (isSpace(code)) close();
      else if (isPunctuation(code) || (self.chinese && isChinese(code))) {
        close();
        addPieces(self, [{ letter: each, start: at, stop: next }], found);
      } else word.push({ letter: each, start: at, stop: next });
    }
    at = next;
    if (found.length > most) return false;
    if (word.length > LONGEST + 1) word.length = LONGEST + 1, (word.at(-1).stop = next); // unknown, however long it gets
  }
  close();
  return true;
}

// The replacement of a character: none, itself, or several.
function normalized(self, letter) {
  const code = letter.codePointAt(0);
  if (isSpace(code)) return " ";
  if (isRemoved(code)) return "";
  let letters = letter;
  if (self.accents) letters = Array.from(letter.normalize("NFD")).filter((each) => !isMark(each.codePointAt(0))).join("");
  return self.lowercase ? Array.from(letters, (each) => each.toLowerCase()).join("") : letters;
}

function addPieces(self, word, found) {
  const [start, stop] = [word[0].start, word.at(-1).stop];
  const unknown = () => found.push(tokenOf(self, self.unknown, start, stop));
  if (word.length > LONGEST) return unknown();
  const before = found.length;
  for (let from = 0; from < word.length; ) {
    let to = word.length;
    let piece = "";
    for (; to > from; to--) {
      piece = (from ? "##" : "") + word.slice(from, to).map(({ letter }) => letter).join("");
      if (self.numbers.has(piece)) break;
    }
    if (to === from) {
      found.length = before;
      return unknown();
    }
    found.push(tokenOf(self, piece, word[from].start, word[to - 1].stop));
    from = to;
  }
}
