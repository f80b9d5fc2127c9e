import { shade } from "../../../../drawing/web/colours.js";
import { button, download, make } from "../../../../drawing/web/elements.js";
import { decimals, number } from "../../../../drawing/web/numbers.js";
import { css, inkOn } from "../../../../drawing/web/theme.js";
import { ranking, tableText } from "./ranking.js";
import { scatter } from "./scatter.js";
import { texts } from "./texts.js";
import { interval, shown } from "./values.js";

const data = JSON.parse(document.getElementById("data").textContent);
const start = data.heads[data.start];
const measured = (name) => data.survey[name][0].some((value) => value !== null);
// The ranking opens with the pattern of the head that the page opens with.
const state = { x: "distance", y: "special", cell: "entropy", head: data.start, order: "largest", rank: data.measures.some(({ name }) => name === start.role) ? start.role : measured("induction") ? "induction" : "largest" };
const parts = {};
// What has no special tokens is not drawn by them first.
for (const [axis, other] of [["x", "entropy"], ["y", "largest"]]) if (!measured(state[axis])) state[axis] = other;

export const valuesOf = (name, survey = data.survey) => survey[name][0];
const meaningOf = (measure) => data.measures.find(({ name }) => name === measure).meaning;

function choice(label, key, update) {
  const options = data.measures.map(({ name, meaning }) => make("option", { text: name, attributes: { value: name, title: meaning, ...(state[key] === name ? { selected: "" } : {}) } }));
  const select = make("select", { attributes: { "aria-label": label }, on: { change: () => ((state[key] = select.value), update()) } }, ...options);
  return make("label", { text: `${label} ` }, select);
}

function choose(head) {
  state.head = head;
  drawRanking();
  drawScatter();
  drawCells();
  drawHead();
}

function drawRanking() {
  const focused = parts.ranking.contains(document.activeElement);
  const link = (text, target) => make("a", { text, attributes: { href: `#${target}` } });
  const chosen = make("p", { className: "quiet meanings" }, `The chosen head, ${data.heads[state.head].name}: `, link("its strongest texts", "texts"), ", ", link("all its measures", "measures"), ".");
  parts.ranking.replaceChildren(...ranking(data, state, choose), chosen);
  if (focused) parts.ranking.querySelector("[aria-pressed=true]")?.focus();
}

function drawScatter() {
  parts.scatter.replaceChildren(scatter(data, state, choose), make("p", { className: "quiet meanings", text: `Across: ${state.x}, ${meaningOf(state.x)}. Up: ${state.y}, ${meaningOf(state.y)}. Late layers are darker.` }));
}

function orders() {
  const options = [["largest", "largest first"], ["smallest", "smallest first"]].map(([value, text]) => make("option", { text, attributes: { value } }));
  const select = make("select", { attributes: { "aria-label": "order" }, on: { change: () => ((state.order = select.value), drawRanking()) } }, ...options);
  return select;
}

function drawCells() {
  const values = valuesOf(state.cell), measured = values.filter((value) => value !== null);
  const [least, most] = [Math.min(...measured), Math.max(...measured)];
  const calls = [...new Set(data.heads.map(({ number }) => number))];
  const widest = Math.max(...calls.map((call) => data.heads.filter((head) => head.number === call).length));
  parts.cells.style.gridTemplateColumns = `auto repeat(${widest}, minmax(15px, 1fr))`;
  const digits = decimals(measured);
  const nodes = calls.flatMap((call) => {
    const row = data.heads.map((head, index) => [head, index]).filter(([head]) => head.number === call);
    const cells = row.map(([head, index]) => {
      const colour = shade(values[index] === null ? NaN : most > least ? (values[index] - least) / (most - least) : 0);
      const says = `${head.name}, ${head.does}, ${state.cell} ${shown(values[index], digits)}`;
      const cell = make("button", { className: index === state.head ? "chosen" : "", text: String(head.head), attributes: { type: "button", title: says, "aria-label": says, "aria-pressed": String(index === state.head) }, on: { click: () => choose(index) } });
      [cell.style.backgroundColor, cell.style.color] = [css(colour), inkOn(colour)];
      return cell;
    });
    const filled = Array.from({ length: widest - cells.length }, () => make("i"));
    return [make("span", { text: `L${call}`, attributes: { title: row[0][0].layer } }), ...cells, ...filled];
  });
  parts.cells.replaceChildren(...nodes);
  parts.scale.textContent = `${state.cell} from ${shown(least, digits)} (pale) to ${shown(most, digits)} (strong): ${meaningOf(state.cell)}.`;
}

