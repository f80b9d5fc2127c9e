// The six steps of the chosen token with its numbers: one pair of query and key at a time, beside a table of the strongest keys; played
// step by step, or walked by the arrow keys.
import { drawBars, drawStrip } from "./bars.js";
import { weightsOf, strongestOf } from "../data/rows.js";
import { decimals, number, scientific, vectorText } from "../../../../drawing/web/numbers.js";
import { countWord, stagesOf, workingOf } from "./step_text.js";
import { betweenOf, byDimension, stepsOf } from "./step_numbers.js";
import { grouped, label, titleOf } from "../data/labels.js";
import { formulaNodes, make, markStep, stepButton } from "../../../../drawing/web/elements.js";

const SHOWN = 8; // keys in the table
const BINS = 96; // bars for the weights of all keys
const HOLD_FOR = 3200; // ms for a step while it plays

export const stepsPanel = {
  name: "steps",
  title: "Steps",
  position: "right",
  mount(root, recording, store) {
    const s = { root, recording, store, timer: 0, known: null };
    prepareSteps(s);
    const draw = () => root.isConnected && root.clientWidth && drawPair(s);
    store.subscribe((state, changed) => {
      if (["head", "batch", "side", "token", "key", "step", "theme", "panel"].some((name) => changed.has(name))) draw();
    });
    new ResizeObserver(draw).observe(root);
    draw();
  },
};

function prepareSteps(s) {
  s.play = make("button", { className: "play", text: "Play", attributes: { type: "button" }, on: { click: () => (s.timer ? stopPlay(s) : startPlay(s)) } });
  s.list = make("ol", { className: "scene" });
  s.title = make("h3", {});
  s.caption = make("div", { className: "caption", attributes: { "aria-live": "polite" } });
  s.figure = make("div", { className: "figure" });
  s.table = make("table", { className: "six" });
  s.root.append(s.title, make("div", { className: "player" }, s.play, s.list), s.caption, s.figure, make("div", { className: "scroll" }, s.table));
  s.root.classList.add("stepping");
  s.root.addEventListener("keydown", (event) => stepKeys(s, event));
}

// The query whose steps are shown: the chosen one; for a chosen key of another text, the query that takes most of it.
export function queryOf(head, { side, token }) {
  if (side === "query" || head.same) return token;
  return strongestOf(weightsOf(head, side, token).weights, 1)[0] ?? 0;
}

// The key of the pair: the chosen one, else the strongest of the query.
function keyOfPair(head, state, weights) {
  if (state.key !== null && state.key < head.keyCount) return state.key;
  if (state.side === "key" && !head.same) return state.token;
  return strongestOf(weights, 1)[0] ?? 0;
}

function drawPair(s) {
  const state = s.store.get();
  const head = s.recording.heads[state.head];
  if (!head.exact) {
    s.title.textContent = "The steps need queries, keys and values";
    s.caption.replaceChildren(make("p", { text: "This recording holds summaries of the head. Record with keep=\"qkv\" to see how each weight is computed." }));
    for (const each of [s.list, s.figure, s.table]) each.replaceChildren();
    s.play.hidden = true;
    return;
  }
  const query = queryOf(head, state);
  if (s.known?.head !== head || s.known.query !== query) s.known = { head, query, steps: stepsOf(head, query), stages: stagesOf(head) };
  const { steps, stages } = s.known;
  s.at = Math.min(state.step, stages.length - 1);
  s.key = keyOfPair(head, state, steps.weights);
  s.play.hidden = false;
  s.title.replaceChildren(`${countWord(stages.length)} steps for `, make("bdi", { text: `“${label(head.queries[query])}”` }), ` in ${head.name}`);
  drawStages(s, stages);
  tellPair(s, head, query);
  drawFigure(s, head, query);
  drawTable(s, head, query);
}

function drawStages(s, stages) {
  s.list.replaceChildren(...stages.map((current, i) => {
    const button = stepButton(current, () => pickStep(s, i));
    markStep(button, i, s.at);
    return make("li", {}, button);
  }));
}

function tellPair(s, head, query) {
  const current = s.known.stages[s.at];
  const says = make("p", { className: "says" }, make("b", {}, `${current.number} · `, ...formulaNodes(current.formula)), " ", ...formulaNodes(current.sentence));
  const pair = make("b", {}, make("bdi", { text: label(head.queries[query], 16) }), " → ", make("bdi", { text: label(head.keys[s.key], 16) }));
  s.caption.replaceChildren(says, make("p", { className: "working" }, pair, " ", workingOf(head, s.known.steps, current, query, s.key)));
}

