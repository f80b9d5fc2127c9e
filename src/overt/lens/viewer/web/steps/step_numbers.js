// The six steps of one query of one head with their numbers, like Python's `head.steps(row)`, computed from the packed data.
import { allowedAt, biasOf, scoreOf, vectorAt, walkBack, weightsRow } from "../data/exact.js";

// { own, raw, scores, masked, weights, output, allowed }: one number per key, in the output one per feature. `raw` is before scale and
// softcap; `masked` has the bias added and is −∞ where masked. A head whose weights themselves are stored has no scores.
export function stepsOf(head, query) {
  const { terms } = head;
  const weights = weightsRow(terms, query);
  const output = sumOf(head, weights);
  const own = head.own(query);
  if (head.signed) return { weights, output, left: leftOf(terms, query), asking: (key) => askingOf(terms, query, key) };
  if (head.stored) return { weights, output };
  const count = head.keyCount;
  const [raw, scores, masked] = [new Float64Array(count), new Float64Array(count), new Float64Array(count).fill(-Infinity)];
  const [q, k] = [vectorAt(terms.query, query), new Float32Array(head.width)];
  const plain = terms.score.kind === "dot" ? { kind: "dot", scale: 1, softcap: null } : terms.score;
  let allowed = 0;
  for (let j = 0; j < count; j++) {
    vectorAt(terms.key, j, k);
    raw[j] = scoreOf(plain, q, k);
    scores[j] = scoreOf(terms.score, q, k);
    if (!allowedAt(terms, query, j)) continue;
    masked[j] = scores[j] + biasOf(terms, query, j);
    allowed += 1;
  }
  return { own, raw, scores, masked, weights, output, allowed };
}

// The product of the decays between each position and the row, as the mean over features; 0 for positions that the row does not read.
function leftOf(terms, query) {
  const { mixer, width, keyCount, queryCount } = terms;
  const [left, wide] = [new Float64Array(keyCount), mixer.decay?.width ?? 1];
  const factors = new Float64Array(wide).fill(1);
  for (let j = query + keyCount - queryCount - (mixer.before ? 1 : 0); j >= 0; j--) {
    left[j] = factors.reduce((sum, each) => sum + each, 0) / wide;
    if (mixer.decay) factors.forEach((each, d) => (factors[d] = each * mixer.decay.data[j * wide + d]));
  }
  return left;
}

// r when the walk back reaches a position; zeros if the row does not read the position.
function askingOf(terms, query, key) {
  let result = new Float64Array(terms.width);
  walkBack(terms, query, key, (j, _, asks) => {
    if (j === key && asks) result = asks.slice();
  });
  return result;
}

// Σ weights · value; null without packed values.
function sumOf(head, weights) {
  if (!head.value(0)) return null;
  const output = new Float64Array(head.valueWidth);
  for (let j = 0; j < weights.length; j++) {
    if (weights[j] === 0) continue;
    const value = head.value(j);
    for (let d = 0; d < output.length; d++) output[d] += weights[j] * value[d];
  }
  return output;
}

// The contribution of each dimension to the score of one pair, before scale and softcap.
export function byDimension(head, query, key) {
  const [q, k, { score }] = [head.query(query), head.key(key), head.terms];
  return q.map((value, d) => {
    if (score.kind === "gaussian") return (-(value - k[d]) * (value - k[d])) / (2 * score.bandwidth * score.bandwidth);
    if (score.kind === "additive") return scoreOf({ ...score, weight: [score.weight[d]] }, [value], [k[d]]);
    return value * k[d];
  });
}

// The steps between the score and the softmax of this head: [[name, sentence]…].
export function betweenOf(head) {
  if (head.stored || head.signed) return [];
  const { score, temperature } = head.terms;
  const result = [];
  if (score.kind === "dot" && score.scale !== 1) result.push(["scale", scaleName(head)]);
  if (score.softcap) result.push(["softcap", `${score.softcap} · tanh(s ÷ ${score.softcap})`]);
  if (head.biasKind !== "none") result.push(["bias", head.biasKind === "alibi" ? "a penalty for distance (ALiBi)" : "a bias is added"]);
  if (head.maskKind !== "none") result.push(["mask", head.maskKind === "causal" ? "keys after the query are masked" : "some keys are masked"]);
  if (temperature !== 1) result.push(["temperature", `÷ ${temperature}`]);
  return result;
}

// √64 reads better than 8 if it is the root of the width.
export function scaleName(head) {
  const inverse = 1 / head.terms.score.scale;
  if (Math.abs(inverse * inverse - head.width) < 1e-3 * head.width) return `÷ √${head.width}`;
  return inverse > 1 ? `÷ ${Number(inverse.toPrecision(4))}` : `× ${Number(head.terms.score.scale.toPrecision(4))}`;
}
