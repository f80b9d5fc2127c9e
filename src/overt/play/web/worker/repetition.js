// What a head does where a text repeats itself: its share of the weight on other copies of the query's token, and on the keys behind them, beside the
// largest of three chances, as lens/statistics/repetition.py measures it.

const Z = 1.959964;

// The pairs of each pattern, the same for all heads: [name, rows, keys, queries that have any, their effective number]; none where no token comes twice.
export function repetitionsOf(ids) {
  if (new Set(ids).size === ids.length) return [];
  const copies = (i) => ids.flatMap((id, j) => (id === ids[i] ? [j] : []));
  const patterns = {
    "induction": (i) => copies(i).map((j) => j + 1).filter((j) => j < ids.length && j !== i && j !== i + 1),
    "duplicate token": (i) => copies(i).filter((j) => j !== i),
  };
  return Object.entries(patterns).map(([name, keysOf]) => {
    const keys = ids.map((_, i) => keysOf(i));
    const groups = new Map();
    ids.forEach((id, i) => keys[i].length && groups.set(id, (groups.get(id) ?? 0) + 1));
    const count = keys.filter((of) => of.length).length;
    const squares = [...groups.values()].reduce((sum, each) => sum + each ** 2, 0);
    return { name, rows: keys.flatMap((of, i) => of.map(() => i)), keys: keys.flat(), count, effective: count ** 2 / squares };
  }).filter(({ count }) => count);
}

// Of each pattern { share, aboveChance }; `weight(i, j)` is one of the head's weights, `received` is what each key gets on average.
export function repetitionScores(patterns, count, weight, received) {
  const means = new Map();
  const atDistance = (distance) => {
    if (!means.has(distance)) means.set(distance, meanAt(distance, count, weight));
    return means.get(distance);
  };
  return Object.fromEntries(patterns.map(({ name, rows, keys, count: queries, effective }) => {
    const sum = (of) => rows.reduce((total, i, pair) => total + of(i, keys[pair]), 0) / queries;
    const share = sum(weight);
    const chance = Math.min(1, Math.max(sum(() => 1 / count), sum((i, j) => atDistance(j - i)), sum((_, j) => received[j])));
    return [name, { share, aboveChance: lowEnd(share, effective) > chance }];
  }));
}

// The mean weight at a distance from query to key.
function meanAt(distance, count, weight) {
  let total = 0;
  const [first, last] = [Math.max(0, -distance), Math.min(count, count - distance)];
  for (let i = first; i < last; i++) total += weight(i, i + distance);
  return total / (last - first);
}

// The lower end of the 95 % interval of Wilson 1927 for a mean of values between 0 and 1.
function lowEnd(share, number) {
  const mean = Math.min(1, Math.max(0, share));
  const [middle, half] = [mean + Z ** 2 / (2 * number), Z * Math.sqrt((mean * (1 - mean)) / number + (Z / (2 * number)) ** 2)];
  return Math.max(0, (middle - half) / (1 + Z ** 2 / number));
}