// The step's picture for the pair: vectors as strips, the score dimension by dimension, the sum.
function drawFigure(s, head, query) {
  const { stages, steps } = s.known;
  const strips = (rows) => {
    s.figure.replaceChildren(...rows.map(([name, values]) => {
      const canvas = make("canvas", { className: "strip", attributes: { role: "img", "aria-label": `${name} = ${vectorText(values)}` } });
      return make("div", { className: "strip-row" }, make("span", {}, ...formulaNodes(name)), canvas);
    }));
    const maximum = Math.max(1e-12, ...rows.flatMap(([, values]) => Array.from(values, Math.abs).filter(Number.isFinite)));
    s.figure.querySelectorAll("canvas").forEach((canvas, i) => drawStrip(canvas, rows[i][1], maximum));
  };
  const value = head.value(s.key) ?? [];
  switch (stages[s.at].key) {
    case "vectors":
      return strips([["q", head.query(query)], ["k", head.key(s.key)], ["v", value]]);
    case "score":
    case "scale":
      return barFigure(s, byDimension(head, query, s.key), `What each of the ${head.width} dimensions adds to the score of this pair`);
    case "decay":
      return barFigure(s, binned(steps.left), `What is left of each of the ${grouped(head.keyCount)} positions where the row reads${head.keyCount > BINS ? ", the largest of each run" : ""}`);
    case "asking":
      return strips([["q", head.query(query)], ["r", steps.asking(s.key)], ["k", head.key(s.key)]]);
    case "normalize":
      return barFigure(s, binned(steps.weights), `The weights of all ${grouped(head.keyCount)} keys, in their order${head.keyCount > BINS ? ", the largest of each run" : ""}`);
    case "weigh":
      return strips([["v", value], [head.signed ? "W·v" : "α·v", Array.from(value, (v) => v * steps.weights[s.key])]]);
    case "sum":
      return strips([[head.signed ? "Σ W·v" : "Σ α·v", steps.output ?? []]]);
    case "join":
      return strips([["h_i", head.value(query) ?? []], ["c_i", steps.output ?? []]]);
    default:
      return s.figure.replaceChildren();
  }
}

function barFigure(s, values, description) {
  const canvas = make("canvas", { className: "bars", attributes: { role: "img", "aria-label": description } });
  s.figure.replaceChildren(canvas, make("p", { className: "quiet", text: description }));
  drawBars(canvas, values);
}

// As many numbers as there is room for: each the largest of its run.
function binned(weights) {
  if (weights.length <= BINS) return weights;
  const result = new Float32Array(BINS);
  weights.forEach((weight, j) => {
    const bin = Math.floor((j * BINS) / weights.length);
    if (Math.abs(weight) > Math.abs(result[bin])) result[bin] = weight;
  });
  return result;
}

const COLUMN_OF = { decay: 1, asking: 2, vectors: 0, score: 1, scale: 2, normalize: 3, weigh: 4, sum: 5, join: 5 };

function drawTable(s, head, query) {
  const { steps, stages } = s.known;
  const now = COLUMN_OF[stages[s.at].key];
  const top = strongestOf(steps.weights, SHOWN);
  if (!top.includes(s.key)) top.splice(SHOWN - 1, 1, s.key);
  const columns = [[1, "left", steps.left && ((j) => number(steps.left[j], 3))], [1, "score", steps.raw && ((j) => number(steps.raw[j], decimals([steps.raw[j]], 2, 3)))],
    [2, "masked", steps.masked && ((j) => number(steps.masked[j], decimals([steps.masked[j]], 2, 3)))],
    [3, "α", (j) => (steps.weights[j] !== 0 && Math.abs(steps.weights[j]) < 5e-4 ? scientific(steps.weights[j]) : number(steps.weights[j], 3))]].filter((each) => each[2]);
  const titles = { left: "decay left", score: "score", masked: betweenOf(head).length > 1 ? "scaled, masked" : "scaled", α: head.signed ? "W" : "α" };
  const stage = (at) => (at === now ? "now" : at > now ? "later" : "");
  const headings = columns.map(([at, name]) => make("th", { text: titles[name], className: stage(at), attributes: { scope: "col" } }));
  const rows = top.map((j) => rowOf(s, head, j, columns, stage));
  const rest = strongestRest(steps, top);
  s.table.replaceChildren(
    make("caption", { text: `${head.signed ? "The signed weights of this row, largest in size first" : "How this query attends to each key, strongest first"}: the ${top.length} strongest of ${grouped(head.keyCount)}` }),
    make("thead", {}, make("tr", {}, make("th", { text: "key", attributes: { scope: "col" } }), ...headings, make("th", { className: stage(3), attributes: { scope: "col", "aria-label": "weight as a bar" } }))),
    make("tbody", {}, ...rows),
    make("tfoot", {}, restRow(head, steps, rest, columns, stage), ...sinkRow(head, steps, columns, stage)),
  );
}

