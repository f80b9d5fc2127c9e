// The steps of the chosen token with their numbers: one row per key, strongest first, with its vectors as strips; the current step is
// described in a sentence and written out for one pair.
import { drawBars, drawStrip, largestOf } from "./bars.js";
import { weightsOf, strongestOf } from "../data/rows.js";
import { decimals, number, scientific, vectorText } from "../../../../drawing/web/numbers.js";
import { countWord, namesOf, stagesOf, totalOf, workingOf } from "./step_text.js";
import { byDimension, stepsOf } from "./step_numbers.js";
import { grouped, label, numberedLabels, titleOf } from "../data/labels.js";
import { whyNodes } from "./why.js";
import { stripReader } from "./strips.js";
import { button, formulaNodes, gauge, make } from "../../../../drawing/web/elements.js";
import { theme } from "../../../../drawing/web/theme.js";

const [SHOWN, ALL, BINS, ADDED_UP] = [8, 256, 96, 1800]; // SHOWN, ALL: keys in the table, folded and unfolded; BINS: bars for all keys; ADDED_UP: ms in which a sum grows

export function mountSteps(root, recording, store) {
  const s = { root, recording, store, known: null, all: false };
  [s.title, s.caption, s.figure, s.query, s.table] = [make("h2"), make("div", { className: "caption", attributes: { "aria-live": "polite" } }), make("div", { className: "figure" }), make("p", { className: "query" }), make("table", { className: "six" })];
  root.classList.add("steps");
  s.reader = stripReader(root);
  root.append(s.title, s.caption, s.figure, s.query, make("div", { className: "scroll" }, s.table), s.reader.line);
  const draw = () => root.isConnected && root.clientWidth && drawSteps(s);
  store.subscribe((state, changed) => {
    if (["head", "batch", "side", "token", "key", "step", "playing", "theme", "panel"].some((name) => changed.has(name))) draw();
  });
  new ResizeObserver(draw).observe(root);
  draw();
}

// The query whose steps are shown: the chosen one, or for a chosen key of another text the query with the largest weight on it.
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

function drawSteps(s) {
  const state = s.store.get();
  const head = s.recording.heads[state.head];
  s.query.hidden = s.figure.hidden = s.table.hidden = s.reader.line.hidden = !head.exact;
  if (!head.exact) {
    s.title.textContent = "The steps need queries, keys and values";
    return s.caption.replaceChildren(make("p", { text: "This recording holds summaries of the head. Record with keep=\"qkv\" to see how each weight is computed." }));
  }
  const query = queryOf(head, state);
  if (s.known?.head !== head || s.known.query !== query) Object.assign(s, { known: { head, query, steps: stepsOf(head, query), stages: stagesOf(head, query), names: namesOf(head, query) }, all: false });
  const { steps, stages } = s.known;
  const [key, stage] = [keyOfPair(head, state, steps.weights), stages[Math.min(state.step, stages.length - 1)]];
  const why = s.recording.whyOf(head, query);
  s.title.replaceChildren(`${countWord(stages.length)} steps for `, make("bdi", { text: `“${label(head.queries[query], 40)}”` }), ...(s.recording.heads.length > 1 ? [` in ${head.name}${why ? ` (${label(why, 120)})` : ""}`] : []));
  const table = `${head.id} ${query} ${key} ${s.all} ${theme()} ${s.root.clientWidth} ${window.devicePixelRatio}`;
  s.key = key;
  const focused = s.table.contains(document.activeElement);
  if (s.drawn !== table) drawTable(s, head);
  if (focused && s.drawn !== table) s.table.querySelector("tr.chosen button")?.focus({ preventScroll: true });
  tell(s, head, query, stage);
  mark(s, stage, state.playing);
  const told = `${table} ${stage.key}`;
  if (s.told !== told) drawFigure(s, head, query, stage);
  [s.drawn, s.told] = [table, told];
  if (state.playing && stage.key === "sum") addUp(s, performance.now());
  return undefined;
}

