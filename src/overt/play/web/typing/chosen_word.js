// The chosen word in a changed sentence: the reader's choice, at its new position, else a word with a strong link.
import { leadOf } from "../../../lens/viewer/web/data/content.js";

const wordsOf = (head, side) => (side === "query" ? head.queries : head.keys);

// Follows what the reader chooses; a choice of the page itself is nobody's wish. `tokenIn(head, side)` is the token of the head's text, null where the
// word is missing; `head` is true if the reader chose the head.
export function createWish(recording, store) {
  const self = { head: "head" in store.said() || Boolean(store.said().wanted?.head), note, want: (word) => (wish = { words: [word], token: 0 }), tokenIn: (head, side) => placeOf(wish, wordsOf(head, side)) };
  let wish = null;
  function note() {
    const { head, side, token } = store.get();
    wish = { words: wordsOf(recording.heads[head], side), token };
  }
  note();
  store.subscribe((_, changed) => {
    if (changed.has("recording")) return;
    if (changed.has("token") || changed.has("side")) note();
    if (changed.has("head")) self.head = true;
  });
  return self;
}

// The head itself, if a word of it leads to another word; else the one of its layer, or of the last layer that has any, in which a word does so most.
export function leadingHead({ heads }, index, side) {
  if (leadOf(heads[index], side)) return index;
  const rank = ({ number }) => (number === heads[index].number ? heads.length : number);
  const leads = heads.map((head) => [rank(head), leadOf(head, side)?.weight ?? 0, head.index]).filter(([, weight]) => weight > 0);
  return leads.sort((a, b) => b[0] - a[0] || b[1] - a[1])[0]?.[2] ?? index;
}

function placeOf({ words, token }, after) {
  const at = placeIn(words, after, token);
  if (after[at] === words[token]) return at;
  const same = placesOf(after, words[token]);
  return same.length ? nearest(same, token) : null;
}

const placesOf = (words, word) => words.flatMap((each, i) => (each === word ? [i] : []));
const nearest = (places, token) => places.reduce((best, i) => (Math.abs(i - token) < Math.abs(best - token) ? i : best));

// The position of a token in the changed sentence: the same place before what changed, as far from the end behind it; within it the nearest word that
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
