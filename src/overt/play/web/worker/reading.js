import { headOf, statisticsOf, headWeights } from "./attention.js";
import { attentionOf, layerOf } from "./recompute.js";
import { patternsOf, roleOf } from "./roles.js";

// From a text to what the page shows of it: the header of a recording, as lens/viewer/packing.py makes one, with its arrays in place.

const SIDE = 48; // cells a side of a head's small map

export function createReading(core, weights, shape, tokenize, run) {
  return (text, number) => {
    const start = performance.now();
    const tokens = tokenize(text, shape.limit);
    if (tokens.ids.length === 2) return { sentence: "Type a sentence: there is no word in this text." };
    const words = wordsOf(text, tokens);
    const [row, checked] = [number % tokens.ids.length, number % shape.layers];
    const [calls, heads, patterns] = [[], [], patternsOf({ ids: tokens.ids, words, special: tokens.special })];
    let [time, check, since] = [0, null, performance.now()];
    run(tokens.ids, (layer, state) => {
      time += performance.now() - since;
      calls.push(callOf(shape, layer, state.count, attentionOf(core, shape, row, state)));
      heads.push(...entriesOf(core, weights, shape, layer, state, patterns));
      if (layer === checked) check = { row, word: words[row], number: layer, ...layerOf(core, weights, shape, layer, row, state) };
      since = performance.now();
    });
    const spaced = spacedOf(text, tokens);
    return {
      header: { words: [words], tokenized: [{ pieces: tokens.pieces, special: tokens.special, spaced }], calls, heads, verified: verifiedOf(calls) },
      check, count: tokens.ids.length, all: tokens.all, time: time + performance.now() - since, whole: performance.now() - start,
    };
  };
}

const callOf = ({ heads, name }, layer, count, { difference, bound }) => ({
  number: layer, layer: name.replace("#", layer), pass: 0, source: "the attention kernel of overt's core, in WebAssembly", total: heads, queries: count, keys: count, notes: [],
  residual: difference, bound, holds: difference <= bound, note: "", mixer: null, around: [],
});

const verifiedOf = (calls) => ({ difference: Math.max(...calls.map((each) => each.residual)), bound: Math.max(...calls.map((each) => each.bound)), holds: calls.every((each) => each.holds) });

function entriesOf(core, weights, { heads, width }, layer, { call, vectors, count }, patterns) {
  const dim = width / heads;
  const norms = core.room(heads * count);
  core.output_norms(vectors + 8 * width, count, 3 * width, heads, dim, weights.at(`${layer}.output.weight`), width, norms);
  const outNorms = core.floats(norms, heads * count).slice();
  core.release(norms);
  const statistics = statisticsOf(core, call, { queries: count, keys: count, heads }, SIDE);
  return statistics.map((each, head) => {
    const [query, key, value] = [0, 1, 2].map((part) => headOf(core, vectors + 4 * part * width, count, 3 * width, head, dim));
    const scale = 1 / Math.sqrt(dim);
    return {
      call: layer, head, batch: 0, queries: 0, keys: 0, ...roleOf(patterns, headWeights(core, call, head, each, count), each), ...each, query, key, value,
      valueWidth: dim, normalizer: "softmax", score: { kind: "dot", scale, softcap: null }, bias: { kind: "none" }, mask: { kind: "none" },
      temperature: 1, sink: null, recipe: "qkv", outNorm: outNorms.slice(head * count, (head + 1) * count),
    };
  });
}

// Each token as the text has it, in lower case where the model reads it so; the piece itself where it is none of the text.
function wordsOf(text, { pieces, spans }) {
  const folded = (word) => word.toUpperCase().toLowerCase();
  return pieces.map((piece, i) => {
    const written = text.slice(...spans[i]).trim();
    const letters = piece.startsWith("##") ? piece.slice(2) : piece;
    return !written ? piece : folded(letters) === folded(written) ? letters : written;
  });
}

// Before which tokens a space stands: special tokens stand apart.
function spacedOf(text, { spans, special }) {
  let before = 0;
  return spans.map(([start, stop], i) => {
    const gap = text.slice(before, start) + text.slice(start, stop).slice(0, 1);
    before = Math.max(before, stop);
    return Number(Boolean(special[i]) || (i > 0 && /\s/u.test(gap)));
  });
}