// Next to a second survey the ends of an interval are under its mean, so that all columns fit.
function cell(measured, index, className = "") {
  const node = make("td", { text: interval(measured, index), className });
  const [mean, ends] = node.textContent.split(" [");
  if (data.beside && ends) node.replaceChildren(mean, make("small", { text: ` [${ends}` }));
  return node;
}

function measureRow({ name, meaning }) {
  const { survey, beside } = data, index = state.head;
  const cells = [make("th", { text: name }, make("small", { text: meaning })), cell(survey[name], index)];
  if (beside) {
    const test = beside.tests[name], p = test[3][index];
    cells.push(cell(beside[name], index));
    cells.push(cell(test, index, p !== null && p <= 0.05 ? "differs" : ""));
    cells.push(make("td", { text: p === null ? "—" : p < 0.001 ? "< 0.001" : number(p, 3) }));
  }
  cells.push(make("td", { text: shown(survey[name][3][index], 2) }));
  return make("tr", {}, ...cells);
}

function drawHead() {
  const head = data.heads[state.head];
  const heading = make("h2", { text: `${head.name}, ${head.layer}: ${head.does}` });
  const columns = ["measure", data.beside ? "first" : "mean [95 %]", ...(data.beside ? ["second", "difference", "p"] : []), "chance"];
  const header = make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { text }))));
  const body = make("tbody", {}, ...data.measures.map(measureRow));
  const table = make("div", { className: "scrolls", attributes: { tabindex: "0" } }, make("table", {}, header, body));
  parts.head.replaceChildren(heading, table);
  parts.texts.replaceChildren(...texts(data, state.head));
}

// A drawing as a file: the page's colours are written into it.
function svgText(drawn) {
  const copy = drawn.cloneNode(true), style = getComputedStyle(document.body);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).filter((text) => /^(svg|\.(axis|grid-line|whisker|arrow|point))/.test(text));
  const written = document.createElementNS("http://www.w3.org/2000/svg", "style");
  written.textContent = rules.join("\n").replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name));
  copy.prepend(written);
  return copy.outerHTML;
}

function mount() {
  for (const name of ["ranking", "scatter", "cells", "head", "texts"]) parts[name] = make("div", { className: name });
  parts.scale = make("p", { className: "quiet" });
  const surveys = data.beside ? [`First: ${data.survey.name}. Second: ${data.beside.name}`, `p is adjusted for all ${data.heads.length} heads of a measure together (largest |t| under ${data.beside.paired ? "random signs of one corpus' groups" : "exchanged groups"}); arrows go from the first to the second`] : [];
  const notes = make("p", { className: "notes", text: [...data.notes, ...surveys].join(". ") + "." });
  const saves = make("div", { className: "saves" }, button("table as CSV", () => download("heads.csv", "text/csv", tableText(data))), button("scatter as SVG", () => download("heads.svg", "image/svg+xml", svgText(parts.scatter.querySelector("svg")))));
  const left = [
    make("section", { className: "card" }, make("h2", { text: "Ranking: the ten first heads" }), make("div", { className: "controls" }, choice("measure", "rank", drawRanking), orders()), parts.ranking, saves),
    make("section", { className: "card" }, make("h2", { text: "Heads by two measures" }), make("div", { className: "controls" }, choice("across", "x", drawScatter), choice("up", "y", drawScatter)), parts.scatter),
    make("section", { className: "card last", attributes: { id: "texts" } }, make("h2", { text: "Texts of the chosen head" }), parts.texts),
  ];
  const right = [
    make("section", { className: "card" }, make("h2", { text: "Layer by head" }), make("div", { className: "controls" }, choice("shade", "cell", drawCells)), parts.cells, parts.scale),
    make("section", { className: "card", attributes: { id: "measures" } }, parts.head),
  ];
  const root = document.getElementById("atlas");
  root.className = "atlas";
  root.append(make("h1", { text: data.title }), notes, make("div", { className: "columns" }, make("div", {}, ...left), make("div", {}, ...right)));
  document.getElementById("still").remove();
  document.documentElement.className = "live";
  choose(state.head);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => choose(state.head));
}

mount();
