// The exact mathematics: scores and weights of any rows and keys, from the packed data. Pure functions on plain objects, used by
// the page and by its Worker. Sums are in double precision.
//
// `terms` are the terms of a head's weights: { queryCount, keyCount, width, query, key, score, bias, mask, temperature, lse,
// normalizer, weights }; `lse` is the log-sum-exp of each row, or the sum if the normalizer is the plain sum. `query` and `key` are vectors: { data, scale, width }, int16 with a scale for each vector, or float32 (scale null).

// One vector of `vectors` as float32 numbers.
export function vectorAt(vectors, i, out = new Float32Array(vectors.width)) {
  const { data, scale, width } = vectors;
  const start = i * width;
  if (scale === null) for (let d = 0; d < width; d++) out[d] = data[start + d];
  else for (let d = 0; d < width; d++) out[d] = data[start + d] * scale[i];
  return out;
}

// The first key that a query may attend to and the one after the last; null if the mask is not a run of keys.
export function runOf(terms, i) {
  const { mask, keyCount } = terms;
  if (mask.kind === "none") return [0, keyCount];
  if (mask.kind === "causal") return [0, Math.max(0, Math.min(keyCount, i + mask.offset + 1))];
  if (mask.kind === "ranges") {
    const position = mask.starts.length === 1 ? 0 : i;
    return [mask.starts[position], mask.stops[position]];
  }
  return null;
}

export function allowedAt(terms, i, j) {
  const run = runOf(terms, i);
  if (run) return j >= run[0] && j < run[1];
  const position = i * terms.keyCount + j;
  return ((terms.mask.bits[position >> 3] >> (position & 7)) & 1) === 1;
}

const ACTIVATION = {
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  relu: (x) => Math.max(x, 0),
  leaky_relu: (x) => (x > 0 ? x : 0.2 * x),
};

// The score of query and key before bias and temperature.
export function scoreOf(score, q, k) {
  let sum = 0;
  if (score.kind === "gaussian") {
    for (let d = 0; d < q.length; d++) sum += (q[d] - k[d]) * (q[d] - k[d]);
    return -sum / (2 * score.bandwidth * score.bandwidth);
  }
  if (score.kind === "additive") {
    const act = ACTIVATION[score.activation];
    for (let d = 0; d < q.length; d++) sum += score.weight[d] * act(q[d] + k[d]);
    return sum;
  }
  for (let d = 0; d < q.length; d++) sum += q[d] * k[d];
  sum *= score.scale;
  return score.softcap === null ? sum : score.softcap * Math.tanh(sum / score.softcap);
}

// The bias of query i and key j.
export function biasOf(terms, i, j) {
  const { bias, keyCount } = terms;
  if (bias.kind === "none") return 0;
  if (bias.kind === "alibi") return -bias.slope * Math.abs(j - i - bias.offset);
  if (bias.kind === "distance") return bias.values[j - i + terms.queryCount - 1];
  if (bias.kind === "key") return bias.values[j];
  if (bias.kind === "query") return bias.values[i];
  if (bias.kind === "lines") return bias.queries[i] + bias.keys[j] + (bias.queries[i + terms.queryCount] + bias.keys[j + keyCount]);
  return bias.values[i * keyCount + j];
}

// The mark of a masked weight, which differs from every weight.
export const MASKED = -Infinity;

// The walk of one row of a linear mixer back over positions, down to key `from`: visit(j, weight, r) at each j.
// r begins as the query and changes by r ← a_j ∘ r + p_j (u_j · r); the weight is k_j · r. Returns r after the walk.
export function walkBack(terms, i, from, visit) {
  const { mixer, width, keyCount, queryCount, key } = terms;
  const own = i + keyCount - queryCount;
  const asks = Float64Array.from(vectorAt(terms.query, i));
  const product = (vectors, j) => {
    let sum = 0;
    for (let d = 0; d < width; d++) sum += vectors.data[j * width + d] * asks[d];
    return sum;
  };
  const divisor = mixer.divisors ? mixer.divisors[i] : 1;
  for (let j = own - (mixer.before ? 1 : 0); j >= from; j--) {
    const diagonal = j === own && mixer.diagonal ? mixer.diagonal[i] : 0;
    visit(j, (product(key, j) + diagonal) / divisor, asks);
    const read = mixer.erase ? product(mixer.erase, j) : 0;
    for (let d = 0; d < width; d++) {
      const decay = mixer.decay ? mixer.decay.data[mixer.decay.width === 1 ? j : j * width + d] : 1;
      asks[d] = decay * asks[d] + (mixer.erase ? mixer.probe.data[j * width + d] * read : 0);
    }
  }
  if (mixer.before && mixer.diagonal && own >= from) visit(own, mixer.diagonal[i] / divisor, null);
  return asks;
}

function mixerTile(terms, r0, r1, k0, k1, marked) {
  const keys = k1 - k0;
  const result = new Float32Array((r1 - r0) * keys).fill(marked ? MASKED : 0);
  for (let i = r0; i < r1; i++) {
    walkBack(terms, i, k0, (j, weight) => {
      if (j < k1) result[(i - r0) * keys + j - k0] = weight;
    });
  }
  return result;
}

