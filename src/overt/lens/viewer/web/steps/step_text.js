// What the six steps are called in each kind of layer, what each of them does in a sentence, and its numbers for one pair.
import { bracketed, decimals, number, scientific, vectorText } from "../../../../drawing/web/numbers.js";
import { betweenOf, byDimension } from "./step_numbers.js";

const COUNT = { 4: "Four", 5: "Five", 6: "Six", 7: "Seven" };
export const countWord = (count) => COUNT[count] ?? String(count);

// The steps of a head, numbered from 1: { key, number, title, formula, sentence }.
export function stagesOf(head) {
  const texts = head.signed ? mixerStages(head) : head.stored ? storedStages(head) : { hidden: hiddenStages, states: statesStages, plain: plainStages }[recipeOf(head)]?.(head) ?? trainedStages(head);
  return texts.map(([key, title, formula, sentence], i) => ({ key, number: i + 1, title, formula, sentence }));
}

// "hidden" for a [h, c] layer, "states" where values are the states themselves; "plain" where the vectors themselves are query, key and value; "qkv" for learned ones.
export function recipeOf(head) {
  if (head.recipe) return head.recipe;
  if (head.signed) return "mixer";
  if (head.stored || head.width !== head.valueWidth || head.queryCount !== head.keyCount) return "qkv";
  const last = head.keyCount - 1;
  const same = [0, last].every((i) => head.query(i).every((value, d) => value === head.key(i)[d] && value === head.value(i)[d]));
  return same ? "plain" : "qkv";
}

const SOFTMAX = "Softmax turns the scores into positive weights that sum to 1";
const softmaxText = (head) => (head.sink === null ? `${SOFTMAX}.` : `${SOFTMAX} together with the share of the sink.`);

function betweenText(head) {
  const result = betweenOf(head);
  const formula = result.map(([name, texts]) => (name === "scale" ? texts : `+ ${name}`)).join(" ") || "unchanged";
  const texts = result.map(([name, each]) => (name === "scale" ? scaleText(each) : `${name}: ${each}`));
  return [formula.replace(/^\+ /, ""), texts.length ? `${texts.join("; ")}.` : "Nothing is done to the scores before the softmax."];
}

const scaleText = (name) => (name.startsWith("÷") ? `Dividing by ${name.slice(2)} keeps wide vectors from making every score large` : `Scores are multiplied by ${name.slice(2)}`);

const formulaOf = (head) => ({ gaussian: "−|q − k|² ÷ 2h²", additive: `w · ${head.terms.score.activation}(q + k)` })[head.terms.score.kind] ?? "q·k";

function trainedStages(head) {
  return [
    ["vectors", "query, key, value", "q, k, v", `Learned matrices make a query, a key and a value of each token, ${widths(head)}.`],
    ["score", "score", formulaOf(head), "The query is compared with every key: the better they match, the higher the score."],
    ["scale", "scale and mask", ...betweenText(head)],
    ["normalize", "softmax", "α", softmaxText(head)],
    ["weigh", "weight", "α·v", "Each token's value is multiplied by its weight."],
    ["sum", "sum", "Σ α·v", "The weighted values add up to this head's output."],
  ];
}

function hiddenStages(head) {
  const result = [
    ["vectors", "hidden states", "h", `The layer gives a hidden state at each position, ${head.valueWidth} numbers each.`],
    ["score", "score", "f(h_i, h_j)", `The state is scored against every state of the sequence: ${formulaOf(head)}.`],
    ["scale", "scale and mask", ...betweenText(head)],
    ["normalize", "softmax", "a_ij", softmaxText(head)],
    ["weigh", "weight", "a_ij h_j", "Each hidden state is multiplied by its weight."],
    ["sum", "context", "c_i = Σ a_ij h_j", "The weighted states add up to the context."],
    ["join", "join", "[h_i, c_i]", `The next layer reads the state and its context, ${2 * head.valueWidth} numbers.`],
  ];
  return betweenOf(head).length ? result : result.filter(([key]) => key !== "scale");
}

const statesStages = (head) => hiddenStages(head).slice(0, -1);

function plainStages(head) {
  const result = trainedStages(head);
  result[0] = ["vectors", "the vectors", "x", "No trained weights: each vector is its own query, key and value."];
  return result;
}

