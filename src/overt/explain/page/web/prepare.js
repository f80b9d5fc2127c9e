// Prepares one explanation of the page: what its static part lacks is added, and what can be chosen gets its events.
import { make } from "../../../drawing/web/elements.js";
import { number } from "../../../drawing/web/numbers.js";
import { largest } from "./draw.js";
import { bar, choose, chooseHead, draw, mark } from "./view.js";

export function prepareView(e, root) {
  const shown = { layer: e.shown[0], head: e.shown[1] };
  const ranked = [...root.querySelectorAll("tbody tr[data-row]")];
  const result = { e, root, shown, ...shown, ranked, row: Number(ranked[0].dataset.row), mark: null, whole: false };
  arrange(result);
  prepareSentence(result);
  prepareTable(result);
  prepareLinks(result);
  result.cells = heads(result);
  matrix(result);
  new ResizeObserver(() => draw(result)).observe(root);
  return result;
}

// The sections into two columns: the steps and the matrix, the heads and what they say.
function arrange(v) {
  const [left, right] = [make("div"), make("div")];
  v.headsBox = make("section", { className: "heads", attributes: { "aria-label": "All heads" } });
  v.matrixBox = make("section", { className: "matrix", attributes: { "aria-label": "The whole matrix of weights" } });
  left.append(v.root.querySelector(".steps"), v.matrixBox);
  right.append(v.headsBox, ...[".links", ".true"].map((name) => v.root.querySelector(name)).filter(Boolean));
  v.root.append(make("div", { className: "body" }, left, right));
}

function prepareSentence(v) {
  v.sentence = v.root.querySelector("h2.sentence");
  v.tokens = [...v.sentence.querySelectorAll(".token")];
  v.tokens.forEach((token, j) => {
    token.setAttribute("role", "button");
    token.addEventListener("click", () => choose(v, j));
    token.addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Enter") choose(v, j);
      else if (move) v.tokens[Math.min(Math.max(j + move, 0), v.tokens.length - 1)].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  });
}

function prepareTable(v) {
  const steps = v.root.querySelector(".steps");
  steps.tabIndex = 0;
  v.caption = make("div", { className: "caption", attributes: { "aria-live": "polite" } });
  steps.querySelector("h3").after(v.caption);
  const largestOf = { vectors: largest(v.e.steps.map((row) => [...row.key, ...row.value])), weigh: largest([v.e.output, ...v.e.steps.map((row) => row.weighted)]) };
  v.strips = [];
  const add = (cell, values, maximum) => {
    const canvas = make("canvas", { className: "strip", attributes: { "aria-hidden": "true" } });
    cell.append(canvas);
    v.strips.push({ canvas, values, maximum });
  };
  const biggest = largest([v.e.steps.map((row) => row.weight)]);
  v.ranked.forEach((line, rank) => {
    const row = v.e.steps[Number(line.dataset.row)];
    line.style.setProperty("--rank", Math.min(rank, 12));
    line.classList.toggle("own", row.index === v.e.word_index);
    line.addEventListener("click", () => choose(v, row.index));
    const vectors = [...line.querySelectorAll('[data-column="vectors"]')];
    vectors.forEach((cell, i) => add(cell, i ? row.value : row.key, largestOf.vectors));
    add(line.querySelector('[data-column="weigh"]'), row.weighted, largestOf.weigh);
    line.querySelector('[data-column="normalize"]').append(bar(row.weight, biggest));
  });
  add(v.root.querySelector(".query"), v.e.query, largest([v.e.query]));
  const output = v.root.querySelector(".output .vector");
  add(output, v.e.output, largestOf.weigh);
  v.output = v.strips.at(-1);
  const joined = v.root.querySelector('.output[data-column="join"] .vector');
  if (joined) add(joined, v.e.joined || [...v.e.query, ...v.e.output], largestOf.vectors);
  prepareOthers(v, largestOf.weigh, add);
}

// The weaker tokens, folded into one line that says how much they hold together.
function prepareOthers(v, maximum, add) {
  v.others = v.root.querySelector(".others");
  if (!v.others) return;
  const weak = v.ranked.filter((line) => line.classList.contains("rest")).map((line) => v.e.steps[Number(line.dataset.row)]);
  add(v.others.querySelector(".vector"), v.e.output.map((_, d) => weak.reduce((sum, row) => sum + Number(row.weighted[d]), 0)), maximum);
  const button = make("button", { text: "show", attributes: { type: "button", "aria-expanded": "false" } });
  button.addEventListener("click", () => {
    v.whole = !v.whole;
    button.textContent = v.whole ? "hide" : "show";
    button.setAttribute("aria-expanded", String(v.whole));
    draw(v);
  });
  v.others.querySelector("th").append(button);
}

