// Why a head looks there: the score of one query and key, split over what wrote the query's stream and over what wrote the key's, as
// lens.score_contributions has it. The scales of norms are what they were; the direct effect of each part.
import { lookUp } from "../weights.js";
import { UNCHANGED } from "../encoder.js";
import { dot, gelu, linearOf, norms } from "../recompute.js";

// A question is { text, edit, why: { layer, head, row, key } }; the answer has for `query` and `key` a list of { name, value } whose sum is `score`.
export function createWhy(core, weights, shape, tokenize, run) {
  const { heads, width, limit } = shape;
  const dim = width / heads;
  return ({ text, edit, why: { layer, head, row, key } }) => {
    const { ids } = tokenize(text, limit);
    const [places, streams, pair] = [[row, key], [[], []], []];
    run(ids, (at, { entered, vectors, mixed }) => {
      const numbers = (address, count) => Float64Array.from(core.floats(address, count));
      if (at < layer) places.forEach((i, side) => streams[side].push([entered, mixed].map((address) => numbers(address + 4 * i * width, width))));
      if (at === layer) places.forEach((i, side) => (pair[side] = numbers(vectors + 4 * ((3 * i + side) * width + head * dim), dim)));
    }, { ...UNCHANGED, edit });
    const tables = tablesOf(core, weights, ids, places, width);
    const [query, keys] = places.map((_, side) => sideOf({ core, weights, shape }, { layer, first: side * width + head * dim, factor: pair[1 - side].map((each) => each / Math.sqrt(dim)) }, streams[side], tables[side]));
    return { score: dot(pair[0], pair[1]) / Math.sqrt(dim), query, key: keys };
  };
}

// The parts of the word and position tables at each position.
function tablesOf(core, weights, ids, places, width) {
  return places.map((i) => ["words", "positions"].map((name) => {
    const before = core.allocate(0);
    const [number, to] = [core.put(Int32Array.of(name === "words" ? ids[i] : i)), core.room(width)];
    lookUp(core, weights.tensor(name), number, 1, to);
    const result = Float64Array.from(core.floats(to, width));
    core.release(before);
    return result;
  }));
}

// Backward from the score to the stream's parts: `gradient` is the score's derivative in each number of the stream.
function sideOf(model, { layer, first, factor }, stream, [word, position]) {
  const { core, weights, shape } = model;
  const { width, heads } = shape;
  const vector = (name, count) => core.floats(weights.at(name), count);
  let gradient = backOf(model, `${layer}.vectors`, factor, first);
  let bias = dot(factor, vector(`${layer}.vectors.bias`, 3 * width).subarray(first, first + factor.length));
  const through = (name, x) => {
    bias += dot(gradient, vector(`${name}.bias`, width));
    gradient = norms.back(vector(`${name}.gain`, width), x, gradient, shape.epsilon);
  };
  const parts = [];
  for (let at = layer - 1; at >= 0; at--) {
    const { before, written, after } = forwardOf(model, at, stream[at]);
    through(`${at}.layer`, after);
    const outer = vector(`${at}.outer.bias`, width);
    parts.push({ name: `feed-forward ${at}`, value: dot(gradient, written.map((each, d) => each - outer[d])) });
    bias += dot(gradient, outer);
    through(`${at}.attention`, before);
    bias += dot(gradient, vector(`${at}.output.bias`, width));
    const back = backOf(model, `${at}.output`, gradient, 0);
    for (let head = 0; head < heads; head++) {
      const [from, to] = [(head * width) / heads, ((head + 1) * width) / heads];
      parts.push({ name: `head L${at}H${head}`, value: dot(stream[at][1].subarray(from, to), back.subarray(from, to)) });
    }
  }
  through("embedding", word.map((each, d) => each + position[d]));
  return [{ name: "word", value: dot(gradient, word) }, { name: "position", value: dot(gradient, position) }, { name: "biases", value: bias }, ...parts];
}

// A row through a layer: `before` and `after` enter its norms, `written` is added by the feed-forward.
function forwardOf({ core, weights, shape }, at, [entered, mixed]) {
  const linear = (name, from, columns) => linearOf(core, weights, `${at}.${name}`, from, columns);
  const before = linear("output", mixed, shape.width).map((each, d) => each + entered[d]);
  const between = norms.of(core, weights, `${at}.attention`, before, shape.epsilon);
  const written = linear("outer", linear("inner", between, shape.inner).map(gelu), shape.width);
  return { before, written, after: written.map((each, d) => each + between[d]) };
}

// The gradient of a linear map's input, from that of some of its outputs, `first` and those behind it; columns are stored in panels of eight.
export function backOf({ core, weights, shape: { width } }, name, gradient, first) {
  const { rows, columns } = weights.tensor(`${name}.weight`);
  const map = core.floats(weights.at(`${name}.weight`), rows * columns);
  return Float64Array.from({ length: width }, (_, k) => gradient.reduce((sum, each, n) => {
    const c = first + n;
    return sum + each * map[(c - (c % 8)) * width + 8 * k + (c % 8)];
  }, 0));
}
