// Tokens and weights as readable text. The contents of tokens reach the page only as text.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Cn}\p{Zl}\p{Zp}]/gu;

// Control characters become their pictures, lone surrogates and bidi controls a mark, so that a token cannot reverse its line.
export function visible(text) {
  const blank = !text || /^\s*$/.test(text);
  const marked = (blank ? text.replaceAll(" ", "␣") : text).replace(HIDDEN, (letter) => {
    const code = letter.codePointAt(0);
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    if (code === 127) return "␡";
    return code === 0x200c || code === 0x200d ? letter : "\ufffd";
  });
  return marked || "∅";
}

// At most `maximum` letters, the last one an ellipsis if the text is longer; a letter is never cut in two.
export function shorten(text, maximum) {
  if (text.length <= maximum) return text;
  const letters = [];
  for (const letter of text) {
    if (letters.length >= maximum) break;
    letters.push(letter);
  }
  return letters.join("").length < text.length ? `${letters.slice(0, maximum - 1).join("")}…` : text;
}

// A token as a label: visible, short, with its text direction isolated from other labels of a canvas.
export function label(text, maximum = 24) {
  return shorten(visible(text.length > 4 * maximum ? text.slice(0, 4 * maximum) : text), maximum);
}

// A token's label by its position; repeated tokens are numbered: the:1, the:2.
export function numberedLabels(tokens, maximum = 18) {
  const occurrence = (i) => { let count = 1; for (let j = 0; j < i; j++) if (tokens[j] === tokens[i]) count += 1; return count; };
  const again = (i) => tokens.indexOf(tokens[i]) !== i || tokens.indexOf(tokens[i], i + 1) >= 0;
  return (i) => (again(i) ? `${label(tokens[i], maximum)}:${occurrence(i)}` : label(tokens[i], maximum));
}

// The tooltip of a token: its number, the tokenizer's spelling, and whether it is a special token.
export function titleOf(tokens, i) {
  const known = tokens.tokenizer;
  if (!known) return `token ${i}: ${label(tokens[i], 400)}`;
  const said = unknownAt(tokens, i) ? `which the vocabulary lacks: the model reads ${label(known.pieces[i], 40)}` : known.special[i] ? "special token" : `piece ${label(known.pieces[i], 200)}`;
  return `token ${i}: ${label(tokens[i], 400)}, ${said}`;
}

// Whether the model read the mark for unknown words instead of this word.
export const unknownAt = (tokens, i) => /^(\[UNK\]|<unk>|<\|unk\|>|⁇)$/iu.test(tokens.tokenizer?.pieces[i] ?? tokens[i]);

export const isolated = (text) => `\u2068${text}\u2069`;

// A weight in four significant digits; NaN as such.
export function weightText(weight) {
  if (weight === null || weight === undefined) return "unknown";
  if (Number.isNaN(weight)) return "not a number";
  if (weight === 0) return "0";
  const size = Math.abs(weight);
  return (size >= 0.001 ? weight.toFixed(size >= 0.1 ? 4 : 5) : weight.toExponential(2)).replaceAll("-", "−");
}

export const grouped = (count) => Math.round(count).toLocaleString("en-US").replaceAll(",", "\u202f");
