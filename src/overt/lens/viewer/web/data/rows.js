// What the chosen token attends to, or is attended by: one row or one column of a head's weights, exact where query and key are
// there, else as far as the kept strongest links tell.
import { shareOf } from "./colours.js";
import { weightsColumn, weightsRow } from "./exact.js";

const LOOKS = new WeakMap(); // the last few of each head: every panel asks for the same one

// { weights, whole, side, token }: one weight for each key (side "query") or each query (side "key"). `whole` is false where only
// the strongest links of each query were kept, so that a weight of 0 may stand for one that is not known.
export function lookOf(head, side, token) {
  const known = LOOKS.get(head) ?? LOOKS.set(head, []).get(head);
  let found = known.find((each) => each.side === side && each.token === token);
  if (!found) {
    found = { side, token, ...(head.terms ? exactLook(head, side, token) : keptLook(head, side, token)) };
    known.unshift(found);
    known.length = Math.min(known.length, 4);
  }
  return found;
}

function exactLook(head, side, token) {
  return { weights: side === "query" ? weightsRow(head.terms, token) : weightsColumn(head.terms, token), whole: true };
}

function keptLook(head, side, token) {
  const weights = new Float32Array(side === "query" ? head.keyCount : head.queryCount);
  const { top } = head;
  if (!top) return { weights, whole: false };
  const [from, to] = side === "query" ? [token * top.width, (token + 1) * top.width] : [0, top.keys.length];
  for (let place = from; place < to; place++) {
    const key = top.keys[place];
    if (side === "query" && key >= 0) weights[key] = top.weights[place];
    else if (side === "key" && key === token) weights[Math.floor(place / top.width)] = top.weights[place];
  }
  return { weights, whole: false };
}

// The places of the largest weights by size, largest first, at most `count` of them; zeros and what is not a number are left out.
export function strongestOf(weights, count) {
  const found = [];
  const size = (place) => Math.abs(weights[place]);
  for (let place = 0; place < weights.length; place++) {
    if (!(size(place) > 0) || (found.length === count && !(size(place) > size(found[count - 1])))) continue;
    let at = found.length;
    while (at > 0 && size(place) > size(found[at - 1])) at--;
    found.splice(at, 0, place);
    found.length = Math.min(found.length, count);
  }
  return found;
}

// How many keys a query may attend to.
export function allowedCount(head, query) {
  if (!head.terms) return head.keyCount;
  const { mask } = head.terms;
  if (mask.kind === "none") return head.keyCount;
  if (mask.kind === "causal") return Math.max(0, Math.min(head.keyCount, query + mask.offset + 1));
  if (mask.kind === "ranges") {
    const place = mask.starts.length === 1 ? 0 : query;
    return Math.max(0, mask.stops[place] - mask.starts[place]);
  }
  let count = 0;
  for (let place = query * head.keyCount; place < (query + 1) * head.keyCount; place++) count += (mask.bits[place >> 3] >> (place & 7)) & 1;
  return count;
}

// The share of the full tone that a weight gets, 0 to 1. Linear: below a half tones stay pale, so that a row that looks everywhere does
// not look sure. Logarithmic: as on the head's map.
export function toneOf(weight, most, scale) {
  const size = Math.abs(weight);
  if (!(size > 0)) return 0;
  return scale.colour === "log" ? shareOf(size, scale) : Math.min(1, size / Math.max(0.5, most));
}

// How a text's tokens stand beside each other: where a mark begins a word (BPE, SentencePiece), where one continues it (WordPiece).
export function joinerOf(tokens) {
  const some = tokens.length > 4096 ? tokens.slice(0, 4096) : tokens;
  const begins = some.some((token) => token.startsWith("Ġ") || token.startsWith("▁"));
  return (token, first) => {
    const marked = /^[Ġ▁]/u.test(token);
    if (begins) return { space: marked && !first, text: marked ? token.slice(1) : token, ends: /[Ċ\n]$/u.test(token) };
    const goes = token.startsWith("##") && token.length > 2;
    return { space: !goes && !first, text: goes ? token.slice(2) : token, ends: token.endsWith("\n") };
  };
}
