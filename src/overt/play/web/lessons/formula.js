// Attention in plain JavaScript and float64, row by row: weights_ij = softmax_j(f(i, j)), or f(i, j) / Σ_j f(i, j) where it is `plain`.

export function weightsOfRow(count, score, plain = false) {
  const weights = Float64Array.from({ length: count }, (_, j) => score(j));
  if (!plain) {
    const largest = weights.reduce((most, each) => Math.max(most, each), -Infinity);
    for (let j = 0; j < count; j++) weights[j] = Math.exp(weights[j] - largest);
  }
  const total = weights.reduce((sum, each) => sum + each, 0);
  return weights.map((each) => each / total);
}

export const dot = (a, b) => a.reduce((sum, each, d) => sum + each * b[d], 0);

// Σ_j weights_j values_j for numbers.
export const mixed = (weights, values) => dot(weights, values);

export const largestChange = (a, b) => a.reduce((most, each, i) => (Number.isNaN(each - b[i]) ? NaN : Math.max(most, Math.abs(each - b[i]))), 0);

// A permutation of 0 … count − 1 by the seed: from a linear congruential generator (Knuth 1997, section 3.2.1).
export function shuffled(count, seed) {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let [i, state] = [count - 1, seed]; i > 0; i--) {
    state = next(state);
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

const next = (state) => (Math.imul(state, 1664525) + 1013904223) >>> 0;

// Standard normal numbers from a seed, by sums of twelve uniform ones.
export function noise(count, seed) {
  let state = seed;
  return Array.from({ length: count }, () => {
    let sum = -6;
    for (let i = 0; i < 12; i++) sum += (state = next(state)) / 2 ** 32;
    return sum;
  });
}
