// Compares two translations: the words of both, in order.
import { make } from "../../../drawing/web/elements.js";

export const wordsOf = (text) => text.split(/\s+/u).filter(Boolean);

export function lineOf(words, kept, name) {
  const same = new Set(kept);
  return make("p", { className: "translation", attributes: { dir: "auto", "data-translation": name } }, ...words.flatMap((word, i) => [make(same.has(i) ? "bdi" : "mark", { text: word }), " "]));
}

// The longest common subsequence of two lists of words, as pairs of indices.
export function commonOf(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const pairs = [];
  for (let [i, j] = [0, 0]; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return pairs;
}
