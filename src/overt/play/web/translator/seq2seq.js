import { embedded } from "./embeddings.js";

// The recurrent translator of models/seq2seq.py: a GRU reads, another one writes, with one vector between them or with attention to all states. Linear maps
// run in the core, the rest in float64. The interface is transformer.js's; a step also gives the `attention` of each row.

export function createSeq2Seq(core, weights, shape) {
  const self = { core, weights, ...shape, stride: Math.ceil(shape.words / 8) * 8 };
  return { words: shape.words, start: (ids) => started(self, ids), step: (tokens, memory) => stepped(self, tokens, memory), reorder };
}

// Multiplies rows (count, inner) by a linear map: an array (count, columns).
function times({ core, weights }, name, rows, count) {
  const { rows: inner, columns } = weights.tensor(`${name}.weight`);
  const before = core.allocate(0);
  const [from, to] = [core.put(Float32Array.from(rows)), core.room(count * columns)];
  core.product(from, count, inner, weights.at(`${name}.weight`), weights.at(`${name}.bias`), columns, to);
  const result = core.floats(to, count * columns).slice();
  core.release(before);
  return result;
}

function vectorsOf({ core, weights, tables, width }, name, tokens) {
  const before = core.allocate(0);
  const to = core.room(tokens.length * width);
  embedded(core, weights, tables[name], tokens, width, to);
  const result = core.floats(to, tokens.length * width).slice();
  core.release(before);
  return result;
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// A GRU's states of each row, from its products with the input and with the states before, the gates r and z and the candidate n one after the other.
function gated(input, hidden, before, width) {
  return before.map((h, at) => {
    const [row, d] = [3 * width * Math.floor(at / width), at % width];
    const [r, z] = [0, width].map((gate) => sigmoid(input[row + gate + d] + hidden[row + gate + d]));
    return (1 - z) * Math.tanh(input[row + 2 * width + d] + r * hidden[row + 2 * width + d]) + z * h;
  });
}

// One direction of the encoder: the states (S, width), in the order of the text, and the last one.
function read(self, direction, words, count) {
  const { width } = self;
  const inputs = times(self, `encoder.input${direction}`, words, count);
  const states = new Float32Array(count * width);
  let h = new Float32Array(width);
  for (let step = 0; step < count; step++) {
    const t = direction ? count - 1 - step : step;
    h = gated(inputs.subarray(3 * width * t, 3 * width * (t + 1)), times(self, `encoder.hidden${direction}`, h, 1), h, width);
    states.set(h, t * width);
  }
  return { states, end: h };
}

function started(self, ids) {
  const [count, words] = [ids.length, vectorsOf(self, "source", ids)];
  const parts = (self.bidirectional ? ["", "_reverse"] : [""]).map((direction) => read(self, direction, words, count));
  const ends = self.width * parts.length;
  const states = new Float32Array(count * ends);
  parts.forEach(({ states: of }, part) => { for (let t = 0; t < count; t++) states.set(of.subarray(t * self.width, (t + 1) * self.width), t * ends + part * self.width); });
  const end = Float32Array.from(parts.flatMap((each) => Array.from(each.end)));
  const memory = { ends, count, end, states, h: times(self, "first_state", end, 1).map(Math.tanh), context: new Float32Array(ends) };
  if (!self.attention) return memory;
  const values = self.attention === "dot" ? times(self, "attention.value", states, count) : states;
  // general: q W h_j is q · (W h_j).
  return { ...memory, values, keys: times(self, "attention.key", states, count) };
}

// The contexts of these states (R, ends), and the weights of each.
function attended(self, memory, states, rows) {
  const { count, ends, keys, values } = memory;
  const projected = self.attention === "general" ? states : times(self, "attention.query", states, rows);
  const among = projected.length / rows;
  const v = self.attention === "additive" ? self.core.floats(self.weights.at("attention.weight"), among) : null;
  const weights = Array.from({ length: rows }, (_, r) => softmax(Float64Array.from({ length: count }, (_, j) => {
    let score = 0;
    for (let d = 0; d < among; d++) {
      const [q, k] = [projected[r * among + d], keys[j * among + d]];
      score += v ? v[d] * Math.tanh(q + k) : q * k;
    }
    return self.attention === "dot" ? score / Math.sqrt(among) : score;
  })));
  const contexts = new Float32Array(rows * ends);
  weights.forEach((row, r) => { for (let c = 0; c < ends; c++) contexts[r * ends + c] = row.reduce((sum, weight, j) => sum + weight * values[j * ends + c], 0); });
  return { contexts, weights };
}

function softmax(scores) {
  const largest = scores.reduce((most, each) => Math.max(most, each), -Infinity);
  const shares = scores.map((score) => Math.exp(score - largest));
  const total = shares.reduce((sum, each) => sum + each, 0);
  return shares.map((share) => share / total);
}

const repeated = (vector, rows) => Float32Array.from({ length: rows * vector.length }, (_, i) => vector[i % vector.length]);

// Concatenates each row of the arrays.
function joined(arrays, rows) {
  const parts = arrays.map((array) => array.length / rows);
  const width = parts.reduce((sum, each) => sum + each, 0);
  const result = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) for (let at = r * width, i = 0; i < arrays.length; at += parts[i++]) result.set(arrays[i].subarray(r * parts[i], (r + 1) * parts[i]), at);
  return result;
}

// The state reads the word, and with it the context: of the state before ("previous"), of this one afterwards ("current"), or both.
function stepped(self, tokens, memory) {
  const { width, scoreWith, attention } = self;
  const rows = tokens.length;
  if (memory.h.length < rows * width) [memory.h, memory.context] = [repeated(memory.h, rows), repeated(memory.context, rows)];
  const words = vectorsOf(self, "target", tokens);
  let result = { contexts: repeated(memory.end, rows), weights: null };
  if (attention && scoreWith === "both") result = { contexts: memory.context, weights: null };
  else if (attention && scoreWith === "previous") result = attended(self, memory, memory.h, rows);
  const input = attention && scoreWith === "current" ? words : joined([words, result.contexts], rows);
  memory.h = gated(times(self, "decoder.input", input, rows), times(self, "decoder.hidden", memory.h, rows), memory.h, width);
  if (attention && scoreWith !== "previous") result = attended(self, memory, memory.h, rows);
  memory.context = result.contexts;
  const read = times(self, "readout", joined([words, memory.h, result.contexts], rows), rows).map(Math.tanh);
  return { scores: times(self, "output", read, rows), stride: self.stride, attention: result.weights };
}

function reorder(memory, rows) {
  for (const name of ["h", "context"]) {
    const width = memory[name].length / rows.length;
    memory[name] = Float32Array.from(rows.flatMap((from) => Array.from(memory[name].subarray(from * width, (from + 1) * width))));
  }
}
