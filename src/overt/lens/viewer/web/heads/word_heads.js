// The chosen word in all heads: its row of weights in each head as stripes, the strongest link of each layer, and the picture's limits.
import { weightsOf, strongestOf } from "../data/rows.js";
import { number } from "../../../../drawing/web/numbers.js";
import { rampOf } from "../steps/strips.js";
import { drawStripes } from "../steps/bars.js";
import { grouped, label, titleOf, visible } from "../data/labels.js";
import { headText } from "./about.js";
import { walk } from "./heads.js";
import { button, formulaNodes, gauge, make } from "../../../../drawing/web/elements.js";

const STRONG = 0.5; // STRONG: weights below it have pale colours, so that a row of spread weights does not look certain
const SHARES = Array.from({ length: 21 }, (_, i) => i / 20);
const [SLICE, MOST] = [40, 1500]; // SLICE: ms of work between two frames; MOST: the most heads that are drawn

export function mountWordHeads(root, recording, store) {
  const self = { recording, store, heads: make("section", { className: "card" }), links: make("section", { className: "card" }), about: make("section", { className: "card true" }), work: 0 };
  self.links.hidden = true; // until all rows are there
  root.append(self.heads, self.links, self.about);
  let wide = 0;
  const draw = () => {
    if (!root.isConnected || !root.clientWidth) return;
    const focused = self.heads.contains(document.activeElement);
    wide = root.clientWidth;
    drawWord(self);
    if (focused) self.cells.get(store.get().head)?.focus(); // the cells are new: the keyboard's focus stays
  };
  store.subscribe((state, changed) => {
    if (["batch", "side", "token", "theme", "panel"].some((name) => changed.has(name)) || (changed.has("head") && self.pass !== recording.heads[state.head].pass)) draw();
    else if (changed.has("head")) markHead(self);
  });
  new ResizeObserver(() => wide !== root.clientWidth && draw()).observe(root);
  draw();
}

function drawWord(self) {
  const { recording, store, heads } = self;
  const state = store.get();
  const chosen = recording.heads[state.head];
  const word = `“${label((state.side === "query" ? chosen.queries : chosen.keys)[state.token], 24)}”`;
  self.pass = chosen.pass;
  const of = recording.heads.filter((head) => head.batch === state.batch && head.pass === chosen.pass && alike(head, chosen));
  const calls = byLayer(of.length > MOST ? of.filter((head) => head.number === chosen.number) : of, (head) => head);
  const all = [...calls.values()].flat();
  const across = Math.max(...all.map((head) => head.head)) + 1;
  const grid = make("div", { className: "cells", attributes: { role: "group", "aria-label": "layers down, heads across" }, on: { keydown: (event) => walk(grid, event) } });
  grid.style.gridTemplateColumns = `30px repeat(${across}, minmax(0, 1fr))`;
  const name = (text) => make("span", { className: "label", text });
  const columns = Array.from({ length: across }, (_, h) => name(across > 16 ? (h % 4 ? "" : String(h)) : `H${h}`));
  self.cells = new Map();
  const rows = [...calls].flatMap(([layer, members]) => [name(`L${layer}`), ...columns.map((_, h) => cellOf(self, members.find((head) => head.head === h)))]);
  grid.append(make("span"), ...columns, ...rows);
  self.said = make("p", { className: "quiet chosen-head", attributes: { "aria-live": "polite" } });
  heads.hidden = all.length < 2;
  const ramp = rampOf(chosen.signed ? "−" : "0", chosen.signed ? "+" : `${STRONG} and more`, chosen.signed ? undefined : SHARES);
  heads.replaceChildren(make("h2", { text: `${word} in ${all.length === of.length ? "all " : ""}${all.length} heads` }), grid, make("p", { className: "quiet strip-line" }, "A stripe a token, in their order: ", ...ramp.nodes), self.said);
  ramp.draw();
  markHead(self);
  const canvas = grid.querySelector("canvas");
  self.size = [canvas.clientWidth || 28, canvas.clientHeight || 22];
  drawAbout(self, chosen);
  work(self, all, word, state);
}

function byLayer(list, headOf) {
  const layers = new Map();
  for (const each of list) layers.set(headOf(each).number, [...(layers.get(headOf(each).number) ?? []), each]);
  return layers;
}

// Heads with the same texts as the chosen one: in an encoder–decoder, a word of one side is not a query of the other side's heads.
const alike = (head, chosen) => head.queryCount === chosen.queryCount && head.keyCount === chosen.keyCount && head.queries === chosen.queries;

function cellOf(self, head) {
  if (!head) return make("span");
  // Named before its weights are computed, which may take seconds in a recording of many heads.
  const cell = button("", () => self.store.set({ head: head.index }), { "data-head": head.index, "aria-label": `layer ${head.number} head ${head.head}` });
  cell.append(make("canvas"));
  self.cells.set(head.index, cell);
  return cell;
}

// Computes rows a few milliseconds at a time, and the links after all rows.
function work(self, heads, word, state) {
  const turn = (self.work += 1);
  const found = [];
  const next = () => {
    if (turn !== self.work) return;
    const start = performance.now();
    while (found.length < heads.length && performance.now() - start < SLICE) found.push(rowOf(self, heads[found.length], state));
    if (found.length < heads.length) setTimeout(next, 0);
    else drawLinks(self, found, word, state);
  };
  next();
}

