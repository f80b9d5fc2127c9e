// Lesson 3: a score typed by the reader, for the chosen word's query and every key, compared with the model's weights.
import { parsed } from "./parser.js";
import { programOf } from "./program.js";
import { scoreOf } from "./functions.js";
import { typeset } from "./typeset.js";
import { barred, card, choices, followSettings, latest, table } from "../parts.js";
import { weightsOfRow } from "../formula.js";
import { weightsOf } from "../../../../lens/viewer/web/data/rows.js";
import { label, numberedLabels } from "../../../../lens/viewer/web/data/labels.js";
import { number, scientific } from "../../../../drawing/web/numbers.js";
import { formulaNodes, make } from "../../../../drawing/web/elements.js";

const [LETTERS, SHOWN] = [200, 24]; // letters of a formula; keys in the table
const SAYS = "Type a score of a query q and a key k, with d numbers each. The core of this page runs it as a program, as overt's attend runs a score of your own.";
const PRESETS = {
  "q·k / √d": "dot product", "−Σ |q − k|": "distance", "−Σ (q − k)² / 2": "Gaussian", "sum(tanh(q + k))": "additive", "(1 + q·k/8)²": "polynomial",
  "q·k / (√(q·q) · √(k·k))": "cosine", "max(q * k)": "maximum",
};

export const OWN = { name: "score", initial: "q·k / √d", read: (text) => text.slice(0, LETTERS), write: (text) => text };

// The card, and the function that draws it.
export function ownScoreCard({ recording, store, reader }) {
  const input = make("input", { attributes: { id: "own-score", type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", maxlength: String(LETTERS), "aria-describedby": "own-wrong" }, on: { input: () => store.set({ score: input.value }) } });
  const wrong = make("p", { className: "wrong", attributes: { id: "own-wrong", "aria-live": "polite" } });
  const [formula, result] = [make("p", { className: "typeset" }), make("div")];
  const field = make("div", { className: "own-field" }, make("label", { text: "f(q, k) =", attributes: { for: "own-score" } }), input);
  const presets = choices(store, "score", PRESETS, "scores to begin with");
  presets.className = "toggles";
  const box = card("A score of your own", make("p", { className: "says" }, ...formulaNodes(SAYS)), field, presets, wrong, formula, result);
  const refuse = (sentence) => {
    wrong.textContent = sentence;
    input.setAttribute("aria-invalid", String(Boolean(sentence)));
    [formula, result].forEach((each) => each.classList.toggle("stale", Boolean(sentence)));
  };
  const draw = latest(box, async () => {
    const { score, head: index, token, text } = store.get();
    followSettings(box, store.get());
    if (document.activeElement !== input || input.value !== score) input.value = score;
    const read = readScore(score);
    if (read.sentence) return refuse(read.sentence);
    const head = recording.heads[index];
    const [query, keys] = [head.query(token), Array.from({ length: head.keyCount }, (_, j) => head.key(j))];
    const { code, numbers, size } = programOf(read.tree, query.length);
    const answer = await reader.changed({ scored: { query: Float32Array.from(query), keys: Float32Array.from(keys.flatMap((key) => Array.from(key))), code, numbers } });
    if (answer.sentence) return refuse(answer.sentence);
    if (store.get().text !== text) return undefined; // the text has changed
    const exact = keys.map((key) => scoreOf(read.tree, Float64Array.from(query), Float64Array.from(key)));
    refuse(unusable(answer.scores));
    formula.replaceChildren(typeset(read.tree));
    result.replaceChildren(...compared(head, token, answer.scores, difference(answer.scores, exact), size));
    return undefined;
  });
  return [box, draw];
}

function readScore(text) {
  try {
    return { tree: parsed(text) };
  } catch (error) {
    return { sentence: error.message };
  }
}

// Why these scores have no softmax; nothing if they have one.
function unusable(scores) {
  const [missing, infinite] = [scores.filter(Number.isNaN).length, scores.filter((score) => score === Infinity).length];
  if (missing) return `Expected a number for every key, got none for ${missing} of ${scores.length}: f has the root or the logarithm of a negative number there, or 0 / 0. Fix: put |…| or relu(…) inside.`;
  if (infinite) return `Expected scores that float32 can hold, got more for ${infinite} of ${scores.length} keys. Fix: divide inside, or leave out exp: the softmax has one.`;
  return scores.every((score) => score === -Infinity) ? "Expected a score above −∞ for some key, got none. Fix: divide inside." : "";
}

const difference = (scores, exact) => scores.reduce((most, score, j) => (Object.is(score, exact[j]) ? most : Math.max(most, Math.abs(score - exact[j]))), 0);

function compared(head, token, scores, apart, size) {
  const own = weightsOfRow(scores.length, (j) => scores[j]);
  const known = weightsOf(head, "query", token).weights;
  const name = numberedLabels(head.keys);
  const strongest = Array.from(own.keys()).sort((a, b) => Math.max(own[b], known[b]) - Math.max(own[a], known[a])).slice(0, SHOWN).sort((a, b) => a - b);
  const rows = strongest.map((j) => [make("bdi", { text: name(j) }), scoreText(scores[j]), barred(number(own[j], 3), own[j]), barred(number(known[j], 3), known[j])]);
  const found = table(`scores of “${label(head.queries[token], 24)}” and their softmax, beside the model's weights`, ["key", "f(q, k)", "softmax of f", "as the model is"], rows);
  const most = own.indexOf(Math.max(...own));
  if (strongest.includes(most)) found.tBodies[0].rows[strongest.indexOf(most)].classList.add("chosen");
  const rest = strongest.length < scores.length ? ` The ${strongest.length} of ${scores.length} keys with the largest weights are shown.` : "";
  return [
    make("h2", {}, "What “", make("bdi", { text: label(head.queries[token], 24) }), `” would attend to in ${head.name}`), found,
    make("p", { className: "quiet", attributes: { "data-apart": String(apart) }, text: `A program of ${size} instructions; its scores in float32 differ from float64 by ${scientific(apart)}.${rest}` }),
  ];
}

const scoreText = (score) => (score !== 0 && Math.abs(score) < 0.005 ? scientific(score, 2) : number(score));
