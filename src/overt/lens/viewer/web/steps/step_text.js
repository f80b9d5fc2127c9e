// The names of the steps in each kind of layer, a sentence on each step, and its numbers for one pair.
import { bracketed, decimals, number, scientific, vectorText } from "../../../../drawing/web/numbers.js";
import { label } from "../data/labels.js";
import { betweenOf, byDimension } from "./step_numbers.js";

const COUNT = { 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven" };
export const countWord = (count) => COUNT[count] ?? String(count);

// "hidden" for a [h, c] layer, "states" if values are the states themselves, "plain" if the vectors themselves are query, key and
// value, "mixer" for a linear one, "stored" if the page holds only weights, "qkv" for learned queries, keys and values.
export function recipeOf(head) {
  if (head.signed) return "mixer";
  if (head.stored) return "stored";
  if (head.recipe) return head.recipe;
  if (head.width !== head.valueWidth || head.queryCount !== head.keyCount) return "qkv";
  const same = [0, head.keyCount - 1].every((i) => head.query(i).every((value, d) => value === head.key(i)[d] && value === head.value(i)[d]));
  return same ? "plain" : "qkv";
}

// The names of the steps' parts: the query's own vector, each key's, the weight, the weighted value, the sum.
export function namesOf(head, query) {
  const recipe = recipeOf(head);
  if (recipe === "mixer") return { query: "query", key: "k", value: "v", weight: "W", weighted: "W·v", sum: "output = Σ W·v" };
  const own = { hidden: ["h", "a", "c"], states: ["h", "a", "c"], plain: ["x", "W", "y"] }[recipe];
  if (!own) return { query: "q", key: "key", value: "value", weight: "α", weighted: "α·v", sum: "output = Σ α·v" };
  const [i, [vector, weight, sum]] = [query + 1, own];
  return { own: vector, query: `${vector}_${i}`, value: `${vector}_j`, weight: `${weight}_${i}j`, weighted: `${weight}_${i}j ${vector}_j`, sum: `${sum}_${i} = Σ ${weight}_${i}j ${vector}_j` };
}

// The steps of a head for one query, numbered from 1: { key, number, title, formula, sentence }.
export function stagesOf(head, query) {
  const [recipe, names, word] = [recipeOf(head), namesOf(head, query), `“${label(head.queries[query], 80)}”`];
  const first = { mixer: mixerStages, stored: () => [], hidden: stateStages, states: stateStages, plain: plainStages }[recipe] ?? trainedStages;
  const last = recipe === "mixer" || recipe === "stored" ? [] : betweenStages(head);
  const texts = [...first(head, names, word, query + 1), ...last, ...closing(head, recipe, names, word, query + 1)];
  return texts.map(([key, title, formula, sentence], i) => ({ key, number: i + 1, title, formula, sentence }));
}

const scoreFormula = (head) => ({ gaussian: "−|q − k|² ÷ 2h²", additive: `w · ${head.terms.score.activation}(q + k)` })[head.terms.score.kind] ?? "q·k";

// The formula names states or vectors that serve as query and key themselves; learned queries and keys have the score's formula.
export function formulaOf(head, query) {
  return { hidden: `f(h_${query + 1}, h_j)`, states: `f(h_${query + 1}, h_j)`, plain: `x_${query + 1}·x_j` }[recipeOf(head)] ?? scoreFormula(head);
}

function betweenStages(head) {
  const result = betweenOf(head);
  if (!result.length) return [];
  const formula = result.map(([name, text]) => (name === "scale" ? text : `+ ${name}`)).join(" ");
  const sentences = result.map(([name, text]) => (name === "scale" ? scaleText(text) : `${name}: ${text}`));
  return [["scale", result.map(([name]) => name).join(" and "), formula, `${sentences.join("; ")}.`]];
}

const scaleText = (name) => (name.startsWith("÷") ? `Dividing by ${name.slice(2)} keeps wide vectors from making every score large` : `Scores are multiplied by ${name.slice(2)}`);

function normalizing(head) {
  if (head.normalizer === "sum") return "Dividing by the plain sum gives weights that sum to 1; some may be negative.";
  return `Softmax turns the scores into positive weights that sum to 1${head.sink === null ? "" : " together with the share of the sink"}.`;
}

const normalizerName = (head) => (head.normalizer === "sum" ? "plain sum" : head.normalizer);

function trainedStages(head, names, word) {
  const wide = head.width === head.valueWidth ? `${head.width} numbers each` : `${head.width} numbers, values ${head.valueWidth}`;
  return [
    ["vectors", "query, key, value", "q, k, v", `Three learned matrices make a query, a key and a value of each token, ${wide}.`],
    ["score", "score", formulaOf(head), `The query of ${word} is compared with the key of every token: the better they match, the higher the score.`],
  ];
}

function stateStages(head, names, word, i) {
  return [
    ["vectors", "hidden states", `h_1 … h_${head.keyCount}`, `The layer reads the sequence and gives a hidden state at each position, ${head.valueWidth} numbers each.`],
    ["score", "score", formulaOf(head, i - 1), `The state h_${i}, of ${word}, is scored against every state of the sequence.`],
  ];
}

function plainStages(head, names, word, i) {
  return [
    ["vectors", "the vectors", "x", "No trained weights: each vector is its own query, key and value."],
    ["score", "score", formulaOf(head, i - 1), `W_${i}j before it is normalised: x_${i} against every vector.`],
  ];
}

function mixerStages(head) {
  const decay = ["decay", "decay", "Π a", "What a position wrote fades at each later position: this much is left of it where the row reads."];
  return [
    ["vectors", "key and value", "k, v", "Each position adds its value to a state, under its key; the strength of writing is part of the key."],
    ...(head.terms.mixer.decay ? [decay] : []),
    ["asking", "what the row asks for", "r", "On the walk back r begins as the row's query; each later position fades it and takes out what it erased."],
  ];
}

function closing(head, recipe, { weight, weighted, sum }, word, i) {
  if (recipe === "mixer") return [
    ["normalize", "weight", "W = k·r", "The weight is signed: a negative one subtracts the value. The weights of a row do not sum to 1."],
    ["weigh", "weighted value", weighted, "Each position's value is multiplied by its weight."],
    ["sum", "sum", "Σ W·v", "They add up to the output of the mixing, before what follows it in the layer."],
  ];
  if (recipe === "plain") return [
    ["normalize", normalizerName(head), weight, `W_${i}j after. ${normalizing(head)}`],
    ["weigh", "weight", weighted, "Each vector is multiplied by its weight."],
    ["sum", "new vector", sum, `The weighted vectors add up to y_${i}, in place of x_${i}.`],
  ];
  if (recipe === "hidden" || recipe === "states") return [
    ["normalize", normalizerName(head), weight, normalizing(head)],
    ["weigh", "weight", weighted, "Each hidden state is multiplied by its weight."],
    ["sum", "context", sum, "The weighted states add up to the context."],
    ...(recipe === "hidden" ? [["join", "join", `[h_${i}, c_${i}]`, `The next layer reads the state and its context, ${2 * head.valueWidth} numbers.`]] : []),
  ];
  const normalize = recipe === "stored" ? ["normalize", "weights", weight, "The page holds these weights themselves and does not compute them."] : ["normalize", normalizerName(head), weight, normalizing(head)];
  return [normalize, ["weigh", "weight", weighted, "Each token's value is multiplied by its weight."], ["sum", "sum", "Σ α·v", `The weighted values add up to this head's output for ${word}.`]];
}

// A step's numbers for one pair, written out as far as they fit.
export function workingOf(head, steps, stage, query, key) {
  const [names, value, weight] = [namesOf(head, query), head.value(key) ?? [], number(steps.weights[key], 3)];
  const weighted = vectorText(Array.from(value, (each) => each * steps.weights[key]));
  switch (stage.key) {
    case "vectors":
      if (names.own) return `${names.query} = ${vectorText(steps.own)}   ${names.own}_${key + 1} = ${vectorText(value)}`;
      return `${head.signed ? "" : `q = ${vectorText(head.query(query))}   `}k = ${vectorText(head.key(key))}   v = ${vectorText(value)}`;
    case "decay":
      return `Π a = ${number(steps.left[key], 4)}`;
    case "asking":
      return `r = ${vectorText(steps.asking(key))}`;
    case "score":
      return scoreWorking(head, steps, stage, query, key);
    case "scale":
      return betweenWorking(head, steps, key);
    case "normalize":
      return normalizeWorking(head, steps, key);
    case "weigh":
      return `${weight} · ${vectorText(value)} = ${weighted}`;
    case "join":
      return `${stage.formula} = ${vectorText([...(steps.own ?? []), ...(steps.output ?? [])], 4)}`;
    default:
      return `adds ${weighted} to ${names.sum} = ${vectorText(steps.output ?? [])}`;
  }
}

function scoreWorking(head, steps, stage, query, key) {
  const [q, k, parts] = [head.query(query), head.key(key), byDimension(head, query, key)];
  const dot = head.terms.score.kind === "dot";
  const terms = Array.from(parts.slice(0, 3), (part, d) => (dot ? `${number(q[d])}·${bracketed(k[d])}` : bracketed(part))).join(" + ");
  const result = number(steps.raw[key], decimals([steps.raw[key]]));
  return `${stage.formula.replaceAll("_j", `_${key + 1}`)} = ${terms}${parts.length > 3 ? ` + … ${parts.length} terms` : ""} = ${result}`;
}

function betweenWorking(head, steps, key) {
  const [score, masked] = [steps.scores[key], steps.masked[key]];
  const parts = [number(steps.raw[key])];
  const result = Object.fromEntries(betweenOf(head));
  if (result.scale) parts.push(`${result.scale}${result.softcap ? ", capped," : ""} = ${number(score, 3)}`);
  else if (result.softcap) parts.push(`capped = ${number(score, 3)}`);
  if (masked === -Infinity) parts.push("masked: −∞");
  else if (result.bias) parts.push(`+ bias ${number(masked - score, 3)} = ${number(masked, 3)}`);
  return parts.join(" ");
}

function normalizeWorking(head, steps, key) {
  const weight = steps.weights[key] !== 0 && Math.abs(steps.weights[key]) < 5e-4 ? scientific(steps.weights[key]) : number(steps.weights[key], 3);
  if (head.signed) return `k·r = ${vectorText(head.key(key))} · ${vectorText(steps.asking(key))} = ${number(steps.weights[key], 4)}`;
  if (head.stored) return `α = ${weight}`;
  if (head.normalizer === "sum") return `${number(steps.masked[key])} ÷ ${number(steps.masked[key] / steps.weights[key])} = ${weight}`;
  const sink = head.sink === null ? "" : `; the sink, ${number(head.sink)}, has the share ${number(1 - totalOf(steps.weights), 3)}`;
  const scaled = steps.masked[key] / head.terms.temperature;
  if (scaled === -Infinity) return `e^−∞ = 0${sink}`;
  const whole = Math.exp(scaled) / steps.weights[key];
  if (whole < 1e6) return `e^${number(scaled, 3)} ÷ Σ e^s = ${number(Math.exp(scaled))} ÷ ${number(whole)} = ${weight}${sink}`;
  return `e^${number(scaled, 3)} ÷ Σ e^s, which is e^${number(scaled - Math.log(steps.weights[key]), 3)}: ${weight}${sink}`;
}

// The sink got the share missing from 1.
export const totalOf = (weights) => weights.reduce((sum, weight) => sum + weight, 0);
