import { codeOf } from "../../../lens/viewer/web/data/exact.js";

// A layer's attention for the page: each head's queries, keys and values, and the core's summary of its weights.

export const TOP = 8; // the largest weights of a query, from which links are chosen
const LINKS = 100;

// The core's description of a call, in its memory. Queries, keys and values are rows of `row` numbers.
export function callOf(core, { query, key, value, queries, keys, heads, headDim, row, keyRow = row, causal = false, scale = 1 / Math.sqrt(headDim) }) {
  const address = core.put(Int32Array.of(query, key, value, queries, keys, heads, headDim, row, keyRow, Number(causal), 0));
  core.floats(address + 40, 1)[0] = scale;
  return address;
}

// Head h of rows of numbers, as separate vectors: { data, scale, width, count }.
export function headOf(core, start, count, row, head, width) {
  const [rows, data] = [core.floats(start, count * row - row + (head + 1) * width), new Float32Array(count * width)];
  for (let i = 0; i < count; i++) for (let d = 0; d < width; d++) data[i * width + d] = rows[i * row + head * width + d];
  return { data, scale: null, width, count };
}

// Statistics of all heads of a call, as entries of the page: lse, entropies, received, base, links.
export function statisticsOf(core, call, { queries, keys, heads }, most) {
  const before = core.allocate(0);
  const cells = [Math.min(queries, most), Math.min(keys, most)];
  const sizes = [queries, queries, keys, queries * TOP, queries * TOP, cells[0] * cells[1], cells[0] * cells[1]];
  const [lse, entropy, received, weights, top, mean, max] = sizes.map((size) => core.room(heads * size));
  core.summarize(call, lse, entropy, received, TOP, weights, top, most, mean, max);
  const edges = [edgesOf(queries, cells[0]), edgesOf(keys, cells[1])];
  const part = (address, size, head) => core.floats(address + 4 * head * size, size).slice();
  const codes = (address, head) => codesOf(core.floats(address + 4 * head * sizes[5], sizes[5]));
  const result = Array.from({ length: heads }, (_, head) => ({
    lse: part(lse, queries, head), entropies: part(entropy, queries, head), received: part(received, keys, head),
    base: { rows: cells[0], columns: cells[1], max: codes(max, head), mean: codes(mean, head), rowEdges: edges[0], keyEdges: edges[1] },
    links: linksOf(part(weights, sizes[3], head), core.integers(top + 4 * head * sizes[4], sizes[4]).slice()),
  }));
  core.release(before);
  return result;
}

// All weights of one head, `keys` in a row, from the result of `statisticsOf`; in the core's memory until it is reused.
export function headWeights(core, call, head, { lse }, keys) {
  const before = core.allocate(0);
  const [rows, to] = [core.put(lse), core.room(lse.length * keys)];
  core.weights(call, head, rows, to);
  core.release(before);
  return core.floats(to, lse.length * keys);
}

export function codesOf(weights) {
  const codes = new Uint8Array(weights.length);
  for (let i = 0; i < codes.length; i++) codes[i] = codeOf(weights[i]);
  return codes;
}

const edgesOf = (length, cells) => Int32Array.from({ length: cells + 1 }, (_, i) => Math.floor((i * length) / cells));

// The strongest of each query's largest weights, strongest first; of equal weights the earliest.
export function linksOf(weights, keys) {
  const order = strongest(weights, keys);
  const links = { weights: new Float32Array(order.length), rows: new Int32Array(order.length), keys: new Int32Array(order.length) };
  order.forEach((place, n) => ([links.weights[n], links.rows[n], links.keys[n]] = [weights[place], Math.floor(place / TOP), keys[place]]));
  return links;
}

// The places of the LINKS largest weights. Numbers alone are sorted fast: the bits of a size, which order as sizes do, then the place from the end.
// The first of a query's weights is its largest, so weights below the last of the LINKS largest first ones are excluded.
function strongest(weights, keys) {
  const places = weights.length;
  const bits = new Uint32Array(weights.slice().buffer);
  const largest = (step, least) => {
    const codes = new Float64Array(places / step);
    let count = 0;
    for (let i = 0; i < places; i += step) if (keys[i] >= 0 && !Number.isNaN(weights[i]) && (bits[i] & 0x7fffffff) >= least) codes[count++] = (bits[i] & 0x7fffffff) * places + places - 1 - i;
    return codes.subarray(0, count).sort().slice(-LINKS);
  };
  const firsts = largest(TOP, 0);
  const least = firsts.length < LINKS ? 0 : Math.floor(firsts[0] / places);
  return largest(1, least).reverse().map((code) => places - 1 - (code % places));
}
