// Weights that are cut, as lens.edit blocks them: a cut pair has the weight zero, and the softmax runs over the other keys. A cut is
// { layer, head, row, key }; cuts of `all` heads are in each of them. Rows are computed again in float64, from the same queries, keys and values.
import { codesOf, linksOf, TOP } from "./attention.js";

export const NONE = { cuts: [], all: false };

// The keys hidden from rows of a head: a set for each row with cuts.
export function withoutOf({ cuts, all }, layer, head) {
  const result = new Map();
  for (const cut of cuts) if (all || (cut.layer === layer && cut.head === head)) result.set(cut.row, (result.get(cut.row) ?? new Set()).add(cut.key));
  return result;
}

// A row of a head's weights and its log-sum-exp. A place is { query, queryStep, key, value, step, count, dim }: addresses, and numbers from one row to the next;
// `scale` and `causal` are the call's.
export function rowWithout(core, { query, queryStep, key, step, count, dim, scale = 1 / Math.sqrt(dim), causal = false }, head, row, without) {
  const q = core.floats(query + 4 * (row * queryStep + head * dim), dim);
  const scores = Float64Array.from({ length: count }, (_, j) => {
    if (without?.has(j) || (causal && j > row)) return -Infinity;
    const k = core.floats(key + 4 * (j * step + head * dim), dim);
    return q.reduce((sum, each, d) => sum + each * k[d], 0) * scale;
  });
  const largest = Math.max(...scores);
  const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
  return { weights: scores.map((score) => Math.exp(score - largest) / total), lse: largest + Math.log(total) };
}

// Writes the rows changed by cuts into `mixed`, the heads' outputs concatenated, with `rows` rows.
export function applyCuts(core, place, edit, layer, mixed, { rows, heads }) {
  const { value, step, dim } = place;
  for (let head = 0; head < heads; head++) for (const [row, without] of withoutOf(edit, layer, head)) {
    if (row >= rows) continue;
    const sum = new Float64Array(dim);
    rowWithout(core, place, head, row, without).weights.forEach((weight, j) => core.floats(value + 4 * (j * step + head * dim), dim).forEach((each, d) => (sum[d] += weight * each)));
    core.floats(mixed + 4 * (row * heads * dim + head * dim), dim).set(sum);
  }
}

// The page's data of a head with cut rows: `weights` (rows · keys) become those with the cuts.
export function cutEntry(core, place, head, edit, layer, weights, statistics) {
  const { count } = place;
  const without = withoutOf(edit, layer, head);
  if (!without.size) return { ...statistics, mask: { kind: "none" } };
  const rows = weights.length / count;
  const [lse, entropies] = [statistics.lse.slice(), statistics.entropies.slice()];
  for (const [row, keys] of without) {
    if (row >= rows) continue;
    const found = rowWithout(core, place, head, row, keys);
    weights.set(found.weights, row * count);
    [lse[row], entropies[row]] = [found.lse, found.weights.reduce((sum, each) => (each > 0 ? sum - each * Math.log(each) : sum), 0)];
  }
  const received = Float32Array.from({ length: count }, (_, j) => { let sum = 0; for (let i = 0; i < rows; i++) sum += weights[i * count + j]; return sum / rows; });
  return { ...statistics, lse, entropies, received, base: baseOf(weights, count, statistics.base), links: linksOf(...topOf(weights, rows, count)), mask: { kind: "bits", bits: bitsOf(without, rows, count) } };
}

function bitsOf(without, rows, count) {
  const bits = new Uint8Array(Math.ceil((rows * count) / 8)).fill(255);
  for (const [row, keys] of without) for (const key of keys) bits[(row * count + key) >> 3] &= ~(1 << ((row * count + key) & 7));
  return bits;
}

function topOf(weights, rows, count) {
  const [largest, keys] = [new Float32Array(rows * TOP), new Int32Array(rows * TOP).fill(-1)];
  for (let i = 0; i < rows; i++) {
    const row = weights.subarray(i * count, (i + 1) * count);
    Array.from(row.keys()).filter((j) => row[j] > 0).sort((a, b) => row[b] - row[a] || a - b).slice(0, TOP).forEach((j, n) => ([largest[i * TOP + n], keys[i * TOP + n]] = [row[j], j]));
  }
  return [largest, keys];
}

function baseOf(weights, count, base) {
  const { rows, columns, rowEdges, keyEdges } = base;
  const [max, mean] = [new Float32Array(rows * columns), new Float32Array(rows * columns)];
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
    let [sum, largest, cells] = [0, 0, 0];
    for (let i = rowEdges[r]; i < rowEdges[r + 1]; i++) for (let j = keyEdges[c]; j < keyEdges[c + 1]; j++) [sum, largest, cells] = [sum + weights[i * count + j], Math.max(largest, weights[i * count + j]), cells + 1];
    [max[r * columns + c], mean[r * columns + c]] = [largest, sum / cells];
  }
  return { ...base, max: codesOf(max), mean: codesOf(mean) };
}

// The cuts whose pairs exist, or a sentence if a cut would leave a query without any key.
export function checkedCuts({ cuts, all }, rows, keys, words, causal = false) {
  const known = cuts.filter(({ row, key }) => row < rows && key < keys);
  for (const { layer, head } of known) for (const [row, without] of withoutOf({ cuts: known, all }, layer, head)) {
    const visible = causal ? row + 1 : keys;
    if ([...without].filter((key) => key < visible).length === visible) return { sentence: `Expected a cut that leaves “${words[row]}” a key in L${layer}H${head}, got one of the only key that it may see: its softmax would have nothing to divide. Fix: undo another cut first.`, refused: true };
  }
  return { cuts: known, all };
}

export const namesOf = ({ cuts }, queries, keys) => cuts.map(({ row, key }) => [queries[row], keys[key]]);

// The first row from `first` on without a cut; null if there is none.
export function uncutRow({ cuts }, first, rows) {
  const changed = new Set(cuts.map(({ row }) => row));
  for (let n = 0; n < rows; n++) if (!changed.has((first + n) % rows)) return (first + n) % rows;
  return null;
}