function tell(s, head, query, stage) {
  const says = make("p", { className: "says" }, make("b", {}, `${stage.number} · `, ...formulaNodes(stage.formula)), " ", ...formulaNodes(stage.sentence));
  const pair = make("b", {}, make("bdi", { text: label(head.queries[query], 16) }), " → ", make("bdi", { text: label(head.keys[s.key], 16) }));
  const working = make("p", { className: "working" }, pair, " ", ...formulaNodes(workingOf(head, s.known.steps, stage, query, s.key)));
  const told = says.textContent + working.textContent;
  if (s.said === told && s.asked === s.recording.cut) return;
  [s.said, s.asked] = [told, s.recording.cut];
  s.caption.replaceChildren(says, working, ...(s.recording.why ? whyNodes(s.recording.why, head, query, s.key) : []));
}

// The relation of the table's columns and of the lines below it to the current step.
function mark(s, stage, playing) {
  const order = s.known.stages.map((each) => each.key);
  s.root.dataset.stage = stage.key;
  s.root.classList.toggle("playing", playing);
  for (const cell of s.table.querySelectorAll("[data-column]")) {
    const position = order.indexOf(cell.dataset.column);
    cell.classList.toggle("now", cell.dataset.column === stage.key);
    cell.classList.toggle("later", position > stage.number - 1);
  }
}

// The step's picture for the pair if the table has none: the score by dimension, or the weights of all keys in order.
function drawFigure(s, head, query, stage) {
  const { steps } = s.known;
  const more = head.keyCount > BINS ? ", the largest of each run" : "";
  const [values, description] = {
    score: () => [byDimension(head, query, s.key), `What each of the ${head.width} dimensions adds to the score of this pair`],
    decay: () => [binned(steps.left), `What is left of each of the ${grouped(head.keyCount)} positions where the row reads${more}`],
    asking: () => [steps.asking(s.key), "What the row asks for, r, where the walk back comes to this position"],
    normalize: () => [binned(steps.weights), `The weights of all ${grouped(head.keyCount)} keys, in their order${more}`],
  }[stage.key]?.() ?? [];
  if (!values) return s.figure.replaceChildren();
  const canvas = make("canvas", { className: "bars", attributes: { role: "img", "aria-label": description } });
  s.figure.replaceChildren(canvas, make("p", { className: "quiet", text: description }));
  return drawBars(canvas, values);
}

// As many numbers as fit, each the largest of its run.
function binned(weights) {
  if (weights.length <= BINS) return weights;
  const result = new Float32Array(BINS);
  weights.forEach((weight, j) => {
    const bin = Math.floor((j * BINS) / weights.length);
    if (Math.abs(weight) > Math.abs(result[bin])) result[bin] = weight;
  });
  return result;
}

const shortWeight = (weight) => (weight !== 0 && Math.abs(weight) < 5e-4 ? scientific(weight) : number(weight, 3));

// The columns of this head: the step of each, its heading, and its number or vector for a key.
function columnsOf({ head, steps, stages, names }) {
  const stage = (key) => stages.find((each) => each.key === key);
  const value = (j) => head.value(j) ?? [];
  const text = (values, least) => (j) => number(values[j], decimals([values[j]], 2, least));
  return [
    names.key && !head.stored && { key: "vectors", name: names.key, vector: (j) => head.key(j), scale: "vectors" },
    !head.stored && { key: "vectors", name: names.value, vector: value, scale: "vectors" },
    steps.left && { key: "decay", name: "decay left", text: (j) => number(steps.left[j], 3) },
    steps.raw && { key: "score", name: stage("score").formula, text: text(steps.raw, 3) },
    steps.raw && stage("scale") && { key: "scale", name: stage("scale").formula, text: text(steps.masked, 3) },
    { key: "normalize", name: `${head.signed || head.stored ? "" : `${stage("normalize").title} `}${names.weight}`, text: (j) => shortWeight(steps.weights[j]), bar: true },
    { key: "weigh", name: names.weighted, vector: (j) => Array.from(value(j), (each) => each * steps.weights[j]), scale: "weighted" },
  ].filter(Boolean).map((column) => ({ ...column, number: stage(column.key).number }));
}

