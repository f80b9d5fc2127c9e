import { callOf } from "../worker/attention.js";
import { applyCuts } from "../worker/cuts.js";
import { lookUp } from "../worker/weights.js";
import { addSinusoids, embedded } from "./embeddings.js";

// The Transformer of models/transformer.py in the core: an encoder, and a decoder that keeps the keys and values of what it wrote. `off` are heads
// [part, layer, head] whose output is zero; part is "encoder", "decoder" or "cross".

export const EPSILON = 1e-5;

export function createTransformer(core, weights, shape) {
  const self = { core, weights, ...shape, headDim: shape.width / shape.heads, stride: Math.ceil(shape.words / 8) * 8, off: [] };
  return {
    words: shape.words,
    // Reads the source; `tap(name, x, { mixed, output })` is called behind each sublayer, also of `forced`, before it is added to x. What it leaves in the core's memory stays until the caller releases it.
    start: (ids, off = [], edit = { cuts: [], all: false }, tap = () => {}) => started({ ...self, off, edit, tap }, ids),
    step: (tokens, memory) => stepped(memory, tokens),
    reorder: (memory, rows) => reordered(memory, rows),
    // The whole target in one pass, for scoring; `seen(layer, { query, mixed })` is called after each cross-attention.
    forced: (memory, tokens, seen) => forced(memory, tokens, seen),
  };
}

const linear = ({ core, weights }, name, from, rows, among, columns, to) => core.product(from, rows, among, weights.at(`${name}.weight`), weights.at(`${name}.bias`), columns, to);

const normalize = ({ core, weights, width }, name, from, rows, to) => core.layer_norm(from, rows, width, weights.at(`${name}.gain`), weights.at(`${name}.bias`), EPSILON, to);

// x + f(norm(x)), or norm(x + f(x)).
function around(self, name, x, rows, space, sublayer) {
  const { core, norm, width, tap } = self;
  const { normed, output } = space;
  if (norm === "pre") normalize(self, name, x, rows, normed);
  sublayer(norm === "pre" ? normed : x, output);
  tap(name, x, space);
  core.add(output, rows * width, x);
  if (norm === "post") normalize(self, name, x, rows, x);
}

function workspaceOf({ core, width, inner }, rows) {
  const [normed, output, mixed, query, vectors, wide] = [width, width, width, width, 3 * width, inner].map((columns) => core.room(rows * columns));
  return { normed, output, mixed, query, vectors, wide };
}

function embed(self, name, tokens, positions, to) {
  const { core, weights, tables, width } = self;
  embedded(core, weights, tables[name], tokens, width, to);
  if (self.positions === "sinusoidal") addSinusoids(core, positions, width, to);
  if (self.positions === "learned") lookUp(core, weights.tensor(`${name}.positions`), core.put(Int32Array.from(positions)), positions.length, to, true);
}

function switchOff({ core, off, width, headDim }, part, layer, mixed, rows) {
  for (const [, , head] of off.filter(([of, at]) => of === part && at === layer)) for (let i = 0; i < rows; i++) core.floats(mixed + 4 * (i * width + head * headDim), headDim).fill(0);
}

function feedForward(self, name, x, rows, space) {
  const { core, width, inner, activation } = self;
  around(self, `${name}.feed`, x, rows, space, (from, to) => {
    linear(self, `${name}.widen`, from, rows, width, inner, space.wide);
    if (activation === "silu") core.floats(space.wide, rows * inner).forEach((value, i, all) => (all[i] = value / (1 + Math.exp(-value))));
    else core[activation](space.wide, rows * inner);
    linear(self, `${name}.narrow`, space.wide, rows, inner, width, to);
  });
}

const call = (self, query, key, value, queries, keys, more) => callOf(self.core, { query, key, value, queries, keys, heads: self.heads, headDim: self.headDim, ...more });

function started(self, ids) {
  const { core, width, layers, decoderLayers } = self;
  const count = ids.length;
  const keys = Array.from({ length: decoderLayers }, () => core.room(count * 2 * width));
  const caches = Array.from({ length: decoderLayers }, () => ({ address: 0, rows: 0, room: 0 }));
  const before = core.allocate(0);
  const x = core.room(count * width);
  const space = workspaceOf(self, count);
  embed(self, "source", ids, ids.map((_, i) => i), x);
  for (let layer = 0; layer < layers; layer++) {
    const name = `encoder.${layer}`;
    around(self, `${name}.self`, x, count, space, (from, to) => {
      linear(self, `${name}.vectors`, from, count, width, 3 * width, space.vectors);
      core.attend(call(self, space.vectors, space.vectors + 4 * width, space.vectors + 8 * width, count, count, { row: 3 * width }), space.mixed);
      switchOff(self, "encoder", layer, space.mixed, count);
      linear(self, `${name}.output`, space.mixed, count, width, width, to);
    });
    feedForward(self, name, x, count, space);
  }
  if (self.norm === "pre") normalize(self, "encoder.norm", x, count, x);
  keys.forEach((to, layer) => linear(self, `decoder.${layer}.keys`, x, count, width, 2 * width, to));
  core.release(before);
  return { self, keys, count, caches, position: 0 };
}

