// The heads that connect labelled pairs: numbers with intervals and baselines, and the held-out texts of a chosen head.
import { button, download, make } from "../../../../drawing/web/elements.js";
import { number } from "../../../../drawing/web/numbers.js";

const FIRST = 12, LISTED = 20;
const data = JSON.parse(document.getElementById("data").textContent);
const state = { head: 0, order: "chosen", all: false, texts: "all" };
const parts = Object.fromEntries(["heads", "texts"].map((name) => [name, make("div", { className: name })]));
const best = Math.max(...Object.values(data.baselines));
const COLUMNS = ["right [95 %]", "", "chosen", "mass", "AUC", "p"];
const probability = (p) => (p < 0.0005 ? "< 0.001" : number(p, 3));

// Accuracy and its interval between 0 and 1, with a dashed line at the best baseline.
function range(value, interval = null) {
  const at = (node, share, wide = null) => ((node.style.left = `${100 * share}%`), wide === null || (node.style.width = `${100 * wide}%`), node);
  const marks = [at(make("i"), best), ...(interval ? [at(make("u"), interval[0], interval[1] - interval[0])] : []), at(make("b", { className: interval ? "" : "quiet" }), value)];
  return make("span", { className: "range", attributes: { "aria-hidden": "true" } }, ...marks);
}

function ordered() {
  const indices = data.heads.map((_, index) => index);
  if (state.order === "chosen") return indices; // as they came: by the half that chose them
  const sign = state.order === "p_value" ? 1 : -1;
  return indices.sort((one, other) => sign * (data.heads[one][state.order] - data.heads[other][state.order]) || one - other);
}

function row(index) {
  const head = data.heads[index], [low, high] = head.interval;
  const name = button(head.name, () => choose(index), { "aria-pressed": String(index === state.head), title: head.layer });
  const cells = [[`${number(head.accuracy)} `, "", make("small", { text: `[${number(low)}, ${number(high)}]` })], [range(head.accuracy, head.interval), "picture"], [number(head.chosen)], [number(head.mass), "wide"], [number(head.area), "wide"], [probability(head.p_value)]];
  return make("tr", { className: index === state.head ? "chosen" : "" }, make("th", { attributes: { scope: "row" } }, name), ...cells.map(([cell, className = "", ...more]) => make("td", { className }, cell, ...more)));
}

function baseline([name, value]) {
  const cells = [[number(value)], [range(value), "picture"], [""], ["", "wide"], ["", "wide"], [""]];
  return make("tr", {}, make("th", { attributes: { scope: "row" } }, name), ...cells.map(([cell, className = ""]) => make("td", { className: `quiet ${className}` }, cell)));
}

function drawHeads() {
  const focused = parts.heads.contains(document.activeElement) && document.activeElement.textContent;
  const wide = ["mass", "AUC"];
  const header = make("tr", {}, make("th", { text: "head" }), ...COLUMNS.map((text) => make("th", { className: wide.includes(text) ? "wide" : "" }, text || make("span", { className: "scale" }, make("span", { text: "0" }), make("span", { text: "right" }), make("span", { text: "1" })))));
  const body = ordered().slice(0, state.all ? undefined : FIRST).map(row);
  const apart = make("tr", {}, make("th", { text: "without this attention", className: "quiet", attributes: { colspan: String(COLUMNS.length + 1), scope: "rowgroup" } }));
  const table = make("table", {}, make("thead", {}, header), make("tbody", {}, ...body), make("tbody", {}, apart, ...Object.entries(data.baselines).map(baseline)));
  parts.heads.replaceChildren(make("div", { className: "scrolls", attributes: { tabindex: "0" } }, table), make("p", { className: "quiet", text: `A point is the share of right pairs, its line the 95 % interval; dashed: the best baseline, ${number(best)}.` }));
  if (focused) [...parts.heads.querySelectorAll("button")].find((node) => node.textContent === focused)?.focus();
}

function text({ pieces, right, mass }) {
  const verdict = right[state.head] === 1 ? "right" : right[state.head] ? "equal weights" : "wrong";
  const about = make("div", { className: "quiet" }, make("span", { className: verdict === "right" ? "" : "wrong", text: verdict }), `, ${number(mass[state.head], 3)} on the key`);
  return make("li", {}, about, make("p", {}, ...pieces.map(([piece, part]) => (part ? make("bdi", { text: piece, className: part }) : piece))));
}

