// Lesson 3: the six steps in the paper's sizes, why scores are divided by √d, how W_O joins the heads, and a score of the reader's own.
import { barred, card, followSettings, latest, rowsOf, scope, slider, table } from "./parts.js";
import { OWN, ownScoreCard } from "./score/own_score.js";
import { dot, largestChange, noise, weightsOfRow } from "./formula.js";
import { label, numberedLabels } from "../../../lens/viewer/web/data/labels.js";
import { drawStrip, largestOf } from "../../../lens/viewer/web/steps/bars.js";
import { number, scientific } from "../../../drawing/web/numbers.js";
import { button, formulaNodes, make } from "../../../drawing/web/elements.js";

const [EMBEDDING, WORDS, PAPER] = [512, 12, 64]; // numbers of an embedding, shown words; features of a head in the paper
export const SIZES = [{ name: "dim", initial: PAPER, read: (text) => (["4", "8", "16", "32", "64", "128", "256"].includes(text) ? Number(text) : undefined), write: String }, OWN];

const SHOWS = "512 → 64: the sizes of Vaswani et al. 2017, embeddings of 512 numbers, queries, keys and values of 64, and √64 = 8. A product of d terms has a spread of √d; undivided, the softmax gives nearly all to one key. The other cards are the model of this page: what W_O makes of each head, added up, and what any score of a head's queries and keys would attend to.";
const NOT = "The embeddings and matrices of the first card are drawn at random: sizes and steps are real, the weights carry no meaning. A share says how much of the sum points along one head's part; a large part may be undone by another, or in the next layer. A score of your own meets queries and keys that were learned for the dot product: a model trained with it would have others.";

// The panel; `reader` is the model running in the page.
export const joiningPanel = (reader) => ({
  name: "joining",
  title: "Six steps",
  lesson: 3,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const self = { root, recording, store, reader };
    self.random = make("div");
    self.said = make("p", { className: "quiet", attributes: { "aria-live": "polite" }, text: "The model is loading." });
    const size = slider(store, "dim", "d, numbers of a query", { least: 2, most: 8, from: (at) => 2 ** at, to: (value) => Math.round(Math.log2(value)), said: String });
    const sizes = card("512 → 64, ÷ 8", make("p", { className: "says" }, ...formulaNodes("q_i = x_i W_Q, k_j = x_j W_K, v_j = x_j W_V: each word's 512 numbers become 64, three times. Change d, and see why scores are divided by its root.")), size, self.random);
    self.joined = card("W_O joins the heads", self.said);
    const [own, drawOwn] = ownScoreCard(self);
    root.append(make("div", {}, sizes, self.joined), make("div", {}, own, scope(SHOWS, NOT)));
    const join = latest(root, () => drawJoined(self));
    store.subscribe((state, changed) => {
      if (state.panel !== "joining") return;
      if (["dim", "token", "recording", "panel", "theme"].some((name) => changed.has(name))) drawRandom(self);
      if (state.text !== null && ["head", "token", "recording", "panel", "theme"].some((name) => changed.has(name))) join();
      if (state.text !== null && ["score", "head", "token", "recording", "panel"].some((name) => changed.has(name))) drawOwn();
    });
    reader.ready.then((sentence) => sentence && (self.said.textContent = sentence));
    if (store.get().panel === "joining") drawRandom(self);
  },
});

// Queries, keys and values of random embeddings for the word at `row`: { scores, weights, even }.
export function randomHead(words, dim, row) {
  const numbers = noise(words * EMBEDDING + 2 * EMBEDDING * dim, 1);
  const x = rowsOf(Float64Array.from(numbers.slice(0, words * EMBEDDING)), EMBEDDING);
  const [query, key] = [0, 1].map((part) => numbers.slice(words * EMBEDDING + part * EMBEDDING * dim, words * EMBEDDING + (part + 1) * EMBEDDING * dim));
  const projected = (vector, matrix) => Float64Array.from({ length: dim }, (_, d) => vector.reduce((sum, value, k) => sum + value * matrix[k * dim + d], 0) / Math.sqrt(EMBEDDING));
  const q = projected(x[row], query);
  const scores = x.map((vector) => dot(q, projected(vector, key)));
  const weights = (divisor) => weightsOfRow(words, (j) => scores[j] / divisor);
  return { q, scores, weights: weights(Math.sqrt(dim)), undivided: weights(1) };
}