function drawTable(s, head) {
  const { steps, stages, names, query } = s.known;
  const columns = columnsOf(s.known);
  const shown = strongestOf(steps.weights, s.all ? ALL : steps.weights.length <= SHOWN + 2 ? SHOWN + 2 : SHOWN);
  if (!shown.length) shown.push(...Array.from({ length: Math.min(SHOWN, head.keyCount) }, (_, j) => j));
  for (const j of [s.key, ...(head.same && !head.signed && steps.weights[query] !== 0 ? [query] : [])]) if (!shown.includes(j)) shown.push(j);
  shown.sort((a, b) => Math.abs(steps.weights[b]) - Math.abs(steps.weights[a]) || 0);
  s.strips = [];
  s.most = { vectors: largestOf(shown.flatMap((j) => [head.key(j) ?? [], head.value(j) ?? []])), weighted: largestOf([steps.output ?? [], ...shown.map(columns.at(-1).vector)]), weight: Math.abs(steps.weights[shown[0]]) || 1 };
  const labels = numberedLabels(head.keys);
  const heading = columns.map((each) => make("th", { attributes: { scope: "col", "data-column": each.key } }, make("i", { text: String(each.number) }), " ", ...formulaNodes(each.name)));
  s.table.replaceChildren(
    make("caption", { text: `${head.signed ? "The signed weights of this row, largest in size" : `How “${label(head.queries[query])}” attends to each key, strongest`} first: ${shown.length} of ${grouped(head.keyCount)}` }),
    make("thead", {}, make("tr", {}, make("th", { text: "token", attributes: { scope: "col" } }), ...heading)),
    make("tbody", {}, ...shown.map((j) => keyRow(s, head, j, columns, labels))),
    make("tfoot", {}, ...footOf(s, head, columns, shown, stages, names)),
  );
  drawQuery(s, head, names);
  const own = s.query.hidden ? "" : `, ±${number(s.strips.at(-1).most)} for ${names.query}`;
  s.reader.show(s.most.vectors, ` for ${[names.key, names.value].filter(Boolean).join(" and ")}, ±${number(s.most.weighted)} for ${names.weighted}${own}.`);
  for (const { canvas, values, most } of s.strips) drawStrip(canvas, values, most);
}

function drawQuery(s, head, names) {
  s.query.hidden = head.signed || head.stored;
  if (s.query.hidden) return;
  const vector = names.own ? s.known.steps.own : head.query(s.known.query);
  s.query.replaceChildren(make("span", {}, ...formulaNodes(`${names.query} = ${vectorText(vector)}`)), stripOf(s, vector, largestOf([vector]), `${names.query} of ${label(head.queries[s.known.query], 20)}`, true));
}

// Tab reaches the strips of the query and of the chosen key.
function stripOf(s, values, most, name, reached) {
  const canvas = make("canvas", { className: "strip", attributes: { role: "img", "aria-label": `${name}: ${vectorText(values)}`, ...(reached ? { tabindex: "0" } : {}) } });
  canvas.strip = { values, name };
  s.strips.push({ canvas, values, most });
  return canvas;
}

function cellOf(s, column, { text, vector, weight, name = "all other keys", reached = false }) {
  const cell = make("td", { className: column.vector ? "vector" : "number", attributes: { "data-column": column.key } });
  if (vector) cell.append(stripOf(s, vector, s.most[column.scale], `${column.name} of ${name}`, reached));
  if (text !== undefined) cell.append(make("span", { text }));
  if (weight !== undefined) cell.append(gauge(weight, s.most.weight));
  return cell;
}

