// Layers that give hidden states, as torch computes them, in float64: a GRU, a plain RNN, a convolution over three symbols, a linear layer; then scores of
// pairs of states. Parameters have torch's names.

// Float16 in base64, from docs/making/lesson_layers.py: { shape, values }.
function decoded({ shape, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const codes = new DataView(bytes.buffer);
  const values = Float64Array.from({ length: bytes.length / 2 }, (_, i) => halfOf(codes.getUint16(2 * i, true)));
  return { shape, values };
}

// The number of an IEEE 754 binary16 code.
function halfOf(code) {
  const [sign, exponent, fraction] = [code & 0x8000 ? -1 : 1, (code >> 10) & 31, code & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : (sign * 2 ** -14 * fraction) / 1024;
}

export const parametersOf = (packed) => Object.fromEntries(Object.entries(packed).map(([name, each]) => [name, decoded(each)]));

// M x, plus a bias if there is one.
export function linear({ shape: [rows, columns], values }, x, bias = null) {
  return Float64Array.from({ length: rows }, (_, i) => {
    let sum = bias ? bias.values[i] : 0;
    for (let k = 0; k < columns; k++) sum += values[i * columns + k] * x[k];
    return sum;
  });
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The hidden states of one-hot vectors: a list of `width` numbers for each.
export function statesOf(kind, parameters, inputs) {
  const of = (name) => parameters[`states.layer.${name}`];
  if (kind === "linear") return inputs.map((x) => linear(of("weight"), x, of("bias")));
  if (kind === "conv") return inputs.map((_, t) => convolved(of("weight"), of("bias"), inputs, t));
  const states = [];
  let h = new Float64Array(of("weight_hh_l0").shape[1]);
  for (const x of inputs) {
    const [a, b] = [linear(of("weight_ih_l0"), x, of("bias_ih_l0")), linear(of("weight_hh_l0"), h, of("bias_hh_l0"))];
    h = kind === "rnn" ? a.map((each, d) => Math.tanh(each + b[d])) : gated(a, b, h);
    states.push(h);
  }
  return states;
}

// A step of a GRU: gates r and z and candidate n, concatenated (Cho et al. 2014, with torch's position of r).
function gated(a, b, h) {
  const width = h.length;
  return h.map((before, d) => {
    const [r, z] = [sigmoid(a[d] + b[d]), sigmoid(a[width + d] + b[width + d])];
    return (1 - z) * Math.tanh(a[2 * width + d] + r * b[2 * width + d]) + z * before;
  });
}

function convolved({ shape: [rows, columns, size], values }, bias, inputs, t) {
  return Float64Array.from({ length: rows }, (_, i) => {
    let sum = bias.values[i];
    for (let k = 0; k < size; k++) {
      const x = inputs[t + k - (size - 1) / 2];
      for (let c = 0; x && c < columns; c++) sum += values[(i * columns + c) * size + k] * x[c];
    }
    return sum;
  });
}

const dot = (a, b) => a.reduce((sum, each, d) => sum + each * b[d], 0);

// f(h_i, h_j) for all j.
export function scoresOf(kind, parameters, states, i) {
  const of = (name) => parameters[`states.attention.scoring.${name}`];
  if (kind === "general") {
    const { shape: [rows, columns], values } = of("weight");
    return states.map((h) => dot(linear({ shape: [rows, columns], values }, h), states[i]));
  }
  const [query, keys] = [linear(of("query.weight"), states[i]), states.map((h) => linear(of("key.weight"), h))];
  if (kind === "dot") return keys.map((key) => dot(query, key) / Math.sqrt(query.length));
  return keys.map((key) => dot(of("weight").values, key.map((each, d) => Math.tanh(each + query[d]))));
}
