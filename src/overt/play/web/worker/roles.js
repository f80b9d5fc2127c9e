import { repetitionScores, repetitionsOf } from "./repetition.js";

// What a head does in a text: the share of its weight that each plain pattern gets, as lens/statistics/roles.py measures it.

const [DECISIVE, UNIFORM] = [0.5, 0.95];
const SEPARATORS = new Set(["[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"]);

// The pairs of each pattern, the same for all heads, { plain, repeated }: of the plain ones [name, rows, keys, how many queries have any]. `tokens` is
// { ids, words, special }.
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
  const plain = Object.entries(patterns).map(([name, keysOf]) => {
    const keys = ids.map((_, i) => keysOf(i));
    return [name, keys.flatMap((of, i) => of.map(() => i)), keys.flat(), keys.filter((of) => of.length).length];
  });
  return { plain, repeated: repetitionsOf(ids) };
}

// { role, roleScore, roleScores, entropy } of one head: its weights, a row a query, and what the core says of them.
export function roleOf({ plain, repeated }, weights, { entropies, received }) {
  const [scores, entropy, keyCount] = [{}, mean(entropies), weights.length / entropies.length];
  const weight = (i, j) => weights[i * keyCount + j];
  for (const [name, rows, keys, count] of plain) if (count) scores[name] = rows.reduce((sum, i, pair) => sum + weight(i, keys[pair]), 0) / count;
  const repetition = repetitionScores(repeated, entropies.length, weight, received);
  for (const [name, { share }] of Object.entries(repetition)) scores[name] = share;
  const uniform = entropy / Math.log(entropies.length);
  const roleScores = { ...scores, uniform };
  const [role, roleScore] = Object.values(roleScores).some(Number.isNaN) ? ["NaN", NaN] : uniform >= UNIFORM ? ["uniform", uniform] : decided(scores, repetition);
  return { role, roleScore, roleScores, entropy };
}

// A repetition that is above chance decides first; one that is not is at most perhaps what the head does.
function decided(scores, repetition) {
  const largest = (entries) => entries.reduce((a, b) => (b[1] > a[1] ? b : a), ["", -Infinity]);
  const [above, any] = [largest(Object.entries(scores).filter(([name]) => repetition[name]?.aboveChance)), largest(Object.entries(scores))];
  if (above[1] >= DECISIVE) return above;
  if (any[1] < DECISIVE) return ["content", 1 - any[1]];
  return any[0] in repetition && !repetition[any[0]].aboveChance ? [`perhaps ${any[0]}`, any[1]] : any;
}

const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
