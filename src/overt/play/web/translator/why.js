// Why a head of the decoder looks at a word of the source: the score split as questions/why.js has it, over what wrote the decoder's stream and over
// what wrote the encoder's.
import { backOf } from "../worker/questions/why.js";
import { dot, norms } from "../worker/recompute.js";
import { embedded } from "./embeddings.js";
import { START } from "./search.js";
import { EPSILON } from "./transformer.js";

const HEADS = { "encoder.self": "encoder head", "decoder.self": "decoder head", "decoder.cross": "head" };

// A question is { source, target, edit, why: { layer, head, row, key } } with the ids of both texts; see questions/why.js for the answer.
export function createWhy(core, weights, shape, model) {
  const { width } = shape;
  const dim = width / shape.heads;
  return ({ source, target, edit, why: { layer, head, row, key } }) => {
    const before = core.allocate(0);
    const [streams, pair, read] = [{ encoder: [], decoder: [] }, [], [START, ...target.slice(0, -1)]];
    const numbers = (address, count) => Float64Array.from(core.floats(address, count));
    const memory = model.start(source, [], edit, (name, x, { mixed, output }) => {
      const [part, at, kind] = name.split(".");
      if (part === "decoder" && (Number(at) > layer || (Number(at) === layer && kind !== "self"))) return;
      const [entered, heads, written] = [x, mixed, output].map((address) => numbers(address + 4 * (part === "encoder" ? key : row) * width, width));
      streams[part].push({ name, part, at, kind, entered, heads, written, left: sumOf(entered, written) });
    });
    model.forced(memory, read, (at, state) => at === layer && pair.push(numbers(state.query + 4 * (row * width + head * dim), dim), numbers(state.keys + 4 * (2 * key * width + head * dim), dim)));
    const side = (place) => sideOf({ core, weights, shape }, streams[place.part], { ...place, first: head * dim });
    const [query, keys] = [
      side({ part: "decoder", map: `decoder.${layer}.query`, norm: `decoder.${layer}.cross`, factor: pair[1], word: "before", token: ["target", read[row]] }),
      side({ part: "encoder", map: `decoder.${layer}.keys`, norm: "encoder.norm", factor: pair[0], word: "word", token: ["source", source[key]] }),
    ];
    core.release(before);
    return { score: dot(pair[0], pair[1]) / Math.sqrt(dim), query, key: keys };
  };
}

const sumOf = (a, b) => a.map((each, d) => each + b[d]);

// From the score back to what was written, as in questions/why.js; a norm is before the maps that read the stream, or behind each sum.
function sideOf(model, stream, { map, norm, factor, first, word, token }) {
  const { core, weights, shape } = model;
  const vector = (name) => core.floats(weights.at(name), shape.width);
  let gradient = backOf(model, map, factor.map((each) => each / Math.sqrt(factor.length)), first);
  let bias = dot(factor, core.floats(weights.at(`${map}.bias`) + 4 * first, factor.length)) / Math.sqrt(factor.length);
  const through = (name, x) => {
    bias += dot(gradient, vector(`${name}.bias`));
    gradient = norms.back(vector(`${name}.gain`), x, gradient, EPSILON);
  };
  if (shape.norm === "pre") through(norm, stream.at(-1).left);
  const parts = [];
  for (const step of stream.toReversed()) {
    if (shape.norm === "post") through(step.name, step.left);
    const [written, constant] = writtenOf(model, step, gradient);
    parts.push(...written);
    bias += constant;
  }
  const own = tokenOf(model, ...token);
  return [{ name: word, value: dot(gradient, own) }, { name: "position", value: dot(gradient, stream[0].entered.map((each, d) => each - own[d])) }, { name: "biases", value: bias }, ...parts];
}

// The output of a sublayer: a part for its feed-forward or for each of its heads, and the part of its bias.
function writtenOf(model, { part, at, kind, heads, written }, gradient) {
  const map = `${part}.${at}.${{ feed: "narrow", cross: "mixed", self: "output" }[kind]}`;
  const outer = model.core.floats(model.weights.at(`${map}.bias`), written.length);
  if (kind === "feed") return [[{ name: `${part} feed-forward ${at}`, value: dot(gradient, written.map((each, d) => each - outer[d])) }], dot(gradient, outer)];
  const [back, dim] = [backOf(model, map, gradient, 0), written.length / model.shape.heads];
  const parts = Array.from({ length: model.shape.heads }, (_, h) => ({ name: `${HEADS[`${part}.${kind}`]} L${at}H${h}`, value: dot(heads.subarray(h * dim, (h + 1) * dim), back.subarray(h * dim, (h + 1) * dim)) }));
  return [parts, dot(gradient, outer)];
}

function tokenOf({ core, weights, shape: { tables, width } }, side, token) {
  const before = core.allocate(0);
  const to = core.room(width);
  embedded(core, weights, tables[side], [token], width, to);
  const result = Float64Array.from(core.floats(to, width));
  core.release(before);
  return result;
}
