// What a head does in a text: the share of its weight that each plain pattern gets, as lens/statistics/roles.py measures it.

const [DECISIVE, UNIFORM] = [0.5, 0.95];
const SEPARATORS = new Set(["[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"]);

// The pairs of each pattern, the same for all heads: [name, rows, keys, how many queries have any]. `tokens` is { ids, words, special }.
export function patternsOf({ ids, words, special }) {
  const first = special.length ? 0 : -1;
  const separators = ids.map((_, j) => j).filter((j) => !(special[j] && j === first) && (special[j] || SEPARATORS.has(words[j])));
  const places = new Map();
  ids.forEach((id, j) => places.set(id, [...(places.get(id) ?? []), j]));
  const last = ids.length - 1;
  const patterns = {
    "previous token": (i) => (i > 0 ? [i - 1] : []),
    "next token": (i) => (i < last ? [i + 1] : []),
    "first token": (i) => (i > 0 ? [0] : []),
    "separator": () => separators,
    "same token": (i) => places.get(ids[i]),
  };
  return Object.entries(patterns).map(([name, keysOf]) => {
    const keys = ids.map((_, i) => keysOf(i));
    return [name, keys.flatMap((of, i) => of.map(() => i)), keys.flat(), keys.filter((of) => of.length).length];
  });
}

// { role, roleScore, roleScores, entropy } of one head: its vectors, the log-sum-exp of its rows, and their entropies.
export function roleOf(patterns, query, key, scale, lse, entropies) {
  const [scores, entropy] = [{}, mean(entropies)];
  for (const [name, rows, keys, count] of patterns) if (count) scores[name] = sumOf(query, key, scale, lse, rows, keys) / count;
  const uniform = entropy / Math.log(entropies.length);
  const [best, share] = Object.entries(scores).reduce((a, b) => (b[1] > a[1] ? b : a));
  const roleScores = { ...scores, uniform };
  const decided = Object.values(roleScores).some(Number.isNaN) ? ["NaN", NaN] : uniform >= UNIFORM ? ["uniform", uniform] : share >= DECISIVE ? [best, share] : ["content", 1 - share];
  return { role: decided[0], roleScore: decided[1], roleScores, entropy };
}

// The weights of these pairs, added up.
function sumOf(query, key, scale, lse, rows, keys) {
  const { width } = query;
  let total = 0;
  for (let pair = 0; pair < rows.length; pair++) {
    const [q, k] = [rows[pair] * width, keys[pair] * width];
    let score = 0;
    for (let d = 0; d < width; d++) score += query.data[q + d] * key.data[k + d];
    total += Math.exp(score * scale - lse[rows[pair]]);
  }
  return total;
}

const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
