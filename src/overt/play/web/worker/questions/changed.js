import { lookUp } from "../weights.js";

// A text through the model with something of it changed: what comes out, and one row of one head's weights.

// A question is { text, changes, order, at }: `changes` as encoder.js has them, `order` puts the tokens in another order, `at` is { layer, head, row }
// of the weights that are wanted, null for none. `states` are the last layer's vectors, `mean` is their mean: the sentence's vector.
export function createChanged(core, { layers, heads, width, limit }, tokenize, run) {
  return ({ text, changes, order, at }) => {
    const { ids } = tokenize(text, limit);
    if (ids.length === 2) return { sentence: "There is no word in this text." };
    let [states, weights] = [null, null];
    run(order ? order.map((i) => ids[i]) : ids, (layer, { vectors, left, count }) => {
      if (layer === at?.layer) weights = weightsOf(core.floats(vectors, 3 * width * count), { dim: width / heads, width, count }, at, changes);
      if (layer === layers - 1) states = core.floats(left, count * width).slice();
    }, changes);
    return { states, weights, width, mean: meanOf(states, width) };
  };
}

// The vectors of a text's tokens in the model's table of words: { vectors, width }.
export const createWordVectors = (core, weights, { width, limit }, tokenize) => ({ text }) => {
  const { ids } = tokenize(text, limit);
  if (ids.length === 2) return { sentence: "There is no word in this text." };
  const before = core.allocate(0);
  const [numbers, to] = [core.put(Int32Array.from(ids)), core.room(ids.length * width)];
  lookUp(core, weights.tensor("words"), numbers, ids.length, to);
  const vectors = core.floats(to, ids.length * width).slice();
  core.release(before);
  return { vectors, width };
};

function meanOf(states, width) {
  const [mean, count] = [new Float64Array(width), states.length / width];
  for (let i = 0; i < states.length; i++) mean[i % width] += states[i] / count;
  return mean;
}

function weightsOf(vectors, { dim, width, count }, { head, row }, { temperature, causal, divided }) {
  const scores = Array.from({ length: causal ? row + 1 : count }, (_, j) => {
    let score = 0;
    for (let d = head * dim; d < (head + 1) * dim; d++) score += vectors[3 * row * width + d] * vectors[(3 * j + 1) * width + d];
    return score / ((divided ? Math.sqrt(dim) : 1) * temperature);
  });
  const largest = Math.max(...scores);
  const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
  return Float64Array.from({ length: count }, (_, j) => (j < scores.length ? Math.exp(scores[j] - largest) / total : 0));
}
