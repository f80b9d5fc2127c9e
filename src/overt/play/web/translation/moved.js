// Lesson 5 with a translator: heads that are switched off, and the change of the translation.
import { commonOf, lineOf, wordsOf } from "./common.js";
import { editOf } from "../cut/cutting.js";
import { card, latest, scope } from "../lessons/parts.js";
import { walk } from "../../../lens/viewer/web/heads/heads.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";

const PARTS = { encoder: "encoder, to the source", decoder: "decoder, to what it wrote", cross: "decoder, to the source" };
const LETTERS = { e: "encoder", d: "decoder", c: "cross" };
const SHOWS = "A head's output is set to zero before the output matrix joins it to the others, at every word; the source is read and the translation is written again, word by word. Words that are not in both translations, in this order, are marked.";
const NOT = "It does not say that a head is not needed: others may do the same, and the model was never trained without it. Another translation is not always a worse one.";

export const MOVED = [{ name: "without", initial: "", read: (text) => (/^[edc]\d{1,3}\.\d{1,3}(,[edc]\d{1,3}\.\d{1,3}){0,599}$/.test(text) ? text : undefined), write: (value) => value }];

const namesOf = (without) => (without ? without.split(",") : []);
const headOf = (name) => [LETTERS[name[0]], ...name.slice(1).split(".").map(Number)];

// The panel; `shape` are the translator's sizes.
export const movedPanel = (reader, shape) => ({
  name: "switched",
  title: "Heads",
  lesson: 5,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const self = { root, store, reader, base: null, alone: {}, turn: 0, grids: make("div"), said: make("p", { className: "quiet", attributes: { "aria-live": "polite" }, text: "The model is loading." }), result: card("The translation") };
    prepare(self, shape);
    const settings = card("Switch heads off", make("p", { className: "says", text: "Click a head to switch it off, or a layer for all of its heads. The darker a head, the more words change without it alone." }), self.grids, self.said, make("div", { className: "toggles" }, button("all heads on", () => store.set({ without: "" }), { class: "linklike" })));
    root.append(make("div", {}, settings), make("div", {}, self.result, scope(SHOWS, NOT)));
    const draw = latest(root, () => compute(self));
    store.subscribe((state, changed) => state.panel === "switched" && state.text !== null && ["without", "recording", "panel"].some((name) => changed.has(name)) && draw());
    reader.ready.then((sentence) => sentence && (self.said.textContent = sentence));
  },
});

function prepare(self, { heads, layers, decoderLayers }) {
  for (const [part, title] of Object.entries(PARTS)) {
    const grid = make("div", { className: "switches-grid", attributes: { role: "group", "aria-label": `${title}: layers down, heads across` }, on: { keydown: (event) => walk(grid, event) } });
    grid.style.gridTemplateColumns = `38px repeat(${heads}, minmax(0, 1fr))`;
    for (let layer = 0; layer < (part === "encoder" ? layers : decoderLayers); layer++) {
      const names = Array.from({ length: heads }, (_, head) => `${part[0]}${layer}.${head}`);
      grid.append(button(`L${layer}`, () => switched(self, names), { class: "layer", "aria-label": `all heads of layer ${layer}` }), ...names.map((name) => button("", () => switched(self, [name]), { "data-head": name, tabindex: name.endsWith("0.0") && layer === 0 ? "0" : "-1" })));
    }
    self.grids.append(make("p", { className: "quiet", text: title }), grid);
  }
}

function switched({ store }, names) {
  const off = new Set(namesOf(store.get().without));
  const all = names.every((name) => off.has(name));
  names.forEach((name) => (all ? off.delete(name) : off.add(name)));
  store.set({ without: [...off].join(",") });
}

async function compute(self) {
  const state = self.store.get();
  const { text, without } = state;
  if (self.base?.text !== text) [self.base, self.alone] = [{ text, ...(await self.reader.changed({ text, off: [] })) }, {}];
  const result = self.base.sentence ? self.base : await self.reader.changed({ text, off: namesOf(without).map(headOf), edit: editOf(state) });
  if (result.sentence) return void (self.said.textContent = result.sentence);
  drawGrid(self);
  const [before, after] = [self.base.output, result.output].map(wordsOf);
  const common = commonOf(before, after);
  self.result.replaceChildren(self.result.firstChild,
    make("p", { className: "quiet", text: "As the model is:" }), lineOf(before, common.map(([i]) => i), "before"),
    make("p", { className: "quiet", text: "As set here:" }), lineOf(after, common.map(([, j]) => j), "after"),
    make("p", { className: "quiet", text: `log-probability ${number(self.base.score, 2)} and ${number(result.score, 2)}, each of its own text` }));
  if (!Object.keys(self.alone).length) switchAlone(self);
  return undefined;
}

// Each head switched off separately, one after the other, so that a text typed meanwhile waits for at most one of them.
async function switchAlone(self) {
  const { base, reader, store } = self;
  const turn = (self.turn += 1);
  const words = wordsOf(base.output);
  for (const { dataset } of self.grids.querySelectorAll("[data-head]")) {
    const result = await reader.changed({ text: base.text, off: [headOf(dataset.head)] });
    if (turn !== self.turn || self.base !== base || store.get().panel !== "switched" || result.sentence) return;
    const after = wordsOf(result.output);
    self.alone[dataset.head] = 1 - commonOf(words, after).length / Math.max(1, words.length, after.length);
    drawGrid(self);
  }
}

function drawGrid({ grids, store, alone, said }) {
  const off = new Set(namesOf(store.get().without));
  const cells = grids.querySelectorAll("[data-head]");
  for (const cell of cells) {
    const { head } = cell.dataset;
    const [part, layer, index] = headOf(head);
    const share = alone[head];
    const name = `${PARTS[part]}, layer ${layer}, head ${index}`;
    cell.setAttribute("aria-pressed", String(!off.has(head)));
    cell.setAttribute("aria-label", `${name}, ${off.has(head) ? "off" : "on"}${share === undefined ? "" : `, alone it changes ${number(100 * share, 0)} % of the words`}`);
    cell.title = share === undefined ? name : `${name}: without it alone ${number(100 * share, 0)} % of the words change`;
    cell.style.setProperty("--share", `${Math.round(90 * (share ?? 0))}%`);
  }
  const known = Object.keys(alone).length;
  said.textContent = `${off.size ? `${off.size} of ${cells.length} heads are off` : `all ${cells.length} heads are on`}${store.get().cut ? "; the cut arcs are cut here, too" : ""}${known < cells.length ? "; each is being switched off alone …" : ""}`;
}