function rowOf(self, head, { side, token }) {
  const { weights } = weightsOf(head, side, token);
  const [best] = strongestOf(weights, 1);
  const cell = self.cells.get(head.index);
  const named = side === "query" ? head.keys : head.queries;
  if (cell?.isConnected) {
    drawStripes(cell.firstChild, weights, head.signed ? Math.abs(weights[best]) || 1 : Math.max(STRONG, Math.abs(weights[best] ?? 0)), null, self.size);
    cell.setAttribute("aria-label", `layer ${head.number} head ${head.head}: strongest ${best === undefined ? "none" : `${label(named[best])}, ${number(weights[best])}`}`);
    cell.title = `${head.name}: ${best === undefined ? "no weight" : `${label(named[best])} ${number(weights[best])}`}`;
  }
  const plain = Array.from(weights, (weight, i) => ((head.same && i === token) || named.tokenizer?.special[i] || named.special?.[i] ? 0 : weight));
  const [word] = strongestOf(plain, 1);
  return { head, best, named, word, weight: weights[word] ?? 0 };
}

function drawLinks(self, found, word, { side, token }) {
  const layers = [...byLayer(found, ({ head }) => head).values()].map((rows) => rows.reduce((best, row) => (Math.abs(row.weight) > Math.abs(best.weight) ? row : best)));
  const rows = layers.filter((row) => row.word !== undefined).map(({ head, named, word: i, weight }) => {
    const choose = button(head.name, () => self.store.set({ head: head.index }), { "aria-label": `show the weights of ${head.name}` });
    const token = make("bdi", { text: label(named[i], 20), attributes: { title: titleOf(named, i) } });
    const role = ["content", "NaN"].includes(head.role) ? "" : headText(head);
    return make("tr", { attributes: { "data-head": String(head.index) } }, make("th", { attributes: { scope: "row" } }, choose), make("td", {}, token),
      make("td", { className: "number" }, make("span", { text: number(weight) }), gauge(weight, head.signed ? Math.abs(weight) : 1)), make("td", { className: "quiet", text: role }));
  });
  const said = side === "query" ? `Strongest link from ${word} to another word, by layer` : `Strongest link to ${word} from another word, by layer`;
  self.links.hidden = !rows.length || found.length < 2;
  self.links.replaceChildren(make("h2", { text: said }), make("table", {}, make("caption", { text: said }), make("tbody", {}, ...rows)), make("p", { className: "quiet", text: looksText(found, word, side, token) }));
  markHead(self);
}

// The tokens with the heads' largest weights, counted.
function looksText(found, word, side, token) {
  const seen = found.filter(({ best, head }) => best !== undefined && !head.signed);
  if (side !== "query" || !seen.length) return "";
  const { same } = seen[0].head;
  const special = seen.filter(({ best, named }) => named.tokenizer?.special[best]);
  const itself = same ? seen.filter(({ best }) => best === token).length : 0;
  const names = [...new Set(special.map(({ best, named }) => label(named[best], 12)))].sort().join(" or ") || "a special token";
  const parts = seen[0].named.tokenizer?.special.includes(1) ? [`${special.length} of ${seen.length} heads put their largest weight on ${names}`] : [];
  if (same) parts.push(`${itself}${parts.length ? "" : ` of ${seen.length} heads put their largest weight`} on ${word} itself`);
  parts.push(`${seen.length - special.length - itself} on ${same ? "another" : "a"} word`);
  return parts.join(", ");
}

function markHead(self) {
  const { recording, store } = self;
  const state = store.get();
  const head = recording.heads[state.head];
  if (!self.cells || !self.said) return;
  for (const [index, cell] of self.cells) {
    cell.setAttribute("aria-pressed", String(index === head.index));
    cell.tabIndex = index === head.index ? 0 : -1;
  }
  for (const row of self.links.querySelectorAll("tr[data-head]")) row.classList.toggle("chosen", row.dataset.head === String(head.index));
  const back = recording.opened && !recording.whyOf(head) ? recording.heads.find((each) => each.batch === head.batch && recording.whyOf(each)) : null;
  self.said.replaceChildren(make("b", { text: head.name }), ` ${recording.whyOf(head) || headText(head)}`, ...hereNodes(head, state), ". ", ...(back ? [button(`back to ${back.name}`, () => store.set({ head: back.index }), { class: "linklike" })] : []));
}

// The token with the head's largest weight for the chosen token: "here animal".
function hereNodes(head, { side, token }) {
  const [best] = strongestOf(weightsOf(head, side, token).weights, 1);
  if (side !== "query" || best === undefined) return [];
  return ["; here ", make("bdi", { className: "here", text: label(head.keys[best], 20), attributes: { title: titleOf(head.keys, best) } })];
}

function drawAbout(self, head) {
  const notes = self.recording.story?.notes[head.batch] ?? ["A weight says from which tokens values are taken. It is not the reason for the model's output."];
  self.about.replaceChildren(make("h2", { text: "About this picture" }), make("ul", {}, ...notes.map((note) => make("li", {}, ...formulaNodes(visible(note))))));
}
