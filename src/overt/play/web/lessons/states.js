// Lesson 1: hidden states of a small trained layer attend to each other, and the next layer reads each with its context.
import { barred, card, choice, choices, followSettings, scope, table, whole } from "./parts.js";
import { weightsOfRow } from "./formula.js";
import { linear, parametersOf, scoresOf, statesOf } from "./recurrent.js";
import { drawStrip, largestOf } from "../../../lens/viewer/web/steps/bars.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, formulaNodes, make } from "../../../drawing/web/elements.js";

const MOST = 30; // symbols
const CELLS = { gru: "GRU", rnn: "plain RNN", conv: "convolution", linear: "linear" };
const SCORES = { additive: "additive", dot: "dot product", general: "general" };
const FORMULAS = { additive: "f(h_i, h_j) = v · tanh(W h_i + U h_j)", dot: "f(h_i, h_j) = (W h_i) · (U h_j) / √16", general: "f(h_i, h_j) = h_i · W h_j" };
const SAYS = {
  gru: "A GRU hands its state on from symbol to symbol: h_j knows its digit and the letter before it.",
  rnn: "A plain RNN hands its state on from symbol to symbol: h_j knows its digit and the letter before it.",
  conv: "A convolution reads three symbols at once: h_j knows its neighbours, and nothing else.",
  linear: "A linear layer reads one symbol: h_j of a digit does not know which letter stood before it, so the context cannot either.",
};
const SHOWS = "A layer of 16 numbers was trained to recall: at a letter, the next layer reads [h_i, c_i] and names the digit that followed that letter. The states, f, the softmax and the context are computed here, in float64, from the trained parameters.";
const NOT = "It is one small task, trained once from one seed: no ranking of layers or of scores. Each layer was trained together with the general score; additive and dot-product scores were trained afterwards, on its fixed states. Only answers at letters were trained.";

export const STATES = [
  { name: "pairs", initial: "a3 b7 c1 d4 b", read: (text) => (/^[a-f0-9 ]{2,90}$/.test(text) && symbolsOf(text).length > 1 ? text : undefined), write: (value) => value },
  choice("cell", Object.keys(CELLS)), choice("f", Object.keys(SCORES)), whole("at", MOST, MOST),
];

export const trainedLayers = (page) => JSON.parse(page.getElementById("hidden-states").textContent);

const symbolsOf = (text) => text.replaceAll(/\s/gu, "").slice(0, MOST);

// The panel; `trained` are the layers from docs/making/lesson_layers.py.
export const statesPanel = (trained) => ({
  name: "states",
  title: "Hidden states",
  lesson: 1,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const self = { root, store, trained, known: new Map() };
    self.field = make("input", { attributes: { id: "pairs", type: "text", spellcheck: "false", autocomplete: "off", maxlength: "90" }, on: { input: () => typed(self) } });
    self.said = make("p", { className: "quiet", attributes: { "aria-live": "polite" } });
    self.chips = make("p", { className: "chips-line", attributes: { role: "group", "aria-label": "the symbol whose state attends" } });
    self.steps = make("div");
    self.result = make("div");
    const recall = card("Which digit followed this letter?", make("label", { className: "quiet", text: "Pairs of a letter (a to f) and a digit, then a letter:", attributes: { for: "pairs" } }), self.field, self.said, self.chips, self.result, self.steps);
    self.formula = make("p", { className: "working" });
    self.caption = make("p", { className: "says" });
    self.settings = card("The layer, and f", choices(store, "cell", CELLS, "the layer"), make("div", {}, choices(store, "f", SCORES, "the score")), self.formula, self.caption);
    root.append(make("div", {}, recall), make("div", {}, self.settings, accuracyCard(trained), scope(SHOWS, NOT)));
    store.subscribe((state, changed) => state.panel === "states" && ["pairs", "cell", "f", "at", "panel", "theme"].some((name) => changed.has(name)) && drawAll(self));
    if (store.get().panel === "states") drawAll(self);
  },
});

function accuracyCard({ models, alone, pairs, tests }) {
  const percent = (share) => `${number(100 * share, 0)} %`;
  const of = (cell, f) => percent(models.find((each) => each.layer === cell && each.score === f).accuracy);
  return card("How often it is right", table("share of correct digits", ["", "h_i alone", ...Object.keys(SCORES)], Object.entries(CELLS).map(([cell, name]) => [name, percent(alone[cell]), ...Object.keys(SCORES).map((f) => of(cell, f))])),
    make("p", { className: "quiet", text: `Of ${tests} sequences of ${pairs} pairs that were not trained on; guessing is right in 10 %.` }));
}

