// Cut arcs: fields of the address, the effect of a click on an arc, and the line below the text that reports changes.
import { flag } from "../lessons/parts.js";
import { commonOf, lineOf, wordsOf } from "../translation/common.js";
import { weightsOf, strongestOf } from "../../../lens/viewer/web/data/rows.js";
import { label } from "../../../lens/viewer/web/data/labels.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";

const PAIRS = /^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(,\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}){0,199}$/; // layer, head, query, key
export const CUTS = [{ name: "cut", initial: "", read: (text) => (PAIRS.test(text) ? text : undefined), write: (value) => value }, flag("everywhere", false)];

const INVITES = "Click an arc to cut it: the model runs again without that weight.";
const SCOPE = "A cut shows what this model computes without that weight and with all else as it is; it does not show that the weight is the reason: another head may bring the same.";
const WORDS = 160; // shown words of the text

const entriesOf = ({ cut }) => (cut ? cut.split(",").map((entry) => entry.split(".").map(Number)) : []);

// The cuts in the Worker's form.
export const editOf = (state) => ({ cuts: entriesOf(state).map(([layer, head, row, key]) => ({ layer, head, row, key })), all: Boolean(state.everywhere) });

const isIn = (head, everywhere) => ([layer, index]) => everywhere || (layer === head.number && index === head.head);

// Whether the model is loaded; without it nothing is cut.
const ready = () => document.querySelector(".typing[data-ready]") !== null;

export const cutting = {
  pairsOf: (store, head) => (ready() ? entriesOf(store.get()) : []).filter(isIn(head, store.get().everywhere)).map(([, , row, key]) => [row, key]),
  toggle(store, head, query, key) {
    if (!ready()) return;
    const { everywhere } = store.get();
    const entries = entriesOf(store.get());
    const same = (entry) => isIn(head, everywhere)(entry) && entry[2] === query && entry[3] === key;
    const others = entries.filter((entry) => !same(entry));
    write(store, others.length < entries.length ? others : [...entries, [head.number, head.head, query, key]]);
  },
};

const write = (store, entries) => store.set({ cut: entries.map((entry) => entry.join(".")).join(",") });

// The line below the text.
export function startCutting(root, recording, store) {
  const box = make("section", { className: "cutting", attributes: { "aria-label": "Cuts", "aria-live": "polite" } });
  root.querySelector(".texts-row").after(box);
  const draw = () => {
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.does : null;
    box.replaceChildren(...(recording.cut ? changedNodes(recording, store) : [make("p", { className: "quiet", text: INVITES })]));
    if (focused) (box.querySelector(`[data-does="${focused}"]`) ?? box.querySelector("button"))?.focus();
  };
  store.subscribe((_, changed) => ["recording", "cut", "head", "theme"].some((name) => changed.has(name)) && draw());
  draw();
}

function changedNodes(recording, store) {
  const { cut } = recording;
  const state = store.get();
  const entries = entriesOf(state);
  const said = entries.slice(0, cut.names.length).map(([layer, index], n) => {
    const [query, key] = cut.names[n].map((word) => make("bdi", { text: label(word, 20) }));
    return make("b", {}, query, " → ", key, ` (L${layer}H${index}, was ${number(cut.before[n], 3)})`);
  });
  const all = button("in all heads", () => store.set({ everywhere: !state.everywhere }), { "aria-pressed": String(state.everywhere), "data-does": "all", title: "cut this pair in every head of every layer, or only where its arc was" });
  const undo = button("undo", () => write(store, entries.slice(0, -1)), { "data-does": "undo" });
  const none = entries.length > 1 ? [button("undo all", () => write(store, []), { "data-does": "none" })] : [];
  const names = said.flatMap((each, n) => (n ? [", ", each] : [each]));
  return [make("p", { className: "cuts" }, "Cut ", ...names, " ", undo, ...none, all), ...(cut.texts ? textNodes(cut.texts) : vectorNodes(recording, store, entries)), make("p", { className: "quiet", text: SCOPE })];
}

// The translation before and after.
function textNodes(texts) {
  const [before, after] = texts.map(wordsOf);
  const common = commonOf(before, after);
  if (texts[0] === texts[1]) return [make("p", { text: "The translation stays as it was: " }), lineOf(after, common.map(([, j]) => j), "after")];
  return [make("div", { className: "before-after" }, make("span", { text: "before" }), lineOf(before, common.map(([i]) => i), "before"), make("span", { text: "after" }), lineOf(after, common.map(([, j]) => j), "after"))];
}

// The word's attention with the cuts, and how far the last layer's vectors turned.
function vectorNodes({ heads, cut }, store, entries) {
  const [layer, index, row] = entries.at(-1) ?? [];
  const head = heads.find((each) => each.number === layer && each.head === index);
  if (!head) return [];
  const { weights } = weightsOf(head, "query", row);
  const [best] = strongestOf(weights, 1);
  const word = (i) => `“${label(head.queries[i], 20)}”`;
  const { token } = store.get();
  const words = cut.turned.slice(0, WORDS).flatMap((turn, i) => {
    const each = make("bdi", { text: label(head.queries[i], 40), attributes: { title: `cosine ${number(1 - turn, 4)}` } });
    each.style.setProperty("--share", `${Math.round(100 * Math.sqrt(Math.min(1, Math.max(0, turn))))}%`);
    each.classList.toggle("own", i === token);
    return [each, " "];
  });
  return [
    make("p", { text: `${word(row)} now attends most to ${word(best)}, ${number(weights[best], 3)}. In the model's output its vector turned to a cosine of ${number(1 - cut.turned[row], 3)} with the one before, the whole sentence's to ${number(1 - cut.sentence, 4)}:` }),
    make("p", { className: "moved", attributes: { dir: "auto" } }, ...words),
  ];
}
