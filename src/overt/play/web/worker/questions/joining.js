// The questions of lesson 3: how the output matrix joins the heads of a layer, and typed scores.

// What W_O makes of each head's output, for one token. A question is { text, joined: { layer, row } }. The answer: `output` (H · D), the heads' outputs
// side by side; `parts` (H + 1, width), what W_O makes of each head's output, in float64, and last the bias; `sum`, what the core makes of all of them;
// `entered`, the vector to which the layer adds it.
export function createJoining(core, weights, { layers, heads, width, limit }, tokenize, run) {
  return ({ text, joined }) => {
    const { ids } = tokenize(text, limit);
    const layer = Math.min(joined.layer, layers - 1);
    if (joined.row >= ids.length) return { sentence: "There is no such word in this text." };
    let answer = null;
    run(ids, (at, { entered, mixed }) => {
      if (at !== layer) return;
      const row = (address) => core.floats(address + 4 * joined.row * width, width).slice();
      answer = { output: row(mixed), entered: row(entered), parts: partsOf(core, weights, layer, row(mixed), heads), sum: productOf(core, weights, layer, mixed + 4 * joined.row * width, width) };
    });
    return { ...answer, heads, width };
  };
}

// Scores of one query and some keys, rows of equal length, by a program: a question is { scored: { query, keys, code, numbers } }.
export const createScoring = (core) => ({ scored: { query, keys, code, numbers } }) => {
  const before = core.allocate(0);
  const count = keys.length / query.length;
  const to = core.room(count);
  const wrong = core.program_scores(core.put(query), 1, core.put(keys), count, query.length, core.put(code), code.length, core.put(numbers), numbers.length, to);
  const answer = wrong ? { sentence: `Expected ${core.text(wrong)}, got another program. Fix: write another f.` } : { scores: core.floats(to, count).slice() };
  core.release(before);
  return answer;
};

function productOf(core, weights, layer, from, width) {
  const to = core.room(width);
  core.product(from, 1, width, weights.at(`${layer}.output.weight`), weights.at(`${layer}.output.bias`), width, to);
  const sum = core.floats(to, width).slice();
  core.release(to);
  return sum;
}

// The matrix is stored in panels of eight columns, for native/wasm/layers.cpp.
function partsOf(core, weights, layer, output, heads) {
  const [width, dim] = [output.length, output.length / heads];
  const map = core.floats(weights.at(`${layer}.output.weight`), width * width);
  const parts = new Float64Array((heads + 1) * width);
  for (let k = 0; k < width; k++) for (let c = 0; c < width; c++) parts[Math.floor(k / dim) * width + c] += output[k] * map[(c - (c % 8)) * width + 8 * k + (c % 8)];
  parts.set(core.floats(weights.at(`${layer}.output.bias`), width), heads * width);
  return parts;
}
