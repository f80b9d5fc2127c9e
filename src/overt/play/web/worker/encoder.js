import { callOf } from "./attention.js";
import { applyCuts, NONE } from "./cuts.js";
import { lookUp } from "./weights.js";

// A BERT encoder (Devlin et al. 2019) in the core: embeddings, then in each layer attention and two linear maps, each added to what came in
// and normalised. `seen(layer, state)` is called behind each layer, while the core still holds its queries, keys, values and vectors.

// What lessons change: `off` are heads [layer, head] whose output is zero, scores are divided by the softmax's `temperature`, and by √d where `divided`;
// `causal` lets no token attend to later ones; where not `placed`, all tokens have the first position; `edit` are weights that are cut, as cuts.js has them.
export const UNCHANGED = { off: [], temperature: 1, causal: false, divided: true, placed: true };

// The addresses of a layer's queries, keys and values, for cuts.js.
export const placeOf = ({ vectors, width, heads, count }) => ({ query: vectors, queryStep: 3 * width, key: vectors + 4 * width, value: vectors + 8 * width, step: 3 * width, count, dim: width / heads });

// The factor of scores.
export const scaleOf = (dim, { divided, temperature }) => 1 / ((divided ? Math.sqrt(dim) : 1) * temperature);

export function createEncoder(core, weights, { layers, heads, width, inner, epsilon }) {
  const linear = (name, from, rows, among, columns, to) => core.product(from, rows, among, weights.at(`${name}.weight`), weights.at(`${name}.bias`), columns, to);
  const norm = (name, rows, at) => core.layer_norm(at, rows, width, weights.at(`${name}.gain`), weights.at(`${name}.bias`), epsilon, at);
  const embed = (ids, to, placed) => {
    const [numbers, positions] = [ids, ids.map((_, i) => (placed ? i : 0))].map((each) => core.put(Int32Array.from(each)));
    lookUp(core, weights.tensor("words"), numbers, ids.length, to);
    lookUp(core, weights.tensor("positions"), positions, ids.length, to, true);
    norm("embedding", ids.length, to);
  };
  return (ids, seen, { off, temperature, causal, divided, placed, edit = NONE } = UNCHANGED) => {
    const count = ids.length;
    const before = core.allocate(0);
    const [x, entered, between, mixed, vectors, wide] = [1, 1, 1, 1, 3, inner / width].map((times) => core.room(count * width * times));
    embed(ids, x, placed);
    const headDim = width / heads;
    const scale = scaleOf(headDim, { divided, temperature });
    const call = callOf(core, { query: vectors, key: vectors + 4 * width, value: vectors + 8 * width, queries: count, keys: count, heads, headDim, row: 3 * width, causal, scale });
    for (let layer = 0; layer < layers; layer++) {
      core.floats(entered, count * width).set(core.floats(x, count * width));
      linear(`${layer}.vectors`, x, count, width, 3 * width, vectors);
      core.attend(call, mixed);
      applyCuts(core, { ...placeOf({ vectors, width, heads, count }), scale, causal }, edit, layer, mixed, { rows: count, heads });
      for (const [, head] of off.filter(([of]) => of === layer)) for (let i = 0; i < count; i++) core.floats(mixed + 4 * (i * width + head * headDim), headDim).fill(0);
      linear(`${layer}.output`, mixed, count, width, width, between);
      core.add(x, count * width, between);
      norm(`${layer}.attention`, count, between);
      linear(`${layer}.inner`, between, count, width, inner, wide);
      core.gelu(wide, count * inner);
      linear(`${layer}.outer`, wide, count, inner, width, x);
      core.add(between, count * width, x);
      norm(`${layer}.layer`, count, x);
      seen(layer, { call, entered, vectors, mixed, left: x, count });
    }
    core.release(before);
  };
}
