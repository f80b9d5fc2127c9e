// The sentence's word vectors re-weighted by themselves: the model's own word table, before any layer, without positions.
import { barred, card, cosine, latest, rowsOf, table } from "./parts.js";
import { dot, largestChange, shuffled, weightsOfRow } from "./formula.js";
import { label, numberedLabels } from "../../../lens/viewer/web/data/labels.js";
import { number, scientific } from "../../../drawing/web/numbers.js";
import { button, formulaNodes, make } from "../../../drawing/web/elements.js";

const SHOWN = 12; // rows of the table
const SAYS = "The same line with vectors: x_i is a word's vector in the model's table, before any layer. W = softmax(x_i · x_j) draws each word towards those that it goes together with.";

// The card, and the function that draws it.
export function wordsCard(self, reader) {
  const { store, recording } = self;
  const [chips, found] = [make("p", { className: "chips-line", attributes: { role: "group", "aria-label": "the word" } }), make("div")];
  const box = card("The sentence's word vectors", make("p", { className: "says" }, ...formulaNodes(SAYS)), chips, found);
  box.classList.add("second");
  const draw = latest(box, async () => {
    const { text } = store.get();
    const { vectors, width, sentence } = text === null ? {} : await reader.changed({ text, words: true });
    if (!vectors) return void (found.textContent = sentence ?? "The model is loading.");
    const tokens = recording.heads[0].keys;
    const rows = rowsOf(vectors, width).slice(1, -1); // without start and end tokens
    if (rows.length !== tokens.length - 2) return undefined; // the text has changed
    const words = Object.assign(tokens.slice(1, -1), { tokenizer: null });
    const chosen = Math.max(0, Math.min(rows.length - 1, store.get().token - 1));
    chips.replaceChildren(...words.slice(0, 64).map((word, i) => button(label(word, 20), () => store.set({ token: i + 1 }), { "aria-pressed": String(i === chosen) })));
    found.replaceChildren(...resultOf(words, rows, chosen), button("the same with learned queries, keys and values", () => store.set({ panel: "steps" }), { class: "linklike" }));
    return undefined;
  });
  reader.ready.then((wrong) => wrong && (found.textContent = wrong));
  return [box, draw];
}

function resultOf(words, rows, chosen) {
  const weights = weightsOfRow(rows.length, (j) => dot(rows[chosen], rows[j]));
  const output = rows[0].length ? Float64Array.from({ length: rows[0].length }, (_, d) => weights.reduce((sum, weight, j) => sum + weight * rows[j][d], 0)) : [];
  const name = numberedLabels(words);
  const strongest = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]).slice(0, SHOWN);
  const order = shuffled(rows.length, 5);
  const again = weightsOfRow(rows.length, (j) => dot(rows[chosen], rows[order[j]]));
  const change = largestChange(order.map((i) => weights[i]), Array.from(again));
  const beside = words.map((_, j) => Math.abs(j - chosen) === 1);
  const near = weights.reduce((sum, weight, j) => sum + (beside[j] ? weight : 0), 0) / (1 - weights[chosen]);
  return [
    table(`what “${label(words[chosen], 24)}” is made of`, ["word", "x_i · x_j", "weight"], strongest.map((j) => [make("bdi", { text: name(j) }), number(dot(rows[chosen], rows[j]), 3), barred(number(weights[j], 3), weights[j])])),
    make("p", { className: "quiet", text: `Order: with the words shuffled, its weights change by ${change < 0.001 && change > 0 ? scientific(change) : number(change, 3)}. Proximity: the words beside it are ${number(beside.filter(Boolean).length / (words.length - 1), 3)} of the others, and have ${number(near, 3)} of the others' weight. Neither has influence: the vectors alone decide. The cosine of “${label(words[chosen], 24)}” before and after is ${number(cosine(rows[chosen], output), 3)}.` }),
  ];
}
