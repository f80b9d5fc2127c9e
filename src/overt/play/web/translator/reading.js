import { headOf, statisticsOf, headWeights } from "../worker/attention.js";
import { differenceOf, mixedRow } from "../worker/recompute.js";
import { cutEntry, rowWithout, uncutRow, withoutOf } from "../worker/cuts.js";
import { patternsOf, roleOf } from "../worker/roles.js";
import { START } from "./search.js";
import { placeOf } from "./transformer.js";

// From a source and what was written to what the page shows: the decoder's attention to the source, when it scores its text in one pass, as the header
// of a recording. Row t wrote token t.

const SIDE = 48; // cells a side of a head's small map

// `source` and `target` are { ids, words, pieces, spaced }, each with its end.
export function createReading(core, weights, shape, model) {
  return (memory, source, target, number) => {
    const { edit } = memory.self;
    const [calls, heads, coverage, checked] = [[], [], [], uncutRow(edit, number % target.ids.length, target.ids.length) ?? 0];
    const patterns = { plain: separatorsOf(source), repeated: [] };
    model.forced(memory, [START, ...target.ids.slice(0, -1)], (layer, state) => {
      calls.push(callOf(core, shape, layer, checked, state));
      for (const { entry, covers } of entriesOf(core, weights, shape, layer, state, patterns)) {
        heads.push(entry);
        coverage.push(covers);
      }
    });
    const tokenized = [target, source].map((each) => ({ pieces: each.pieces, special: specialOf(each), spaced: each.spaced }));
    return { words: [target.words, source.words], tokenized, calls, heads, verified: verifiedOf(calls), start: coverage.indexOf(Math.max(...coverage)) };
  };
}

// The separators of the source. Other patterns need queries and keys from one text.
const separatorsOf = (source) => patternsOf({ ...source, special: specialOf(source) }).plain.filter(({ keys }) => keys);

const specialOf = ({ ids }) => ids.map((_, i) => Number(i === ids.length - 1));

function callOf(core, { heads, width }, layer, row, { query, keys, mixed, rows, count }) {
  const vectors = { query: core.floats(query + 4 * row * width, width), rows: core.floats(keys, 2 * count * width), step: 2 * width, key: 0, value: width };
  const { output, bound } = mixedRow(vectors, width, width / heads, count);
  const residual = differenceOf(output, core.floats(mixed + 4 * row * width, width));
  return {
    number: layer, layer: `decoder.layers.${layer}.cross_attention`, pass: 0, source: "the attention kernel of overt's core, in WebAssembly", total: heads,
    queries: rows, keys: count, notes: [], residual, bound, holds: residual <= bound, note: "", mixer: null, around: [],
  };
}

const verifiedOf = (calls) => ({ difference: Math.max(...calls.map((each) => each.residual)), bound: Math.max(...calls.map((each) => each.bound)), holds: calls.every((each) => each.holds) });

function entriesOf(core, weights, { heads, width }, layer, { call, query, keys, rows, count, edit }, patterns) {
  const [dim, scale, value] = [width / heads, 1 / Math.sqrt(width / heads), keys + 4 * width];
  const norms = core.room(heads * count);
  core.output_norms(value, count, 2 * width, heads, dim, weights.at(`decoder.${layer}.mixed.weight`), width, norms);
  const outNorms = core.floats(norms, heads * count).slice();
  core.release(norms);
  const statistics = statisticsOf(core, call, { queries: rows, keys: count, heads }, SIDE);
  return statistics.map((each, head) => {
    const vectors = { query: headOf(core, query, rows, width, head, dim), key: headOf(core, keys, count, 2 * width, head, dim), value: headOf(core, value, count, 2 * width, head, dim) };
    const rowsOfWeights = headWeights(core, call, head, each, count);
    const cut = cutEntry(core, placeOf({ width, heads }, { query, keys, count }), head, edit, layer, rowsOfWeights, each);
    const entry = {
      call: layer, head, batch: 0, queries: 0, keys: 1, ...roleOf(patterns, rowsOfWeights, cut), ...cut, ...vectors,
      valueWidth: dim, normalizer: "softmax", score: { kind: "dot", scale, softcap: null }, bias: { kind: "none" },
      temperature: 1, sink: null, recipe: "qkv", outNorm: outNorms.slice(head * count, (head + 1) * count),
    };
    return { entry, covers: coverageOf(rowsOfWeights, rows, count) };
  });
}

// Each head's weights on the source in a cross-attention, for one row of a step.
export const crossWeights = (core, shape, layer, { query, keys, count, edit }) =>
  Array.from({ length: shape.heads }, (_, head) => Float32Array.from(rowWithout(core, placeOf(shape, { query, keys, count }), head, 0, withoutOf(edit, layer, head).get(0)).weights));

// The coverage of the source by a head: Σ_j max_i w_ij, without start and end. The page begins with the head of largest coverage.
function coverageOf(weights, rows, count) {
  let sum = 0;
  for (let j = 0; j < count - 1; j++) {
    let largest = 0;
    for (let i = 0; i < rows - 1; i++) largest = Math.max(largest, weights[i * count + j]);
    sum += largest;
  }
  return sum;
}
