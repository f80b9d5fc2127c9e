import { copiesOf, placesOf, repetitionScores, repetitionsOf, sumAt } from "./repetition.js";

// The role of a head in a text: the share of its weight for each plain pattern, as in lens/statistics/roles.py.

const [DECISIVE, UNIFORM] = [0.5, 0.95];
const SEPARATORS = new Set(["[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"]);

// The pairs of each pattern, the same for all heads, { plain, repeated }. A plain one is { name, count, pairs } with how many queries have any and where
// their weights are, a row a query; or { name, keys } if all queries have the same keys. `tokens` is { ids, words, special }.
export function patternsOf({ ids, words, special }) {
  const first = special.length ? 0 : -1;
  const separators = ids.map((_, j) => j).filter((j) => !(special[j] && j === first) && (special[j] || SEPARATORS.has(words[j])));
  const same = copiesOf(ids);
  const last = ids.length - 1;
  const patterns = {
    "previous token": (i) => (i > 0 ? [i - 1] : []),
    "next token": (i) => (i < last ? [i + 1] : []),
    "first token": (i) => (i > 0 ? [0] : []),
    "separator": null,
    "same token": (i) => same.get(ids[i]),
  };
  const plain = Object.entries(patterns).map(([name, keysOf]) => {
    if (!keysOf) return { name, count: separators.length, keys: separators };
    const keys = ids.map((_, i) => keysOf(i));
    return { name, count: keys.filter((of) => of.length).length, pairs: placesOf(keys, ids.length) };
  });
  return { plain, repeated: repetitionsOf(ids) };
}

// { role, roleScore, roleScores, entropy } of one head, from its weights, a row for each query, and the core's statistics.
export function roleOf({ plain, repeated }, weights, { entropies, received }) {
  const [scores, entropy] = [{}, mean(entropies)];
  for (const { name, keys, pairs, count } of plain) if (count) scores[name] = keys ? sumAt(received, keys) : sumAt(weights, pairs) / count;
  const repetition = repetitionScores(repeated, weights, received);
  for (const [name, { share }] of Object.entries(repetition)) scores[name] = share;
  const uniform = entropy / Math.log(entropies.length);
  const roleScores = { ...scores, uniform };
  const [role, roleScore] = Object.values(roleScores).some(Number.isNaN) ? ["NaN", NaN] : uniform >= UNIFORM ? ["uniform", uniform] : decided(scores, repetition);
  return { role, roleScore, roleScores, entropy };
}

// A repetition above chance decides first; otherwise repetition is at most possibly the role.
function decided(scores, repetition) {
  const largest = (entries) => entries.reduce((a, b) => (b[1] > a[1] ? b : a), ["", -Infinity]);
  const [above, any] = [largest(Object.entries(scores).filter(([name]) => repetition[name]?.aboveChance)), largest(Object.entries(scores))];
  if (above[1] >= DECISIVE) return above;
  if (any[1] < DECISIVE) return ["content", 1 - any[1]];
  return any[0] in repetition && !repetition[any[0]].aboveChance ? [`perhaps ${any[0]}`, any[1]] : any;
}

const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
