// Which word is chosen in a sentence that changed: the one that the reader wanted, wherever it stands, else a word with a strong link.
import { contentToken } from "../../../lens/viewer/web/data/content.js";

const wordsOf = (head, side) => (side === "query" ? head.queries : head.keys);

// Follows what the reader chooses; what the page itself chooses is nobody's wish. `choose(head, side)` gives a token of the head's text.
export function createWish(recording, store) {
  let wish = null;
  const note = () => {
    const { head, side, token } = store.get();
    wish = { words: wordsOf(recording.heads[head], side), token };
  };
  note();
  store.subscribe((_, changed) => !changed.has("recording") && (changed.has("token") || changed.has("side")) && note());
  return {
    note,
    want: (word) => (wish = { words: [word], token: 0 }),
    choose: (head, side) => placeOf(wish, wordsOf(head, side)) ?? contentToken(head, side),
  };
}

function placeOf({ words, token }, after) {
  const at = placeIn(words, after, token);
  if (after[at] === words[token]) return at;
  const same = placesOf(after, words[token]);
  return same.length ? nearest(same, token) : null;
}

const placesOf = (words, word) => words.flatMap((each, i) => (each === word ? [i] : []));
const nearest = (places, token) => places.reduce((best, i) => (Math.abs(i - token) < Math.abs(best - token) ? i : best));

// Where a token stands in the changed sentence: the same place before what changed, as far from the end behind it; within it the nearest word that
// is the same.
export function placeIn(before, after, token) {
  let [start, end] = [0, 0];
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start++;
  while (end < most - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  if (token < start) return token;
  if (token >= before.length - end) return token + after.length - before.length;
  const same = placesOf(after, before[token]);
  return same.length ? nearest(same, token) : Math.min(token, after.length - 1);
}