function drawTexts() {
  const head = data.heads[state.head], there = data.texts.length && state.head < data.texts[0].right.length;
  if (!there) return parts.texts.replaceChildren(make("p", { className: "quiet", text: `The texts of ${head.name} are not on this page.` }));
  const wrong = data.texts.filter(({ right }) => right[state.head] < 1), correct = data.texts.filter(({ right }) => right[state.head] === 1);
  const listed = { all: [...wrong, ...correct], wrong, right: correct }[state.texts];
  const count = `${head.name} is right in ${correct.length} of ${data.texts.length} held-out pairs; pairs that are not right come first.`;
  const more = listed.length > LISTED ? [button(`all ${listed.length} texts`, (event) => (list.append(...listed.slice(LISTED).map(text)), event.target.remove()))] : [];
  const list = make("ol", { className: "examples" }, ...listed.slice(0, LISTED).map(text));
  const marks = make("p", { className: "quiet examples" }, make("bdi", { className: "query", text: "query" }), "  ", make("bdi", { className: "key", text: "key" }), "  ", make("bdi", { className: "distractor", text: "distractor" }));
  parts.texts.replaceChildren(make("p", { className: "quiet", text: count }), marks, listed.length ? list : make("p", { className: "quiet", text: "None." }), make("div", { className: "saves" }, ...more));
}

function choose(index) {
  state.head = index;
  drawHeads();
  drawTexts();
}

function tableText() {
  const names = ["name", "layer", "accuracy", "low", "high", "baseline", "p_value", "mass", "area", "chosen"];
  const rows = data.heads.map((head) => names.map((name) => ({ low: head.interval[0], high: head.interval[1], baseline: best })[name] ?? head[name]));
  return [names, ...rows].map((cells) => cells.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",")).join("\r\n");
}

function selection(label, key, options, update) {
  const nodes = options.map(([value, shown]) => make("option", { text: shown, attributes: { value } }));
  const select = make("select", { attributes: { "aria-label": label }, on: { change: () => ((state[key] = select.value), update()) } }, ...nodes);
  return make("label", { text: `${label} ` }, select);
}

const link = (shown, address) => (address ? make("a", { text: shown, attributes: { href: address, rel: "noreferrer" } }) : shown);

function sources() {
  const rows = data.sources.map(([name, meaning, from, address]) => make("tr", {}, make("th", { text: name }), make("td", {}, `${meaning}${from ? "; " : ""}`, link(from, address))));
  return make("table", { className: "sources" }, make("tbody", {}, ...rows));
}

function mount() {
  const orders = [["chosen", "the half that chose them"], ["accuracy", "right"], ["mass", "mass"], ["area", "AUC"], ["p_value", "p"]];
  const all = data.heads.length > FIRST ? [button(`all ${data.heads.length} heads`, (event) => ((state.all = !state.all), (event.target.textContent = state.all ? `${FIRST} heads` : `all ${data.heads.length} heads`), drawHeads()))] : [];
  const saves = make("div", { className: "saves" }, ...all, button("table as CSV", () => download("heads.csv", "text/csv", tableText())));
  const known = make("ul", { className: "known" }, ...data.known.map(([says, from, address]) => make("li", {}, `${says} `, link(from, address))));
  const next = make("ul", { className: "known" }, ...data.next.map(([asks, call]) => make("li", {}, `${asks} `, make("code", { text: call }))));
  const card = (heading, ...nodes) => make("section", { className: "card" }, make("h2", { text: heading }), ...nodes);
  const left = [
    card("Heads, measured on the texts that did not choose them", make("div", { className: "controls" }, selection("order", "order", orders, drawHeads)), parts.heads, saves),
    make("div", { className: "last" }, card("What the numbers are", sources()), card("What is known, and what to ask next", known, next)),
  ];
  const choices = [["all", "all"], ["wrong", "not right"], ["right", "right"]];
  const right = [card("Held-out texts of the chosen head", make("div", { className: "controls" }, selection("texts", "texts", choices, drawTexts)), parts.texts)];
  const root = document.getElementById("heads");
  root.append(make("h1", { text: data.title }), make("p", { className: "answer", text: data.answer }), make("p", { className: "quiet notes", text: data.notes.join(" ") }), make("div", { className: "columns" }, make("div", {}, ...left), make("div", {}, ...right)));
  document.getElementById("still").remove();
  document.documentElement.className = "live";
  choose(0);
}

mount();
