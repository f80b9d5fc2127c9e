import { callOf } from "./attention.js";
import { lookUp } from "./weights.js";

// A BERT encoder (Devlin et al. 2019) in the core: embeddings, then in each layer attention and two linear maps, each added to what came in
// and normalised. `seen(layer, state)` is called behind each layer, while the core still holds its queries, keys, values and vectors.

export function createEncoder(core, weights, { layers, heads, width, inner, epsilon }) {
  const linear = (name, from, rows, among, columns, to) => core.product(from, rows, among, weights.at(`${name}.weight`), weights.at(`${name}.bias`), columns, to);
  const norm = (name, rows, at) => core.layer_norm(at, rows, width, weights.at(`${name}.gain`), weights.at(`${name}.bias`), epsilon, at);
  const embed = (ids, to) => {
    const [numbers, positions] = [ids, ids.map((_, i) => i)].map((each) => core.put(Int32Array.from(each)));
    lookUp(core, weights.tensor("words"), numbers, ids.length, to);
    lookUp(core, weights.tensor("positions"), positions, ids.length, to, true);
    norm("embedding", ids.length, to);
  };
  return (ids, seen) => {
    const count = ids.length;
    const before = core.allocate(0);
    const [x, entered, between, mixed, vectors, wide] = [1, 1, 1, 1, 3, inner / width].map((times) => core.room(count * width * times));
    embed(ids, x);
    const call = callOf(core, { query: vectors, key: vectors + 4 * width, value: vectors + 8 * width, queries: count, keys: count, heads, headDim: width / heads, row: 3 * width });
    for (let layer = 0; layer < layers; layer++) {
      core.floats(entered, count * width).set(core.floats(x, count * width));
      linear(`${layer}.vectors`, x, count, width, 3 * width, vectors);
      core.attend(call, mixed);
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
