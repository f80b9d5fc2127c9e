// The chosen token's weights: one row or one column of a head, exact if query and key are stored, else from the stored strongest
// links.
import { shareOf } from "../map/colour_scale.js";
import { allowedAt, runOf, weightsColumn, weightsRow } from "./exact.js";

const CACHE = new WeakMap(); // CACHE: the last few rows of each head, which all panels share

// { weights, whole, side, token }: one weight for each key (side "query") or each query (side "key"). `whole` is false if only
// the strongest links of each query are stored, so a weight of 0 may be unknown.
export function weightsOf(head, side, token) {
  const known = CACHE.get(head) ?? CACHE.set(head, []).get(head);
  let result = known.find((each) => each.side === side && each.token === token);
  if (!result) {
    result = { side, token, ...(head.terms ? exactWeights(head, side, token) : recordedWeights(head, side, token)) };
    known.unshift(result);
    known.length = Math.min(known.length, 4);
  }
  return result;
}

function exactWeights(head, side, token) {
  return { weights: side === "query" ? weightsRow(head.terms, token) : weightsColumn(head.terms, token), whole: true };
}

function recordedWeights(head, side, token) {
  const weights = new Float32Array(side === "query" ? head.keyCount : head.queryCount);
  const { top } = head;
  if (!top) return { weights, whole: false };
  const [from, to] = side === "query" ? [token * top.width, (token + 1) * top.width] : [0, top.keys.length];
  for (let position = from; position < to; position++) {
    const key = top.keys[position];
    if (side === "query" && key >= 0) weights[key] = top.weights[position];
    else if (side === "key" && key === token) weights[Math.floor(position / top.width)] = top.weights[position];
  }
  return { weights, whole: false };
}

// The indices of the `count` largest weights by size, largest first, without zeros and NaN.
export function strongestOf(weights, count) {
  const result = [];
  const size = (position) => Math.abs(weights[position]);
  for (let position = 0; position < weights.length; position++) {
    if (!(size(position) > 0) || (result.length === count && !(size(position) > size(result[count - 1])))) continue;
    let at = result.length;
    while (at > 0 && size(position) > size(result[at - 1])) at--;
    result.splice(at, 0, position);
    result.length = Math.min(result.length, count);
  }
  return result;
}

// The number of keys that a query may attend to.
export function allowedCount(head, query) {
  const run = head.terms ? runOf(head.terms, query) : [0, head.keyCount];
  if (run) return Math.max(0, run[1] - run[0]);
  return Array.from({ length: head.keyCount }, (_, j) => Number(allowedAt(head.terms, query, j))).reduce((sum, each) => sum + each, 0);
}

// The share of the full tone for a weight, 0 to 1. Linear: tones below a half are pale, so that a row of spread weights does not look
// certain. Logarithmic: as on the head's map.
export function toneOf(weight, maximum, scale) {
  const size = Math.abs(weight);
  if (!(size > 0)) return 0;
  return scale.colour === "log" ? shareOf(size, scale) : Math.min(1, size / (scale.signed ? maximum : Math.max(0.5, maximum)));
}

// How a text's tokens are joined: a mark begins a word (BPE, SentencePiece) or continues it (WordPiece).
export function joinerOf(tokens) {
  if (tokens.tokenizer) {
    const { spaced, special } = tokens.tokenizer;
    return (token, first, i) => ({ space: !first && Boolean(spaced[i] || special[i - 1]), text: token, ends: /\n$/u.test(token) });
  }
  const some = tokens.length > 4096 ? tokens.slice(0, 4096) : tokens;
  const begins = some.some((token) => token.startsWith("Ġ") || token.startsWith("▁"));
  return (token, first) => {
    const marked = /^[Ġ▁]/u.test(token);
    if (begins) return { space: marked && !first, text: marked ? token.slice(1) : token, ends: /[Ċ\n]$/u.test(token) };
    const goes = token.startsWith("##") && token.length > 2;
    return { space: !goes && !first, text: goes ? token.slice(2) : token, ends: token.endsWith("\n") };
  };
}
