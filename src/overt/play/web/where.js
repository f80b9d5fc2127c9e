// The chosen head's position in the whole model: from the words through the layers to the output.
import { label } from "../../lens/viewer/web/data/labels.js";
import { number } from "../../drawing/web/numbers.js";
import { button, gauge, make } from "../../drawing/web/elements.js";

const SAYS = "A vector for each word runs through all layers; each layer adds what its attention and its feed-forward found.";
const ENCODED = "Out comes a vector for each word; their mean stands for the sentence.";
const WRITTEN = "Out come the probabilities of the next word. Here, as each was written:";

// The first card on the right of the steps. `first` names the input of the layers, `last` their output.
export function startWhere(root, recording, store, { first = ["words"], last = "output" } = {}) {
  const [line, said, next] = [make("div", { className: "where-line", attributes: { role: "group", "aria-label": "The layers of the model" } }), make("p", { className: "quiet" }), make("div")];
  root.querySelector(".panel.steps .beside").prepend(make("section", { className: "card where" }, make("h2", { text: "Where this head sits" }), line, said, next));
  const draw = (state) => {
    const chosen = recording.heads[state.head];
    const focused = line.contains(document.activeElement) ? document.activeElement.dataset.layer : null;
    const stop = (text) => make("span", { className: "stop", text });
    line.replaceChildren(...first.map(stop), ...recording.calls.map((call) => layerOf(recording, store, call, chosen)), stop(last));
    if (focused !== null) line.querySelector(`[data-layer="${focused}"]`)?.focus();
    said.textContent = `${SAYS} ${recording.nexts ? WRITTEN : ENCODED}`;
    next.replaceChildren(...(recording.nexts?.[state.token] && state.side === "query" ? [nextsOf(recording.nexts[state.token])] : []));
  };
  store.subscribe((state, changed) => ["head", "token", "side", "recording"].some((name) => changed.has(name)) && draw(state));
  draw(store.get());
}

// A layer: its heads as dots, and its feed-forward.
function layerOf({ heads }, store, { number: layer }, chosen) {
  const own = heads.filter((head) => head.number === layer);
  const here = layer === chosen.number;
  const twin = own.find((head) => head.head === chosen.head) ?? own[0];
  const result = button("", () => store.set({ head: twin.index }), { class: "stop layer", "data-layer": String(layer), "aria-pressed": String(here), "aria-label": `layer ${layer}${here ? `, head ${chosen.head} is chosen` : `: choose head ${twin.head} there`}`, title: `layer ${layer}: attention of ${own.length} heads, then feed-forward` });
  const dots = own.map((head) => make("i", { className: head === chosen ? "chosen" : "" }));
  result.append(make("b", { text: `L${layer}` }), make("span", { className: "dots" }, ...dots), make("span", { className: "feed" }));
  return result;
}

function nextsOf(words) {
  const rows = words.map(([word, share]) => make("tr", {}, make("th", { attributes: { scope: "row" } }, make("bdi", { text: label(word, 20) })), make("td", { className: "number" }, make("span", { text: number(share, 3) }), gauge(share, 1))));
  return make("table", {}, make("caption", { text: "The most probable words here" }), make("tbody", {}, ...rows));
}
