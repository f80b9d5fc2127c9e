import { checkedCuts, NONE, rowWithout, withoutOf } from "../cuts.js";
import { placeOf, scaleOf } from "../encoder.js";
import { lookUp } from "../weights.js";

// Runs a modified model on a text: its result, and one row of one head's weights.

// A question is { text, changes, order, at, edit }: `changes` as encoder.js has them, `order` puts the tokens in another order, `at` is { layer, head, row }
// of the weights that are wanted, null for none; `edit` are cuts as cuts.js has them. `states` are the last layer's vectors, `mean` is their mean: the sentence's vector.
export function createChanged(core, { layers, heads, width, limit }, tokenize, run) {
  return ({ text, changes, order, at, edit: asked = NONE }) => {
    const { ids, pieces } = tokenize(text, limit);
    if (ids.length === 2) return { sentence: "There is no word in this text." };
    const edit = checkedCuts(asked, ids.length, ids.length, pieces, changes.causal);
    if (edit.sentence) return edit;
    const dim = width / heads;
    let [states, weights] = [null, null];
    run(order ? order.map((i) => ids[i]) : ids, (layer, { vectors, left, count }) => {
      const place = { ...placeOf({ vectors, width, heads, count }), scale: scaleOf(dim, changes), causal: changes.causal };
      if (layer === at?.layer) ({ weights } = rowWithout(core, place, at.head, at.row, withoutOf(edit, layer, at.head).get(at.row)));
      if (layer === layers - 1) states = core.floats(left, count * width).slice();
    }, { ...changes, edit });
    return { states, weights, width, mean: meanOf(states, width) };
  };
}

// The vectors of a text's tokens in the model's word table: { vectors, width }.
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
