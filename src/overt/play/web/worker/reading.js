import { headOf, statisticsOf, headWeights } from "./attention.js";
import { checkedCuts, cutEntry, namesOf, NONE, rowWithout, uncutRow } from "./cuts.js";
import { placeOf, UNCHANGED } from "./encoder.js";
import { attentionOf, layerOf } from "./recompute.js";
import { patternsOf, roleOf } from "./roles.js";

// From a text to the page's data: the header of a recording, in the form of lens/viewer/packing.py, with its arrays.

const SIDE = 48; // cells a side of a head's small map

export function createReading(core, weights, shape, tokenize, run) {
  return (text, number, asked = NONE) => {
    const start = performance.now();
    const tokens = tokenize(text, shape.limit);
    if (tokens.ids.length === 2) return { sentence: "Type a sentence: there is no word in this text." };
    const words = wordsOf(text, tokens);
    const edit = checkedCuts(asked, tokens.ids.length, tokens.ids.length, words);
    if (edit.sentence) return edit;
    const uncut = edit.cuts.length ? uncutOf(core, shape, run, tokens.ids, edit) : null;
    const [row, checked] = [uncutRow(edit, number % tokens.ids.length, tokens.ids.length) ?? 0, number % shape.layers];
    const [calls, heads, patterns] = [[], [], patternsOf({ ids: tokens.ids, words, special: tokens.special })];
    let [time, check, since] = [0, null, performance.now()];
    let cut = null;
    run(tokens.ids, (layer, state) => {
      time += performance.now() - since;
      calls.push(callOf(shape, layer, state.count, attentionOf(core, shape, row, state)));
      heads.push(...entriesOf(core, weights, shape, layer, state, patterns, edit));
      if (layer === checked) check = { row, word: words[row], number: layer, ...layerOf(core, weights, shape, layer, row, state) };
      if (uncut && layer === shape.layers - 1) cut = { before: uncut.before, names: namesOf(edit, words, words), ...movedOf(uncut.states, core.floats(state.left, state.count * shape.width), shape.width) };
      since = performance.now();
    }, { ...UNCHANGED, edit });
    const spaced = spacedOf(text, tokens);
    return {
      header: { words: [words], tokenized: [{ pieces: tokens.pieces, special: tokens.special, spaced }], calls, heads, verified: verifiedOf(calls) },
      check, cut, count: tokens.ids.length, all: tokens.all, time: time + performance.now() - since, whole: performance.now() - start,
    };
  };
}

// The unmodified model: the weights before the cuts, and the last layer's vectors.
function uncutOf(core, shape, run, ids, { cuts }) {
  const before = cuts.map(() => 0);
  let states = null;
  run(ids, (layer, { vectors, left, count }) => {
    cuts.forEach((cut, n) => {
      if (cut.layer === layer) before[n] = rowWithout(core, placeOf({ vectors, count, ...shape }), cut.head, cut.row).weights[cut.key];
    });
    if (layer === shape.layers - 1) states = core.floats(left, count * shape.width).slice();
  });
  return { before, states };
}

// How far each vector turned, 1 − cosine, and the mean of all.
function movedOf(before, after, width) {
  const turn = (a, b) => {
    let [product, left, right] = [0, 0, 0];
    for (let d = 0; d < width; d++) [product, left, right] = [product + a[d] * b[d], left + a[d] * a[d], right + b[d] * b[d]];
    return 1 - product / Math.sqrt(left * right);
  };
  const rowsOf = (states) => Array.from({ length: states.length / width }, (_, i) => states.subarray(i * width, (i + 1) * width));
  const meanOf = (rows) => Float64Array.from({ length: width }, (_, d) => rows.reduce((sum, row) => sum + row[d], 0));
  const [from, to] = [rowsOf(before), rowsOf(after)];
  return { turned: from.map((row, i) => turn(row, to[i])), sentence: turn(meanOf(from), meanOf(to)) };
}

const callOf = ({ heads, name }, layer, count, { difference, bound }) => ({
  number: layer, layer: name.replace("#", layer), pass: 0, source: "the attention kernel of overt's core, in WebAssembly", total: heads, queries: count, keys: count, notes: [],
  residual: difference, bound, holds: difference <= bound, note: "", mixer: null, around: [],
});

const verifiedOf = (calls) => ({ difference: Math.max(...calls.map((each) => each.residual)), bound: Math.max(...calls.map((each) => each.bound)), holds: calls.every((each) => each.holds) });

function entriesOf(core, weights, { heads, width }, layer, { call, vectors, count }, patterns, edit) {
  const dim = width / heads;
  const norms = core.room(heads * count);
  core.output_norms(vectors + 8 * width, count, 3 * width, heads, dim, weights.at(`${layer}.output.weight`), width, norms);
  const outNorms = core.floats(norms, heads * count).slice();
  core.release(norms);
  const statistics = statisticsOf(core, call, { queries: count, keys: count, heads }, SIDE);
  return statistics.map((each, head) => {
    const [query, key, value] = [0, 1, 2].map((part) => headOf(core, vectors + 4 * part * width, count, 3 * width, head, dim));
    const scale = 1 / Math.sqrt(dim);
    const found = headWeights(core, call, head, each, count);
    const entry = cutEntry(core, placeOf({ vectors, width, heads, count }), head, edit, layer, found, each);
    return {
      call: layer, head, batch: 0, queries: 0, keys: 0, ...roleOf(patterns, found, entry), ...entry, query, key, value,
      valueWidth: dim, normalizer: "softmax", score: { kind: "dot", scale, softcap: null }, bias: { kind: "none" },
      temperature: 1, sink: null, recipe: "qkv", outNorm: outNorms.slice(head * count, (head + 1) * count),
    };
  });
}

// Each token in the text's spelling, in lower case if the model reads lower case; the piece itself if it is not in the text.
function wordsOf(text, { pieces, spans }) {
  const folded = (word) => word.toUpperCase().toLowerCase();
  return pieces.map((piece, i) => {
    const written = text.slice(...spans[i]).trim();
    const letters = piece.startsWith("##") ? piece.slice(2) : piece;
    return !written ? piece : folded(letters) === folded(written) ? letters : written;
  });
}

// The tokens that follow a space; special tokens always do.
function spacedOf(text, { spans, special }) {
  let before = 0;
  return spans.map(([start, stop], i) => {
    const gap = text.slice(before, start) + text.slice(start, stop).slice(0, 1);
    before = Math.max(before, stop);
    return Number(Boolean(special[i]) || (i > 0 && /\s/u.test(gap)));
  });
}
