// What a head does where a text repeats itself: its share of the weight on other copies of the query's token, and on the keys behind them, compared with the
// largest of three chances, as lens/statistics/repetition.py measures it.

const Z = 1.959964;

// Indices of the pairs' weights, a row for each query; `keys` has a list for each query.
export const placesOf = (keys, count) => Int32Array.from(keys.flatMap((of, i) => of.map((j) => i * count + j)));

export function sumAt(numbers, places) {
  let sum = 0;
  for (let n = 0; n < places.length; n++) sum += numbers[places[n]];
  return sum;
}

// The positions of each token.
export function copiesOf(ids) {
  const result = new Map();
  ids.forEach((id, j) => (result.has(id) ? result.get(id).push(j) : result.set(id, [j])));
  return result;
}

// The pairs of each pattern, the same for all heads: { name, pairs, keys, distances, count, effective } with the queries that have any and their
// effective number; none where no token comes twice.
export function repetitionsOf(ids) {
  if (new Set(ids).size === ids.length) return [];
  const copies = copiesOf(ids);
  const patterns = {
    "induction": (i) => copies.get(ids[i]).map((j) => j + 1).filter((j) => j < ids.length && j !== i && j !== i + 1),
    "duplicate token": (i) => copies.get(ids[i]).filter((j) => j !== i),
  };
  return Object.entries(patterns).map(([name, keysOf]) => {
    const keys = ids.map((_, i) => keysOf(i));
    const groups = new Map();
    ids.forEach((id, i) => keys[i].length && groups.set(id, (groups.get(id) ?? 0) + 1));
    const count = keys.filter((of) => of.length).length;
    const squares = [...groups.values()].reduce((sum, each) => sum + each ** 2, 0);
    const distances = keys.flatMap((of, i) => of.map((j) => ids.length - 1 + j - i));
    return { name, pairs: placesOf(keys, ids.length), keys: keys.flat(), distances, count, effective: count ** 2 / squares };
  }).filter(({ count }) => count);
}

// For each pattern { share, aboveChance } in one head, from its weights (N · N) and the mean weight that each key receives.
export function repetitionScores(patterns, weights, received) {
  if (!patterns.length) return {};
  const [count, atDistance] = [received.length, meansAtDistances(weights, received.length)];
  return Object.fromEntries(patterns.map(({ name, pairs, keys, distances, count: queries, effective }) => {
    const share = sumAt(weights, pairs) / queries;
    const chance = Math.min(1, Math.max(pairs.length / count, sumAt(atDistance, distances), sumAt(received, keys)) / queries);
    return [name, { share, aboveChance: lowEnd(share, effective) > chance }];
  }));
}

// The mean weight at each distance from query to key, from 1 − N on.
function meansAtDistances(weights, count) {
  const result = new Float64Array(2 * count - 1);
  for (let i = 0; i < count; i++) for (let j = 0; j < count; j++) result[count - 1 + j - i] += weights[i * count + j];
  return result.map((sum, n) => sum / (count - Math.abs(n - count + 1)));
}

// The lower end of the 95 % interval of Wilson 1927 for a mean of values between 0 and 1.
function lowEnd(share, number) {
  const mean = Math.min(1, Math.max(0, share));
  const [middle, half] = [mean + Z ** 2 / (2 * number), Z * Math.sqrt((mean * (1 - mean)) / number + (Z / (2 * number)) ** 2)];
  return Math.max(0, (middle - half) / (1 + Z ** 2 / number));
}
