// One explanation drawn: the sentence, the heads, the steps and the matrix, after each choice.
import { css, inkOn, theme } from "../../../drawing/web/theme.js";
import { formulaNodes, make } from "../../../drawing/web/elements.js";
import { number } from "../../../drawing/web/numbers.js";
import { shade } from "./colours.js";
import { arcs, board, largest, strip, stripes, STRONG } from "./draw.js";
import { state, views } from "./state.js";
import { working } from "./working.js";

export function choose(v, j) {
  v.row = j;
  const line = v.ranked.find((each) => Number(each.dataset.row) === j);
  if (line.classList.contains("rest") && !v.whole && v.others) v.others.querySelector("button").click();
  views.forEach((each) => each !== v && j < each.e.tokens.length && each.e.tokens[j] === v.e.tokens[j] && ((each.row = j), draw(each)));
  draw(v);
}

export function chooseHead(v, layer, head) {
  for (const each of views) {
    if (!each.e.rows[layer]?.[head]) continue;
    [each.layer, each.head] = [layer, head];
    draw(each);
  }
}

export function draw(v) {
  const weights = v.e.rows[v.layer][v.head];
  drawSentence(v, weights);
  drawHeads(v, weights);
  drawSteps(v);
  drawStrips(v);
  drawBoard(v);
}

// The matrix is large: it is drawn again only where its room or the theme has changed.
function drawBoard(v) {
  const space = v.matrixBox.clientWidth - 38;
  const key = `${space} ${theme()} ${window.devicePixelRatio}`;
  if (v.drawn !== key) v.layout = board(v.canvas, v.e, space);
  v.drawn = key;
  mark(v, v.mark);
}

function drawSentence(v, weights) {
  const maximum = Math.max(STRONG, largest([weights]));
  v.tokens.forEach((token, j) => {
    const colour = shade(Number(weights[j]) / maximum);
    token.style.backgroundColor = css(colour);
    token.style.color = inkOn(colour);
    token.classList.toggle("chosen", j === v.row);
    token.tabIndex = j === v.row ? 0 : -1;
    token.setAttribute("aria-pressed", String(j === v.row));
    token.setAttribute("aria-label", `${v.e.labels[j]}, weight ${number(weights[j], 3)}`);
    token.title = number(weights[j], 3);
  });
  arcs(v.sentence, weights, v.e.word_index, maximum);
}

