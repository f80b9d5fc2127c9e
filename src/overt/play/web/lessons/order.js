// The words in another order: with positions the model's result changes, without them only the order does.
import { card, cosine, latest, rowsOf, table, whole } from "./parts.js";
import { shuffled } from "./formula.js";
import { shorten, visible } from "../../../lens/viewer/web/data/labels.js";
import { number, scientific } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";

// The seed of the shuffle; 0 keeps the order.
export const ORDER = whole("shuffle", 1, 999_999);

const PLAIN = { off: [], temperature: 1, causal: false, divided: true, placed: true };
const SAYS = "Attention itself does not see order: positions are added to the words' vectors. Shuffle the words, and compare every vector with the same word's in order. Without positions, all words stand at the first one, and nothing changes but the order.";

// The card, and the function that draws it.
export function orderCard(self) {
  const { store } = self;
  const [words, found] = [make("p", { className: "moved", attributes: { dir: "auto", "data-shuffled": "" } }), make("div")];
  const box = card("Shuffle the words", make("p", { className: "says", text: SAYS }), words, make("div", { className: "toggles" },
    button("shuffle", () => store.set({ shuffle: (store.get().shuffle % 999_999) + 1 })), button("in order", () => store.set({ shuffle: 0 }))), found);
  const draw = latest(box, async () => {
    const { text, shuffle } = store.get();
    const order = orderOf(self.recording.heads[0].queries, shuffle);
    const rows = [];
    for (const placed of [true, false]) {
      const ask = (way) => self.reader.changed({ text, changes: { ...PLAIN, placed }, order: way, at: null });
      const [before, after] = [await ask(null), await ask(order.flat())];
      if (before.sentence || after.states.length !== before.states.length) return;
      rows.push(rowOf(placed, before, after, order.flat()));
    }
    words.textContent = shorten(visible(order.slice(1, -1).map((group) => wordOf(self.recording.heads[0].queries, group)).join(" ")), 600);
    found.replaceChildren(table("the shuffled words beside the same words in order", ["", "cosine of the sentence's vector", "largest change of a word's"], rows));
  });
  return [box, draw];
}

const wordOf = (tokens, group) => group.map((i) => tokens[i]).join("");

function rowOf(placed, before, after, order) {
  const [rows, shuffled] = [rowsOf(before.states, before.width), rowsOf(after.states, after.width)];
  const change = Math.max(...order.map((from, to) => rows[from].reduce((most, value, d) => Math.max(most, Math.abs(value - shuffled[to][d])), 0)));
  const name = placed ? "with positions" : "without";
  return [name, number(cosine(before.mean, after.mean), 7), change < 0.001 ? scientific(change) : number(change, 3)];
}

// The tokens in groups, one for each word between spaces, in the order given by the seed; the first and the last group stay in place.
export function orderOf(tokens, seed) {
  const { spaced } = tokens.tokenizer;
  const groups = [];
  for (let i = 0; i < tokens.length; i++) if (i < 2 || i === tokens.length - 1 || spaced[i]) groups.push([i]); else groups.at(-1).push(i);
  const [first, last] = [groups.shift(), groups.pop()];
  return [first, ...(seed ? shuffled(groups.length, seed).map((i) => groups[i]) : groups), last];
}