// The addresses of queries, keys and values of an attention to the source, for cuts.js.
export const placeOf = ({ width, heads }, { query, keys, count }) => ({ query, queryStep: width, key: keys, value: keys + 4 * width, step: 2 * width, count, dim: width / heads });

// The decoder's layers over so many rows; `attended(layer, vectors, mixed)` is its attention to what it wrote, `cutsOf` gives the cuts of these rows.
function decoded(memory, x, rows, attended, cutsOf, seen = () => {}) {
  const { self, keys, count } = memory;
  const edit = { ...self.edit, cuts: cutsOf(self.edit.cuts) };
  const { core, width } = self;
  const space = workspaceOf(self, rows);
  for (let layer = 0; layer < self.decoderLayers; layer++) {
    const name = `decoder.${layer}`;
    around(self, `${name}.self`, x, rows, space, (from, to) => {
      linear(self, `${name}.vectors`, from, rows, width, 3 * width, space.vectors);
      attended(layer, space.vectors, space.mixed);
      switchOff(self, "decoder", layer, space.mixed, rows);
      linear(self, `${name}.output`, space.mixed, rows, width, width, to);
    });
    around(self, `${name}.cross`, x, rows, space, (from, to) => {
      linear(self, `${name}.query`, from, rows, width, width, space.query);
      const crossed = call(self, space.query, keys[layer], keys[layer] + 4 * width, rows, count, { row: width, keyRow: 2 * width });
      core.attend(crossed, space.mixed);
      applyCuts(core, placeOf(self, { query: space.query, keys: keys[layer], count }), edit, layer, space.mixed, { rows, heads: self.heads });
      seen(layer, { call: crossed, query: space.query, keys: keys[layer], mixed: space.mixed, rows, count, edit });
      switchOff(self, "cross", layer, space.mixed, rows);
      linear(self, `${name}.mixed`, space.mixed, rows, width, width, to);
    });
    feedForward(self, name, x, rows, space);
  }
  if (self.norm === "pre") normalize(self, "decoder.norm", x, rows, x);
}

// Scores of the next word of each row, after `tokens`: a copy, which frees the core's memory. `seen` as in `decoded`.
function stepped(memory, tokens) {
  const { self, position, caches } = memory;
  const { core, width, stride } = self;
  const rows = tokens.length;
  for (const cache of caches) enlarged(core, cache, rows, position + 1, 3 * width);
  const before = core.allocate(0);
  const [x, scores] = [core.room(rows * width), core.room(rows * stride)];
  embed(self, "target", tokens, tokens.map(() => position), x);
  decoded(memory, x, rows, (layer, vectors, mixed) => {
    const cache = caches[layer];
    for (let r = 0; r < rows; r++) {
      const start = cache.address + 4 * r * cache.room * 3 * width;
      const at = start + 4 * position * 3 * width;
      core.floats(at, 3 * width).set(core.floats(vectors + 4 * r * 3 * width, 3 * width));
      core.attend(call(self, at, start + 4 * width, start + 8 * width, 1, position + 1, { row: 3 * width }), mixed + 4 * r * width);
    }
  }, (cuts) => cuts.filter(({ row }) => row === position).flatMap((cut) => tokens.map((_, row) => ({ ...cut, row }))), memory.seen);
  linear(self, "output", x, rows, width, stride, scores);
  const result = core.floats(scores, rows * stride).slice();
  core.release(before);
  memory.position += 1;
  return { scores: result, stride };
}

// Memory for each row's written words: (rows, capacity, columns), doubled when it is full.
function enlarged(core, cache, rows, needed, columns) {
  if (cache.rows === rows && cache.room >= needed) return;
  const room = Math.max(32, 2 * cache.room, needed);
  const address = core.room(rows * room * columns);
  for (let r = 0; r < Math.min(rows, cache.rows); r++) core.floats(address + 4 * r * room * columns, cache.room * columns).set(core.floats(cache.address + 4 * r * cache.room * columns, cache.room * columns));
  Object.assign(cache, { address, rows, room });
}

// Row r becomes a copy of row rows[r].
function reordered(memory, rows) {
  const { self, caches } = memory;
  if (rows.every((from, to) => from === to)) return;
  for (const { address, room } of caches) {
    const size = room * 3 * self.width;
    const copies = rows.map((from) => self.core.floats(address + 4 * from * size, memory.position * 3 * self.width).slice());
    copies.forEach((copy, to) => self.core.floats(address + 4 * to * size, copy.length).set(copy));
  }
}

function forced(memory, tokens, seen) {
  const { self } = memory;
  const { core, width } = self;
  const before = core.allocate(0);
  const x = core.room(tokens.length * width);
  embed(self, "target", tokens, tokens.map((_, i) => i), x);
  decoded(memory, x, tokens.length, (layer, vectors, mixed) => core.attend(call(self, vectors, vectors + 4 * width, vectors + 8 * width, tokens.length, tokens.length, { row: 3 * width, causal: true }), mixed), (cuts) => cuts, seen);
  core.release(before);
}
