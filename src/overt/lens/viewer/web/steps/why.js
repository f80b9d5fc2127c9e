// The parts of the model that wrote a score's query and key, strongest first.
import { number } from "../../../../drawing/web/numbers.js";
import { label } from "../data/labels.js";
import { button, gauge, make } from "../../../../drawing/web/elements.js";

const SHOWN = 7; // SHOWN: the most parts of a side
const WORDS = { word: "the word itself", before: "the word before", position: "its position", biases: "all biases" };
const SAYS = "Each list adds up to the score. It has direct paths only: what a part does by changing later parts is not in it.";

// The button and its panel; `ask({ layer, head, row, key })` promises { score, query, key } or a sentence.
export function whyNodes(ask, head, row, key) {
  const box = make("div", { className: "why", attributes: { "aria-live": "polite" } });
  box.hidden = true;
  const open = button("Why this score?", async () => {
    box.hidden = !box.hidden;
    open.setAttribute("aria-expanded", String(!box.hidden));
    if (box.hidden || box.childElementCount) return;
    const { score, sentence, ...sides } = await ask({ layer: head.number, head: head.head, row, key });
    if (sentence) return void (box.textContent = sentence);
    box.replaceChildren(sideOf(`What wrote the query of “${label(head.queries[row], 20)}”`, sides.query, score), sideOf(`What wrote the key of “${label(head.keys[key], 20)}”`, sides.key, score), make("p", { className: "quiet", text: SAYS }));
  }, { class: "linklike", "aria-expanded": "false" });
  return [open, box];
}

function sideOf(title, parts, score) {
  const order = [...parts].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const [shown, others] = [order.slice(0, SHOWN), order.slice(SHOWN)];
  const rows = others.length ? [...shown, { name: `${others.length} others`, value: others.reduce((sum, { value }) => sum + value, 0) }] : shown;
  const largest = Math.max(...rows.map(({ value }) => Math.abs(value)));
  const line = ({ name, value }) => make("tr", {}, make("th", { text: WORDS[name] ?? name, attributes: { scope: "row" } }), make("td", { className: "number", text: number(value) }), make("td", { className: "amount" }, gauge(value, largest)));
  const sum = make("tr", { className: "output" }, make("th", { text: "the score", attributes: { scope: "row" } }), make("td", { className: "number", text: number(score) }), make("td"));
  return make("table", { attributes: { "data-side": title } }, make("caption", { text: title }), make("tbody", {}, ...rows.map(line), sum));
}
