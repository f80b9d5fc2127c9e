// Recomputes one row in plain JavaScript and float64, from the same weights, keys and values, and compares it with the core's float32.

const ROUNDING = 2 ** -24;

// The row's attention in all heads of a layer, from the core's own query: { difference, bound }, how far it is off its formula, and how far rounding
// may take it.
export function attentionOf(core, { heads, width }, row, { vectors, mixed, count }) {
  const query = core.floats(vectors + 12 * row * width, width);
  const { output, bound } = mixedRow(interleaved(core, query, vectors, width, count), width, width / heads, count);
  return { difference: differenceOf(output, core.floats(mixed + 4 * row * width, width)), bound };
}

// The row through a layer, from input to result: { difference, largest }, the error of the result, and its largest number.
export function layerOf(core, weights, { heads, width, inner, epsilon }, layer, row, { entered, vectors, left, count }) {
  const linear = (name, from, columns) => linearOf(core, weights, `${layer}.${name}`, from, columns);
  const norm = (name, x) => normOf(core, weights, `${layer}.${name}`, x, epsilon);
  const x = Float64Array.from(core.floats(entered + 4 * row * width, width));
  const mixed = mixedRow(interleaved(core, linear("vectors", x, width), vectors, width, count), width, width / heads, count).output;
  const between = norm("attention", sumOf(linear("output", mixed, width), x));
  const wide = linear("inner", between, inner).map(gelu);
  const result = norm("layer", sumOf(linear("outer", wide, width), between));
  const largest = result.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  return { difference: differenceOf(result, core.floats(left + 4 * row * width, width)), largest };
}

// A token's query, key and value form one row.
const interleaved = (core, query, vectors, width, count) => ({ query, rows: core.floats(vectors, 3 * width * count), step: 3 * width, key: width, value: 2 * width });

// The outputs of all heads for one query, side by side, and the bound of what rounding does to them: a score of D products is off by D + 2 roundings
// of their sizes, and so is the largest one that is taken from it; a weight by as much, and a sum of K weighted values by K + 8 more.
// `rows` hold each token's key and value, `step` numbers from one to the next.
export function mixedRow({ query, rows, step, key, value: values }, width, dim, count) {
  const output = new Float64Array(width);
  let bound = 0;
  for (let first = 0; first < width; first += dim) {
    const [scores, reach] = [new Float64Array(count), new Float64Array(dim)];
    let most = 0;
    for (let j = 0; j < count; j++) {
      let size = 0;
      for (let d = 0; d < dim; d++) {
        const term = (query[first + d] * rows[j * step + key + first + d]) / Math.sqrt(dim);
        scores[j] += term;
        size += Math.abs(term);
      }
      most = Math.max(most, size);
    }
    const largest = Math.max(...scores);
    const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
    for (let j = 0; j < count; j++) {
      const weight = Math.exp(scores[j] - largest) / total;
      for (let d = 0; d < dim; d++) {
        const value = rows[j * step + values + first + d];
        output[first + d] += weight * value;
        reach[d] += weight * Math.abs(value);
      }
    }
    bound = Math.max(bound, ROUNDING * (2 * (dim + 2) * most + count + 8) * Math.max(...reach));
  }
  return { output, bound };
}

// Columns are stored in panels of eight, a row of them for each input; four independent sums at a time.
export function linearOf(core, weights, name, from, columns) {
  const map = core.floats(weights.at(`${name}.weight`), from.length * columns);
  const result = Float64Array.from(core.floats(weights.at(`${name}.bias`), columns));
  for (let first = 0; first < columns; first += 4) {
    let [a, b, c, d, at] = [0, 0, 0, 0, from.length * (first - (first % 8)) + (first % 8)];
    for (let k = 0; k < from.length; k++, at += 8) {
      const x = from[k];
      a += x * map[at];
      b += x * map[at + 1];
      c += x * map[at + 2];
      d += x * map[at + 3];
    }
    [a, b, c, d].forEach((sum, lane) => (result[first + lane] += sum));
  }
  return result;
}

function normOf(core, weights, name, x, epsilon) {
  const [gain, bias] = ["gain", "bias"].map((part) => core.floats(weights.at(`${name}.${part}`), x.length));
  const mean = x.reduce((sum, each) => sum + each, 0) / x.length;
  const variance = x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length;
  return x.map((each, c) => ((each - mean) / Math.sqrt(variance + epsilon)) * gain[c] + bias[c]);
}

// A norm, and its gradient with the scale held fixed.
export const norms = {
  of: normOf,
  back(gain, x, gradient, epsilon) {
    const mean = x.reduce((sum, each) => sum + each, 0) / x.length;
    const scale = 1 / Math.sqrt(x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length + epsilon);
    const scaled = gradient.map((each, d) => each * gain[d] * scale);
    const middle = scaled.reduce((sum, each) => sum + each, 0) / x.length;
    return scaled.map((each) => each - middle);
  },
};

export const dot = (a, b) => a.reduce((sum, each, d) => sum + each * b[d], 0);
const sumOf = (a, b) => a.map((each, c) => each + b[c]);
export const differenceOf = (a, b) => a.reduce((most, each, c) => Math.max(most, Number.isNaN(each - b[c]) ? Infinity : Math.abs(each - b[c])), 0);

export const gelu = (x) => (x / 2) * (1 + erf(x / Math.SQRT2));

// erf by its series 2/√π · e^(−x²) Σ 2^n x^(2n+1) / (1·3·…·(2n+1)), Abramowitz and Stegun 7.1.6; 1 beyond 6.
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  let [term, sum] = [size, size];
  for (let n = 1; n < 200 && term > 1e-17 * sum; n++) sum += term *= (2 * size * size) / (2 * n + 1);
  return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * Math.exp(-size * size) * sum;
}