function prepareLinks(v) {
  for (const line of v.root.querySelectorAll(".links tbody tr")) {
    const cell = line.querySelector(".number");
    cell.append(bar(Number(cell.dataset.weight), 1));
    const head = line.querySelector("th");
    const button = make("button", { text: head.textContent, attributes: { type: "button", "aria-label": `show the weights of ${head.textContent}` } });
    button.addEventListener("click", () => chooseHead(v, Number(line.dataset.layer), Number(line.dataset.head)));
    head.replaceChildren(button);
  }
}

// Every layer and head: the word's row of weights, small. Arrow keys go from cell to cell.
function heads(v) {
  const count = v.e.rows.reduce((sum, layer) => sum + layer.length, 0);
  const one = count === 1;
  v.headsBox.append(make("h3", { text: one ? `What “${v.e.query_word}” attends to` : `“${v.e.query_word}” in all ${count} heads` }));
  const wide = Math.max(...v.e.rows.map((layer) => layer.length));
  const grid = make("div", { className: "cells", attributes: { role: "group", "aria-label": "layers down, heads across" } });
  grid.style.gridTemplateColumns = `26px repeat(${wide}, minmax(0, 1fr))`;
  if (!one) grid.append(make("span"), ...Array.from({ length: wide }, (_, h) => make("span", { className: "label", text: `H${h}` })));
  const cells = v.e.rows.map((layer, l) => {
    if (!one) grid.append(make("span", { className: "label", text: `L${l}` }));
    return layer.map((weights, h) => {
      const button = make("button", { attributes: { type: "button", "aria-label": cellName(v, weights, l, h) } }, make("canvas"));
      button.classList.toggle("shown", l === v.shown.layer && h === v.shown.head);
      button.addEventListener("click", () => chooseHead(v, l, h));
      button.addEventListener("keydown", (event) => moveHead(v, event, l, h));
      if (!one) grid.append(button);
      return button;
    });
  });
  v.chosenHead = make("p", { className: "chosen-head", attributes: { "aria-live": "polite" } });
  v.rowBox = make("div", { className: "row" });
  v.headsBox.append(...(one ? [] : [grid]), v.chosenHead, v.rowBox);
  return cells;
}

function cellName(v, weights, l, h) {
  const j = strongest(weights);
  return `layer ${l} head ${h}: strongest ${v.e.labels[j]}, ${number(weights[j])}`;
}

const strongest = (weights) => weights.reduce((best, weight, j) => (Math.abs(Number(weight)) > Math.abs(Number(weights[best])) ? j : best), 0);

function moveHead(v, event, l, h) {
  const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
  if (down === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const next = v.cells[l + down]?.[h + across];
  if (!next) return;
  chooseHead(v, l + down, h + across);
  next.focus();
}

function matrix(v) {
  const title = v.e.name ? `${v.e.name}: every token's weights` : "Every token's weights";
  v.canvas = make("canvas", { attributes: { role: "application", tabindex: "0", "aria-label": `${title}. Arrow keys go from cell to cell; rows are queries, columns are keys.` } });
  v.readout = make("p", { className: "readout", attributes: { "aria-live": "polite" } });
  v.frame = make("span", { className: "frame", attributes: { "aria-hidden": "true" } });
  const darkest = number(largest(v.e.matrix));
  const says = `Rows are queries, columns are keys; the largest weight is ${darkest}. Point at a cell, or go to it with the arrow keys, for its weight.`;
  v.matrixBox.append(make("h3", { text: title }), make("div", { className: "board" }, v.canvas, v.frame), v.readout, make("p", { className: "quiet", text: says }));
  v.canvas.addEventListener("pointermove", (event) => {
    const { margin, wide, high } = v.layout;
    const [i, j] = [Math.floor((event.offsetY - margin) / high), Math.floor((event.offsetX - margin) / wide)];
    mark(v, i >= 0 && j >= 0 && i < v.e.matrix.length && j < v.e.tokens.length ? { i, j } : null);
  });
  v.canvas.addEventListener("pointerleave", () => mark(v, null));
  v.canvas.addEventListener("focus", () => v.mark || mark(v, { i: v.e.word, j: v.row }));
  v.canvas.addEventListener("keydown", (event) => {
    const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = v.mark || { i: v.e.word, j: v.row };
    mark(v, { i: Math.min(Math.max(at.i + down, 0), v.e.matrix.length - 1), j: Math.min(Math.max(at.j + across, 0), v.e.tokens.length - 1) });
  });
}