function drawHeads(v, weights) {
  v.cells.forEach((layer, l) => layer.forEach((button, h) => {
    const chosen = l === v.layer && h === v.head;
    button.setAttribute("aria-pressed", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    if (button.isConnected) stripes(button.firstChild, v.e.rows[l][h]);
  }));
  const order = weights.map((_, j) => j).sort((a, b) => Math.abs(Number(weights[b])) - Math.abs(Number(weights[a])));
  const top = order.slice(0, order.length <= 8 ? 8 : 6);
  const maximum = Math.max(1, largest([weights]));
  v.rowBox.replaceChildren(...top.flatMap((j) => [make("bdi", { text: v.e.labels[j] }), make("span", { className: "number", text: number(weights[j], 3) }), bar(weights[j], maximum)]));
  const rest = order.slice(top.length);
  if (rest.length) {
    const total = rest.reduce((sum, j) => sum + Number(weights[j]), 0);
    v.rowBox.append(make("span", { className: "quiet", text: `the other ${rest.length}` }), make("span", { className: "number quiet", text: number(total, 3) }));
  }
  drawHeadName(v);
}

function drawHeadName(v) {
  if (!v.e.name) return v.chosenHead.replaceChildren();
  const marked = v.layer === v.shown.layer && v.head === v.shown.head;
  const description = marked ? `: ${v.e.why}. The steps and the matrix show it.` : `. The steps and the matrix show ${v.e.name}. `;
  v.chosenHead.replaceChildren(make("b", { text: `L${v.layer}H${v.head}` }), description);
  if (marked) return undefined;
  const back = make("button", { className: "cell-button", text: `back to ${v.e.name}`, attributes: { type: "button" } });
  back.addEventListener("click", () => chooseHead(v, v.shown.layer, v.shown.head));
  v.chosenHead.append(back);
  return undefined;
}

export const stepOf = (v) => v.e.stages[Math.min(state.step, v.e.stages.length - 1)];

export function drawSteps(v) {
  const stage = stepOf(v);
  const keys = v.e.stages.map((each) => each.key);
  const now = keys.indexOf(stage.key);
  v.root.classList.toggle("playing", state.playing);
  const visible = visibleColumns(v, stage.key);
  for (const cell of v.root.querySelectorAll(".steps [data-column]")) {
    const position = keys.indexOf(cell.dataset.column);
    cell.classList.toggle("now", position === now);
    cell.classList.toggle("later", position > now);
    cell.classList.toggle("away", cell.matches("th, td") && !visible.has(cell.dataset.column));
  }
  // A foot's first cell reaches over the columns that are in sight before the weights.
  const entries = [...v.root.querySelectorAll(".steps thead th:not(.away)")].map((head) => head.dataset.column);
  const ahead = entries.filter((column) => column !== "normalize" && column !== "weigh").length;
  for (const line of v.root.querySelectorAll(".steps tfoot tr")) {
    line.children[0].colSpan = ahead;
    line.children[1].classList.toggle("away", !visible.has("normalize"));
    line.children[2].classList.toggle("away", !visible.has("weigh"));
  }
  for (const line of v.ranked) {
    line.hidden = line.classList.contains("rest") && !v.whole && Boolean(v.others);
    line.classList.toggle("chosen", Number(line.dataset.row) === v.row);
    line.setAttribute("aria-current", String(Number(line.dataset.row) === v.row));
  }
  if (v.others) {
    v.others.hidden = false;
    for (const cell of v.others.querySelectorAll("td")) cell.hidden = v.whole;
  }
  tell(v, stage);
}

// The columns that the width has room for: all of them, all but the vectors, or the present step's beside the weights.
function visibleColumns(v, key) {
  const [width, ends] = [v.root.clientWidth, ["weigh", "sum", "join"]];
  v.root.classList.toggle("narrow", width < 720);
  if (width >= 720) return new Set(["vectors", "score", "scale", "normalize", ...ends]);
  if (key === "vectors") return new Set(["vectors"]);
  if (width >= 480) return new Set(["score", "scale", "normalize", ...ends]);
  return new Set(["normalize", key, ...(ends.includes(key) ? ends : [])]);
}

function tell(v, stage) {
  const description = `${stage.key} ${v.row}`;
  if (v.description === description) return;
  v.description = description;
  const says = make("p", { className: "says" }, make("b", {}, `${stage.number} · `, ...formulaNodes(stage.formula)), ...formulaNodes(stage.sentence));
  const line = make("p", { className: "working" }, make("b", {}, make("bdi", { text: v.e.labels[v.row] })), "  ", ...formulaNodes(working(v.e, stage, v.e.steps[v.row])));
  v.caption.replaceChildren(says, line);
}

export function drawStrips(v) {
  for (const { canvas, values, maximum } of v.strips) if (canvas.offsetParent) strip(canvas, values, maximum);
}

export function bar(value, maximum) {
  const fill = make("b", { className: Number(value) < 0 ? "negative" : "" });
  fill.dataset.share = String(Math.min(1, Math.abs(Number(value)) / maximum) || 0);
  fill.style.width = `${100 * Number(fill.dataset.share)}%`;
  return make("span", { className: "bar", attributes: { "aria-hidden": "true" } }, fill);
}

export function mark(v, position) {
  v.mark = position;
  const { margin, wide, high } = v.layout;
  v.frame.hidden = !position;
  if (position) Object.assign(v.frame.style, { left: `${margin + position.j * wide}px`, top: `${margin + position.i * high}px`, width: `${wide}px`, height: `${high}px` });
  const { i, j } = position || { i: v.e.word, j: v.row };
  const weight = number(v.e.matrix[i][j], 3);
  v.readout.replaceChildren(make("bdi", { text: v.e.query_labels[i] }), " → ", make("bdi", { text: v.e.labels[j] }), `  ${weight}`);
}