function mixerStages(head) {
  const { decay } = head.terms.mixer;
  return [
    ["vectors", "key and value", "k, v", "Each position adds its value to a state, under its key; the strength of writing is part of the key."],
    ...(decay ? [["decay", "decay", "Π a", "What a position wrote fades at each later position: this much is left of it where the row reads."]] : []),
    ["asking", "what the row asks for", "r", "On the walk back r begins as the row's query; each later position fades it and takes out what it erased."],
    ["normalize", "weight", "W = k·r", "The weight is signed: a negative one subtracts the value. The weights of a row do not sum to 1."],
    ["weigh", "weighted value", "W·v", "Each position's value is multiplied by its weight."],
    ["sum", "sum", "Σ W·v", "They add up to the output of the mixing, before what stands behind it in the layer."],
  ];
}

function storedStages() {
  return [
    ["normalize", "weights", "α", "The page holds these weights themselves and does not compute them."],
    ["weigh", "weight", "α·v", "Each token's value is multiplied by its weight."],
    ["sum", "sum", "Σ α·v", "The weighted values add up to this head's output."],
  ];
}

const widths = (head) => (head.width === head.valueWidth ? `${head.width} numbers each` : `${head.width} numbers, values ${head.valueWidth}`);

// A step's numbers for one pair, written out as far as they fit.
export function workingOf(head, steps, stage, query, key) {
  const position = (values, minimum) => number(values[key], decimals([values[key]], minimum));
  switch (stage.key) {
    case "decay":
      return `Π a = ${number(steps.left[key], 3)} from here to the row`;
    case "asking":
      return `r = ${vectorText(steps.asking(key))}`;
    case "vectors":
      return `q = ${vectorText(head.query(query))}\nk = ${vectorText(head.key(key))}\nv = ${vectorText(head.value(key) ?? [])}`;
    case "score": {
      const [q, k, parts] = [head.query(query), head.key(key), byDimension(head, query, key)];
      const dot = head.terms.score.kind === "dot";
      const terms = Array.from(parts.slice(0, 2), (part, d) => (dot ? `${number(q[d])}·${bracketed(k[d])}` : bracketed(part))).join(" + ");
      return `${formulaOf(head)} = ${terms}${parts.length > 2 ? ` + … ${parts.length} terms` : ""} = ${position(steps.raw)}`;
    }
    case "scale":
      return betweenWorking(head, steps, key);
    case "normalize":
      return normalizeWorking(head, steps, key);
    case "weigh":
      return `${number(steps.weights[key], 3)} · ${vectorText(head.value(key) ?? [])} = ${vectorText(Array.from(head.value(key) ?? [], (v) => v * steps.weights[key]))}`;
    case "join":
      return `[h, c] = ${vectorText([...(head.value(query) ?? []), ...(steps.output ?? [])], 4)}`;
    default:
      return `Σ ${head.signed ? "W" : "α"} = ${number(steps.weights.reduce((sum, w) => sum + w, 0), 3)}   Σ ${head.signed ? "W" : "α"}·v = ${vectorText(steps.output ?? [])}`;
  }
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
  if (head.signed) return `k·r = ${vectorText(head.key(key))} · ${vectorText(steps.asking(key))} = ${number(steps.weights[key], 4)}`;
  if (head.stored) return `α = ${number(steps.weights[key], 3)}`;
  const scaled = steps.masked[key] / head.terms.temperature;
  const sink = head.sink === null ? "" : `; the sink, ${number(head.sink)}, has the share ${number(sinkShare(head, steps), 3)}`;
  if (scaled === -Infinity) return `e^−∞ = 0${sink}`;
  const whole = scaled - Math.log(steps.weights[key]);
  return `e^${number(scaled, 3)} ÷ Σ e^s, which is e^${number(whole, 3)}: ${steps.weights[key] < 5e-4 ? scientific(steps.weights[key]) : number(steps.weights[key], 3)}${sink}`;
}

// What is missing from 1 went to the sink.
export const sinkShare = (head, steps) => (head.sink === null ? 0 : 1 - steps.weights.reduce((sum, weight) => sum + weight, 0));