function rowOf(s, head, j, columns, stage) {
  const cells = columns.map(([at, , description]) => make("td", { text: description(j), className: stage(at) }));
  const fill = make("b", {});
  const largest = head.signed ? Math.abs(s.known.steps.weights[strongestOf(s.known.steps.weights, 1)[0]]) || 1 : 1;
  fill.style.width = `${100 * Math.min(1, Math.abs(s.known.steps.weights[j]) / largest || 0)}%`;
  if (s.known.steps.weights[j] < 0) fill.className = "negative";
  const name = make("button", { attributes: { type: "button", title: titleOf(head.keys, j) }, on: { click: () => s.store.set({ key: j }) } }, make("bdi", { text: label(head.keys[j], 18) }));
  const row = make("tr", { className: j === s.key ? "chosen" : "", attributes: { "data-key": String(j), "aria-current": String(j === s.key) } });
  row.append(make("th", { attributes: { scope: "row" } }, name), ...cells, make("td", { className: `level ${stage(3)}` }, fill));
  return row;
}

const strongestRest = (steps, top) => steps.weights.reduce((sum, weight) => sum + weight, 0) - top.reduce((sum, j) => sum + steps.weights[j], 0);

function restRow(head, steps, rest, columns, stage) {
  const empty = columns.slice(0, -1).map(() => make("td", {}));
  return make("tr", { className: "others" }, make("th", { text: `the other ${grouped(Math.max(0, steps.weights.length - SHOWN))}`, attributes: { scope: "row" } }), ...empty, make("td", { text: number(head.signed ? rest : Math.max(0, rest), 3), className: stage(3) }), make("td", {}));
}

function sinkRow(head, steps, columns, stage) {
  if (head.sink === null) return [];
  const empty = columns.slice(0, -1).map(() => make("td", {}));
  const share = 1 - steps.weights.reduce((sum, weight) => sum + weight, 0);
  return [make("tr", { className: "others" }, make("th", { text: "the sink", attributes: { scope: "row" } }), ...empty, make("td", { text: number(share, 3), className: stage(3) }), make("td", {}))];
}

function pickStep(s, step) {
  if (s.timer) stopPlay(s);
  s.store.set({ step });
}

function startPlay(s) {
  const last = s.known.stages.length - 1;
  s.play.textContent = "Pause";
  s.timer = setInterval(() => {
    if (s.at >= last || !s.root.isConnected) stopPlay(s);
    else s.store.set({ step: s.at + 1 });
  }, HOLD_FOR);
  s.store.set({ step: s.at >= last ? 0 : s.at + 1 });
}

function stopPlay(s) {
  clearInterval(s.timer);
  s.timer = 0;
  s.play.textContent = "Play";
}

// From row to row as the table shows them, from step to step, and the space bar plays where it is no button's own.
function stepKeys(s, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !s.known) return;
  const rows = [...s.table.querySelectorAll("tbody tr")].map((row) => Number(row.dataset.key));
  const move = (by) => s.store.set({ key: rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(s.key) + by))] });
  if (event.key === "ArrowRight") pickStep(s, Math.min(s.at + 1, s.known.stages.length - 1));
  else if (event.key === "ArrowLeft") pickStep(s, Math.max(s.at - 1, 0));
  else if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else return;
  event.preventDefault();
  event.stopPropagation();
  keepFocus(s, event);
}

// The step's button and the row's are made anew when drawn: the focus goes to their successors.
function keepFocus(s, event) {
  const across = event.key === "ArrowRight" || event.key === "ArrowLeft";
  (across ? s.list.querySelector(".now") : s.table.querySelector("tr.chosen button"))?.focus();
}