function drawRandom(self) {
  const { recording, store, root } = self;
  const { dim, token, head } = store.get();
  followSettings(root, store.get());
  const keys = recording.heads[head].keys;
  const name = numberedLabels(keys);
  const count = Math.min(WORDS, keys.length);
  const row = Math.min(token, count - 1);
  const { q, scores, weights, undivided } = randomHead(count, dim, row);
  const mean = scores.reduce((sum, each) => sum + each, 0) / count;
  const spread = Math.sqrt(scores.reduce((sum, each) => sum + (each - mean) ** 2, 0) / count);
  const strip = make("canvas", { className: "strip" });
  const rows = Array.from({ length: count }, (_, j) => [make("bdi", { text: name(j) }), number(scores[j]), number(scores[j] / Math.sqrt(dim)), barred(number(weights[j], 3), weights[j]), barred(number(undivided[j], 3), undivided[j])]);
  self.random.replaceChildren(make("p", { className: "query" }, `q of “${label(keys[row], 20)}”, ${dim} numbers of 512`, strip),
    table("the six steps on random embeddings", ["key", "q·k", `÷ ${rootText(dim)}`, "softmax", "without ÷"], rows),
    make("p", { className: "quiet", text: `The scores have a spread of ${number(spread, 2)}, and √${dim} is ${rootText(dim)}: divided, ${number(spread / Math.sqrt(dim), 2)}.` }));
  drawStrip(strip, q, largestOf([q]));
}

const rootText = (dim) => (Number.isInteger(Math.sqrt(dim)) ? String(Math.sqrt(dim)) : number(Math.sqrt(dim), 2));

async function drawJoined(self) {
  const { recording, store, reader, joined } = self;
  const { text, head: index, token } = store.get();
  const head = recording.heads[index];
  const result = await reader.changed({ text, joined: { layer: head.number, row: token } });
  if (result.sentence) return void (self.said.textContent = result.sentence);
  if (store.get().text !== text) return undefined; // the text has changed
  const { heads, width } = result;
  const [outputs, parts] = [rowsOf(result.output, width / heads), rowsOf(result.parts, width)];
  const total = Float64Array.from({ length: width }, (_, c) => parts.reduce((sum, part) => sum + part[c], 0));
  const size = dot(total, total);
  const shares = parts.map((part) => dot(part, total) / size);
  const strips = [];
  const strip = (values, name) => {
    const canvas = make("canvas", { className: "strip", attributes: { role: "img", "aria-label": name } });
    strips.push([canvas, values]);
    return canvas;
  };
  const rows = outputs.map((output, h) => {
    const choose = button(`H${h}`, () => store.set({ head: recording.heads.findIndex((each) => each.number === head.number && each.head === h) }));
    return [choose, strip(output, `output of head ${h}`), strip(parts[h], `what W_O makes of head ${h}`), barred(number(shares[h], 3), Math.max(0, shares[h]))];
  });
  rows.push(["bias", "", strip(parts[heads], "bias"), barred(number(shares[heads], 3), Math.max(0, shares[heads]))], ["sum", "", strip(total, "sum"), number(shares.reduce((sum, each) => sum + each, 0), 3)]);
  const found = table("what each head adds", ["head", `z, ${width / heads} numbers`, `z W_O, ${width} numbers`, "share of the sum"], rows);
  found.querySelectorAll("tbody tr")[head.head].classList.add("chosen");
  const difference = largestChange(Array.from(total), Array.from(result.sum));
  joined.replaceChildren(joined.firstChild,
    make("p", { className: "says" }, ...formulaNodes(`“${label(head.queries[token], 24)}” in layer ${head.number}: ${heads} heads of ${width / heads} numbers stand side by side, ${heads} × ${width / heads} = ${width}. W_O has ${width / heads} rows for each head; their products add up to one vector of ${width} numbers, which is added to the word's own.`)),
    found, make("p", { className: "quiet", text: `In the paper: 8 heads of 64 numbers, 8 × 64 = 512. The parts, added up here in float64, differ from the product in WebAssembly by ${scientific(difference)}.` }));
  for (const [canvas, values] of strips) drawStrip(canvas, values, largestOf([values]));
  return undefined;
}