function typed(self) {
  const text = self.field.value;
  const wrong = text.match(/[^a-f0-9\s]/u);
  const short = symbolsOf(text).length < 2;
  self.said.textContent = wrong ? `Expected letters from a to f and digits, got “${wrong[0]}”.` : short ? "Type two symbols or more." : "";
  self.said.classList.toggle("wrong", Boolean(wrong));
  if (!wrong && !short) self.store.set({ pairs: text.replaceAll(/\s+/gu, " "), at: MOST });
}

// The layer learned with the general score and is stored with it; the other scores learned on its states.
function packedOf({ models }, cell, f) {
  const of = (score) => models.find((each) => each.layer === cell && each.score === score).parameters;
  const layer = Object.entries(of("general")).filter(([name]) => name.startsWith("states.layer."));
  return { ...Object.fromEntries(layer), ...of(f) };
}

function modelOf(self, cell, f) {
  const key = `${cell} ${f}`;
  if (!self.known.has(key)) self.known.set(key, parametersOf(packedOf(self.trained, cell, f)));
  return self.known.get(key);
}

// All steps from the symbols to the next layer, for the state at i.
function computed({ symbols }, parameters, cell, f, text, i) {
  const inputs = Array.from(text, (symbol) => Float64Array.from(symbols, (each) => Number(each === symbol)));
  const states = statesOf(cell, parameters, inputs);
  const scores = scoresOf(f, parameters, states, i);
  const weights = weightsOfRow(states.length, (j) => scores[j]);
  const context = states[0].map((_, d) => weights.reduce((sum, weight, j) => sum + weight * states[j][d], 0));
  const joined = Float64Array.of(...states[i], ...context);
  const logits = linear(parameters["next.weight"], joined, parameters["next.bias"]);
  return { states, scores, weights, context, joined, shares: weightsOfRow(10, (digit) => logits[digit]) };
}

function drawAll(self) {
  const state = self.store.get();
  const { pairs, cell, f } = state;
  const text = symbolsOf(pairs);
  const at = Math.min(state.at, text.length - 1);
  const result = computed(self.trained, modelOf(self, cell, f), cell, f, text, at);
  self.root.computed = result; // for more questions in the browser's console
  if (document.activeElement !== self.field) self.field.value = pairs;
  followSettings(self.settings, state);
  self.formula.replaceChildren(...formulaNodes(FORMULAS[f]));
  self.caption.replaceChildren(...formulaNodes(SAYS[cell]));
  self.chips.replaceChildren(...Array.from(text, (symbol, i) => button(symbol, () => self.store.set({ at: i }), { "aria-pressed": String(i === at) })));
  const strips = [];
  const strip = (values, name) => {
    const canvas = make("canvas", { className: "strip", attributes: { role: "img", "aria-label": name } });
    strips.push([canvas, values]);
    return canvas;
  };
  const rows = Array.from(text, (symbol, j) => [make("bdi", { text: symbol }), strip(result.states[j], `state of ${symbol}`), number(result.scores[j]), barred(number(result.weights[j], 3), result.weights[j])]);
  self.steps.replaceChildren(table("the state of each symbol, its score and its weight", ["symbol", "h_j", "e_ij", "a_ij"], rows));
  self.steps.querySelectorAll("tbody tr")[at].classList.add("chosen");
  drawResult(self, text, at, result, strip);
  const largest = largestOf(result.states);
  for (const [canvas, values] of strips) drawStrip(canvas, values, largest);
}

function drawResult(self, text, at, { context, joined, shares }, strip) {
  const best = Array.from(shares.keys()).sort((a, b) => shares[b] - shares[a]).slice(0, 3);
  const letter = /[a-f]/.test(text[at]);
  const row = (name, values, size) => make("p", { className: "query" }, make("span", {}, ...formulaNodes(`${name}, ${size} numbers`)), strip(values, name));
  self.result.replaceChildren(row("c_i", context, 16), row("[h_i, c_i]", joined, 32),
    make("p", { className: "large-number" }, make("b", { text: String(best[0]), attributes: { "data-digit": "" } }), make("span", { className: "quiet", text: `is what the next layer says after ${letter ? "the letter" : "the digit"} ${text[at]}: ${best.map((digit) => `${digit} ${number(shares[digit], 3)}`).join(", ")}${letter ? "" : ". Only answers at letters were trained"}` })));
}
