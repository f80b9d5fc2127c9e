// The visible part of a head's map as numbers: single weights if there are not too many, else the largest and the mean of each cell.
import { MASKED, pooled, tile, weightOf } from "./exact.js";

const SINGLE = 2 ** 20; // SINGLE: the most weights that are computed one by one
const COMPUTED = 2 ** 24; // COMPUTED: the most weights from which cells are computed; the stored map serves more

// The rows and keys in sight, whole numbers: [r0, r1, k0, k1].
export function viewOf(head, view) {
  if (!view) return [0, head.queryCount, 0, head.keyCount];
  const within = (edge, maximum) => Math.max(0, Math.min(maximum, edge));
  return [within(Math.floor(view[0]), head.queryCount), within(Math.ceil(view[1]), head.queryCount), within(Math.floor(view[2]), head.keyCount), within(Math.ceil(view[3]), head.keyCount)];
}

// { kind: "weights" | "cells" | "stored cells", rowEdges, keyEdges, max, mean }, cells row by row; at most `most` cells a side.
export function visibleTiles(head, view, maximum = Infinity) {
  const [r0, r1, k0, k1] = viewOf(head, view);
  const [rows, keys] = [r1 - r0, k1 - k0];
  if (head.exact && rows * keys <= SINGLE && Math.max(rows, keys) <= maximum) {
    const weights = tile(head.terms, r0, r1, k0, k1);
    return { kind: "weights", rowEdges: edgesOf(r0, r1, 1), keyEdges: edgesOf(k0, k1, 1), max: weights, mean: weights };
  }
  if (head.exact && rows * keys <= COMPUTED) {
    const step = Math.max(1, Math.ceil(Math.max(rows, keys) / Math.min(maximum, 1024)));
    const result = pooled(head.terms, r0, k0, Math.ceil(rows / step), Math.ceil(keys / step), step);
    return { kind: "cells", rowEdges: edgesOf(r0, r1, step), keyEdges: edgesOf(k0, k1, step), max: result.max.map(unmarked), mean: result.mean.map(unmarked) };
  }
  return storedTiles(head, [r0, r1, k0, k1]);
}

const unmarked = (weight) => (weight === MASKED ? 0 : weight);

function edgesOf(from, to, step) {
  const edges = [];
  for (let at = from; at < to; at += step) edges.push(at);
  return [...edges, to];
}

function storedTiles(head, [r0, r1, k0, k1]) {
  const { base } = head;
  const inside = (edges, from, to) => {
    const selected = [];
    for (let i = 0; i + 1 < edges.length; i++) if (edges[i + 1] > from && edges[i] < to) selected.push(i);
    return selected;
  };
  const [rows, columns] = [inside(base.rowEdges, r0, r1), inside(base.keyEdges, k0, k1)];
  const taken = (codes) => Float32Array.from(rows.flatMap((row) => columns.map((column) => weightOf(codes[row * base.columns + column], head.signed))));
  const description = (edges, selected) => (selected.length ? [...selected.map((i) => edges[i]), edges[selected.at(-1) + 1]] : []);
  return { kind: "stored cells", rowEdges: description(base.rowEdges, rows), keyEdges: description(base.keyEdges, columns), max: taken(base.max), mean: taken(base.mean) };
}