function keyRow(s, head, j, columns, labels) {
  const cells = columns.map((column) => cellOf(s, column, column.vector ? { vector: column.vector(j), name: label(head.keys[j], 20), reached: j === s.key } : { text: column.text(j), weight: column.bar ? s.known.steps.weights[j] : undefined }));
  const name = button("", (event) => (event.stopPropagation(), s.store.set(head.same ? { side: "query", token: j } : { side: "key", token: j })), { title: `${titleOf(head.keys, j)}: choose it` });
  name.append(make("bdi", { text: labels(j) }));
  const own = head.same && j === s.known.query ? " own" : "";
  const row = make("tr", { className: `${j === s.key ? "chosen" : ""}${own}`, attributes: { "data-key": String(j), "aria-current": String(j === s.key) }, on: { click: () => s.store.set({ key: j }) } });
  row.append(make("th", { attributes: { scope: "row" } }, name), ...cells);
  return row;
}

// The lines below: all other keys together, the sink's share, the sum, and the layer's state if it is joined to the sum.
function footOf(s, head, columns, shown, stages, names) {
  const { steps } = s.known;
  const line = (className, heading, weight, vector) => make("tr", { className }, make("th", { attributes: { scope: "row" } }, ...heading), ...columns.map((column) =>
    cellOf(s, column, column.bar && weight !== null ? { text: number(weight, 3) } : column.key === "weigh" && vector ? { vector, name: className === "output" ? "all keys together" : undefined } : {})));
  const lines = [];
  const rest = head.keyCount - shown.length;
  if (rest > 0 || s.all) {
    const others = Array.from(steps.output ?? [], (sum, d) => shown.reduce((left, j) => left - steps.weights[j] * head.value(j)[d], sum));
    const fold = button(s.all ? "hide" : "show", () => { s.all = !s.all; drawSteps(s); s.table.querySelector(".others button").focus(); }, { "aria-expanded": String(s.all) });
    const weight = totalOf(steps.weights) - shown.reduce((sum, j) => sum + steps.weights[j], 0);
    lines.push(line("others", [`the other ${grouped(rest)} `, fold], steps.weights.some(Number.isNaN) ? NaN : head.signed || head.normalizer === "sum" ? weight : Math.max(0, weight), others));
  }
  if (head.sink !== null) lines.push(line("others", ["the sink"], 1 - totalOf(steps.weights), null));
  const numbered = (key, formula) => [make("i", { text: String(stages.find((each) => each.key === key).number) }), " ", ...formulaNodes(formula)];
  const output = line("output", numbered("sum", names.sum), totalOf(steps.weights), steps.output);
  output.dataset.column = "sum";
  s.output = s.strips.at(-1);
  lines.push(output);
  const join = stages.find((each) => each.key === "join");
  if (join) {
    lines.push(line("output", numbered("join", join.formula), null, [...(steps.own ?? []), ...(steps.output ?? [])]));
    lines.at(-1).dataset.column = "join";
  }
  return lines;
}

// The growing sum: key after key, the strongest first.
function addUp(s, start) {
  const { steps, head } = s.known;
  const order = strongestOf(steps.weights, 10);
  const count = Math.floor(((performance.now() - start) / ADDED_UP) * order.length);
  const going = count < order.length && s.store.get().playing && s.root.dataset.stage === "sum" && !matchMedia("(prefers-reduced-motion: reduce)").matches;
  const part = going ? Array.from(steps.output, (_, d) => order.slice(0, count).reduce((sum, j) => sum + steps.weights[j] * head.value(j)[d], 0)) : steps.output;
  drawStrip(s.output.canvas, part, s.output.most);
  if (going) requestAnimationFrame(() => addUp(s, start));
}

// From row to row as the table shows them.
export function moveRow(root, store, by) {
  const rows = [...root.querySelectorAll(".six tbody tr")];
  const at = rows.findIndex((row) => row.classList.contains("chosen"));
  if (rows.length) store.set({ key: Number(rows[Math.max(0, Math.min(rows.length - 1, at + by))].dataset.key) });
}