// The weights of queries r0 … r1 for keys k0 … k1, row by row; masked keys are MASKED where `marked`, else 0.
export function tile(terms, r0, r1, k0, k1, marked = false) {
  if (terms.mixer) return mixerTile(terms, r0, r1, k0, k1, marked);
  const [rows, keys] = [r1 - r0, k1 - k0];
  const result = new Float32Array(rows * keys).fill(marked ? MASKED : 0);
  const { width, score, temperature, lse, normalizer } = terms;
  const stored = terms.weights;
  const block = new Float32Array(stored ? 0 : keys * width);
  if (!stored) for (let j = 0; j < keys; j++) vectorAt(terms.key, k0 + j, block.subarray(j * width, (j + 1) * width));
  const plain = score.kind === "dot" && score.softcap === null;
  const q = new Float32Array(width);
  for (let i = r0; i < r1; i++) {
    if (!stored && lse[i] === -Infinity) continue; // the query may attend to no key
    const run = runOf(terms, i);
    const [from, to] = run ? [Math.max(run[0], k0), Math.min(run[1], k1)] : [k0, k1];
    if (!stored) vectorAt(terms.query, i, q);
    for (let j = from; j < to; j++) {
      if (!run && !allowedAt(terms, i, j)) continue;
      const position = (i - r0) * keys + j - k0;
      if (stored) {
        result[position] = stored.data[i * stored.width + j] * (stored.scale === null ? 1 : stored.scale[i]);
        continue;
      }
      let sum = 0;
      if (plain) {
        const start = (j - k0) * width;
        for (let d = 0; d < width; d++) sum += q[d] * block[start + d];
        sum *= score.scale;
      } else sum = scoreOf(score, q, block.subarray((j - k0) * width, (j - k0 + 1) * width));
      const masked = sum + biasOf(terms, i, j);
      result[position] = normalizer === "sum" ? masked / lse[i] : Math.exp(masked / temperature - lse[i]);
    }
  }
  return result;
}

// All weights of query i, one per key.
export function weightsRow(terms, i) {
  return tile(terms, i, i + 1, 0, terms.keyCount);
}

// All weights of key j, one per query.
export function weightsColumn(terms, j) {
  return tile(terms, 0, terms.queryCount, j, j + 1);
}

// Maps are bytes on a logarithmic scale: 0 is masked, 1 to 254 are 2^−24 and less to 1, 255 is NaN.
export const OCTAVES = 24;

// Maps of signed weights have their sizes from 2^−18 to 2^6, 126 steps above code 128, which is 0, and as many below it.
export const ZERO = 128;
const [SIGNED_OCTAVES, SIGNED_TOP, SIDES] = [24, 6, 126];

// The byte of a weight; in an unsigned map a negative weight, which some normalizers give, counts by its size.
export function codeOf(weight, signed = false) {
  if (weight !== weight) return 255;
  if (weight === MASKED) return 0;
  if (signed && weight === 0) return ZERO;
  if (signed) {
    const step = Math.round(1 + (SIDES - 1) * (1 + (Math.log2(Math.abs(weight)) - SIGNED_TOP) / SIGNED_OCTAVES));
    return ZERO + Math.sign(weight) * Math.max(1, Math.min(SIDES, step));
  }
  return Math.max(1, Math.min(254, Math.round(1 + 253 * (1 + Math.log2(Math.abs(weight)) / OCTAVES))));
}

export function weightOf(code, signed = false) {
  if (signed && code !== 255 && code !== 0) {
    const step = Math.abs(code - ZERO);
    return step === 0 ? 0 : Math.sign(code - ZERO) * 2 ** (((step - 1) / (SIDES - 1) - 1) * SIGNED_OCTAVES + SIGNED_TOP);
  }
  return code === 255 ? NaN : code === 0 ? 0 : 2 ** (((code - 1) / 253 - 1) * OCTAVES);
}

// Largest and mean weight of cells of `step` × `step` weights, from row r0 and key k0 on: { max, mean }, rows × columns numbers.
// A cell with a NaN is NaN; a fully masked cell is MASKED. The largest of signed weights is the one with the largest size.
export function pooled(terms, r0, k0, rows, columns, step) {
  const [max, sum] = [new Float32Array(rows * columns).fill(MASKED), new Float64Array(rows * columns)];
  const lastRow = Math.min(terms.queryCount, r0 + rows * step);
  const lastKey = Math.min(terms.keyCount, k0 + columns * step);
  const wide = lastKey - k0;
  const band = Math.max(1, Math.floor(65536 / Math.max(1, wide)));
  for (let row = r0; row < lastRow; row += band) {
    const stop = Math.min(row + band, lastRow);
    const weights = tile(terms, row, stop, k0, lastKey, true);
    for (let i = row; i < stop; i++) {
      const line = Math.floor((i - r0) / step) * columns;
      for (let j = 0; j < wide; j++) {
        const weight = weights[(i - row) * wide + j];
        const cell = line + Math.floor(j / step);
        if (weight === MASKED) continue;
        sum[cell] += weight;
        const larger = terms.mixer && max[cell] !== MASKED ? Math.abs(weight) > Math.abs(max[cell]) : weight > max[cell];
        if (weight !== weight || larger) max[cell] = max[cell] !== max[cell] ? NaN : weight;
      }
    }
  }
  return { max, mean: meansOf(sum, max, terms, r0, k0, columns, step) };
}

// Divides the sums by the number of weights of their cells, which is smaller at the edges.
function meansOf(sums, max, terms, r0, k0, columns, step) {
  return Float32Array.from(sums, (sum, cell) => {
    if (max[cell] === MASKED) return MASKED;
    const [row, key] = [r0 + Math.floor(cell / columns) * step, k0 + (cell % columns) * step];
    return sum / (Math.min(step, terms.queryCount - row) * Math.min(step, terms.keyCount - key));
  });
}
