// Lesson 4: a series is re-weighted by attention to itself, without any trained weight; the reader chooses the similarity.
import { amount, card, choice, choices, followSettings, scope, slider, table, whole } from "./parts.js";
import { largestChange, mixed, noise, shuffled, weightsOfRow } from "./formula.js";
import { drawSeries, indexAt, valueAt } from "./series_chart.js";
import { wordsCard } from "./words.js";
import { number, scientific } from "../../../drawing/web/numbers.js";
import { button, formulaNodes, make } from "../../../drawing/web/elements.js";

const [COUNT, MOST, NEAR, HALF] = [60, 400, 3, 3]; // points initially and at most; steps that count as near; patch points a side
// Series with noise, from normal numbers.
const SERIES = {
  "a step": (noises) => noises.map((each, i) => (i < COUNT / 2 ? 0 : 2) + 0.4 * each),
  "a wave": (noises) => noises.map((each, i) => 2 * Math.sin(i / 6) + 0.4 * each),
  "pulses": (noises) => noises.map((each, i) => (i % 12 < 2 ? 3 : 0) + 0.4 * each),
  "a walk": (noises) => noises.map((_, i) => noises.slice(0, i + 1).reduce((sum, each) => sum + each / 2, 0)),
};
const KEYS = { time: "time", value: "value", both: "time and value", patch: "patch", dot: "x_i · x_j", sum: "plain sum" };

export const REWEIGHT = [
  { name: "series", initial: "", read: (text) => (numbersOf(text).wrong ? undefined : text), write: (text) => (text.length > 4000 ? "" : text) },
  choice("by", Object.keys(KEYS)), amount("width", 3, 0.1, 400), amount("alike", 0.5, 0.01, 10), whole("point", 20, MOST),
];

const SAID = {
  time: ["f = −(t_i − t_j)² / 2h²", "Near in time counts: kernel regression (Nadaraya 1964, Watson 1964). It smooths noise, and an edge with it."],
  value: ["f = −(x_i − x_j)² / 2g²", "Alike in value counts. Points far away weigh as much as neighbours with the same number: neither order nor proximity has influence."],
  both: ["f = −(t_i − t_j)² / 2h² − (x_i − x_j)² / 2g²", "Near in time and alike in value: the bilateral filter (Tomasi and Manduchi 1998). A point listens to its side of an edge."],
  patch: ["f = −|p_i − p_j|² / (7 · 2g²)", "The seven points around one are alike to those around another: non-local means (Buades et al. 2005). What comes back, as pulses do, is averaged with its like, however far away."],
  dot: ["f = x_i · x_j", "The recipe word for word: large is mistaken for alike. The product is largest for the largest x_j, not for the nearest, and it changes with the zero of the scale."],
  sum: ["w_ij = x_i x_j / (x_i x_1 + … + x_i x_n)", "Divided by the plain sum, x_i cancels: every point gets the same number, Σ x_j² / Σ x_j. Where the series has a mean near zero, the weights have no bound."],
};
const SHOWS = "Each point becomes a weighted mean of all points, y_i = Σ w_ij x_j, in float64, in this page. Nothing is trained: what counts as alike was chosen by hand.";
const NOT = "The bandwidths are yours, not the best ones, and there is no error bar: overt.smooth chooses among many such heads and says how sure it is.";

// The panel; `reader` is the model whose word vectors it shows, null if there is none.
export const reweightPanel = (reader) => ({
  name: "reweight",
  title: "Re-weighting",
  lesson: 4,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const self = { root, recording, store, seed: 1 };
    prepare(self);
    const words = reader ? [wordsCard(self, reader)] : [];
    root.append(make("div", {}, self.card, ...words.map(([box]) => box)), make("div", {}, self.settings, self.influence, scope(SHOWS, NOT)));
    const draw = () => root.clientWidth && drawAll(self);
    store.subscribe((state, changed) => {
      if (state.panel !== "reweight") return;
      if (["series", "by", "width", "alike", "point", "theme", "panel"].some((name) => changed.has(name))) draw();
      for (const [, drawWords] of words) if (["token", "recording", "panel"].some((name) => changed.has(name))) drawWords();
    });
    new ResizeObserver(draw).observe(self.chart);
    draw();
  },
});

function prepare(self) {
  const { store } = self;
  self.chart = make("canvas", { className: "series", attributes: { role: "slider", tabindex: "0", "aria-label": "the chosen point; up and down change its number", "aria-valuemin": "1" } });
  self.field = make("textarea", { attributes: { id: "numbers", rows: "2", spellcheck: "false" }, on: { input: () => paste(self) } });
  self.said = make("p", { className: "quiet", attributes: { "aria-live": "polite" } });
  const made = Object.entries(SERIES).map(([text, from]) => button(text, () => store.set({ series: written(from(noise(COUNT, (self.seed += 1)))) })));
  self.card = card("A series, and what attention to itself makes of it", self.chart, self.said,
    make("div", { className: "toggles" }, ...made),
    make("label", { className: "quiet", text: "Drag in the picture to draw, click a point for its weights, or paste numbers:", attributes: { for: "numbers" } }), self.field);
  self.formula = make("p", { className: "working" });
  self.caption = make("p", { className: "says" });
  const log = { least: -40, most: 40, from: (at) => Number((3 * 10 ** (at / 30)).toFixed(2)), to: (value) => Math.round(30 * Math.log10(value / 3)) };
  const alike = { least: -40, most: 30, from: (at) => Number((0.5 * 10 ** (at / 30)).toFixed(3)), to: (value) => Math.round(30 * Math.log10(value / 0.5)), said: (value) => `${number(value)} σ` };
  self.width = slider(store, "width", "h, steps in time", log);
  self.alike = slider(store, "alike", "g, in value", alike);
  self.settings = card("What is alike", choices(store, "by", KEYS, "what is alike"), self.formula, self.caption, make("div", { className: "settings" }, self.width, self.alike));
  for (const each of self.settings.querySelectorAll("button")) each.replaceChildren(...formulaNodes(each.textContent));
  self.influence = card("What has influence");
  handle(self);
}

// Drawing with the pointer, choosing by a click, both by keys.
function handle(self) {
  const { chart, store } = self;
  let start = null;
  chart.addEventListener("pointerdown", (event) => {
    start = { x: event.offsetX, y: event.offsetY, last: null, range: self.range };
    chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (!start || (start.last === null && Math.hypot(event.offsetX - start.x, event.offsetY - start.y) < 5)) return;
    draw(self, start, event);
  });
  chart.addEventListener("pointerup", (event) => {
    if (start && start.last === null) store.set({ point: indexAt(chart, self.x.length, event.offsetX) });
    start = null;
    drawAll(self);
  });
  chart.addEventListener("pointercancel", () => (start = null));
  chart.addEventListener("keydown", (event) => {
    const [along, up] = [{ ArrowLeft: -1, ArrowRight: 1 }[event.key], { ArrowUp: 1, ArrowDown: -1 }[event.key]];
    if (!along && !up) return;
    event.preventDefault();
    event.stopPropagation();
    const point = Math.max(0, Math.min(self.x.length - 1, self.point + (along ?? 0)));
    if (up) self.x[point] += (up * (self.range[1] - self.range[0])) / 40;
    store.set({ point, ...(up ? { series: written(self.x) } : {}) });
  });
}

// Every point between the pointer's last position and this one gets the pointer's height.
function draw(self, start, event) {
  const at = indexAt(self.chart, self.x.length, event.offsetX);
  const from = start.last ?? at;
  for (let i = Math.min(from, at); i <= Math.max(from, at); i++) self.x[i] = valueAt(self.chart, start.range, event.offsetY);
  start.last = at;
  self.held = start.range; // the scale is fixed while the reader draws
  self.store.set({ series: written(self.x) });
  self.held = null;
}

const written = (numbers) => Array.from(numbers, (each) => String(Number(each.toPrecision(4)))).join(",");

// { numbers } of a text, or the error.
function numbersOf(text) {
  const parts = text.split(/[\s,;]+/u).filter(Boolean);
  const numbers = parts.map((part) => Number(part.replace("−", "-")));
  const wrong = numbers.findIndex((each) => !(Math.abs(each) <= 1e12));
  if (wrong >= 0) return { wrong: `Expected numbers, got “${parts[wrong].slice(0, 24)}”. Fix: separate numbers by spaces, commas or lines.` };
  if (numbers.length < 3) return { wrong: `Expected 3 numbers or more, got ${numbers.length}. Fix: paste more of them.` };
  return { numbers: numbers.slice(0, MOST), more: numbers.length > MOST };
}

function paste(self) {
  const { numbers, wrong, more } = numbersOf(self.field.value);
  self.said.textContent = wrong ?? (more ? `The first ${MOST} numbers are shown.` : "");
  self.said.classList.toggle("wrong", Boolean(wrong));
  if (!wrong) self.store.set({ series: numbers.join(",") });
}

// The score of a pair of points, from times and values.
export function scoreOf({ by, width, alike }, t, x) {
  const mean = x.reduce((sum, each) => sum + each, 0) / x.length;
  const spread = Math.sqrt(x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length) || 1;
  const near = (i, j) => -((t[i] - t[j]) ** 2) / (2 * width ** 2);
  const like = (i, j) => -((x[i] - x[j]) ** 2) / (2 * (alike * spread) ** 2);
  return { time: near, value: like, both: (i, j) => near(i, j) + like(i, j), patch: patchScore(x, alike * spread), dot: (i, j) => x[i] * x[j], sum: (i, j) => x[i] * x[j] }[by];
}

// The mean squared difference of the patches around two points; behind the ends the series is its mirror image.
function patchScore(x, width) {
  const half = Math.min(HALF, x.length - 1);
  const at = (i) => x[i < 0 ? -i : i >= x.length ? 2 * (x.length - 1) - i : i];
  return (i, j) => {
    let sum = 0;
    for (let m = -half; m <= half; m++) sum += (at(i + m) - at(j + m)) ** 2;
    return -sum / ((2 * half + 1) * 2 * width ** 2);
  };
}

const rowOf = (state, t, x, i) => {
  const score = scoreOf(state, t, x);
  return weightsOfRow(x.length, (j) => score(i, j), state.by === "sum");
};

function curveOf(state, t, x) {
  const score = scoreOf(state, t, x);
  return Float64Array.from({ length: x.length }, (_, i) => mixed(weightsOfRow(x.length, (j) => score(i, j), state.by === "sum"), x));
}

const steps = (count) => Array.from({ length: count }, (_, i) => i);

function drawAll(self) {
  const state = self.store.get();
  const { numbers } = numbersOf(state.series);
  self.x = numbers ?? SERIES["a step"](noise(COUNT, 7));
  const t = steps(self.x.length);
  const [curve, point] = [curveOf(state, t, self.x), Math.min(state.point, t.length - 1)];
  const weights = rowOf(state, t, self.x, point);
  self.point = point;
  self.range = drawSeries(self.chart, { x: self.x, curve, weights, point, range: self.held });
  const told = `point ${point + 1} of ${t.length}: ${number(self.x[point], 3)} becomes ${number(curve[point], 3)}`;
  for (const [name, value] of Object.entries({ valuenow: point + 1, valuemax: t.length, valuetext: told })) self.chart.setAttribute(`aria-${name}`, String(value));
  if (!self.said.classList.contains("wrong")) self.said.textContent = told;
  if (document.activeElement !== self.field) [self.field.value] = [Array.from(self.x, (each) => String(Number(each.toPrecision(4)))).join(" "), self.said.classList.remove("wrong")];
  self.formula.replaceChildren(...formulaNodes(SAID[state.by][0]));
  self.caption.replaceChildren(...formulaNodes(SAID[state.by][1]));
  self.width.hidden = !["time", "both"].includes(state.by);
  self.alike.hidden = !["value", "both", "patch"].includes(state.by);
  followSettings(self.settings, state);
  drawInfluence(self, state, t, curve);
}

function drawInfluence(self, state, t, curve) {
  const { x, point } = self;
  const [count, order] = [t.length, shuffled(t.length, 5)];
  const mixedUp = curveOf(state, t, order.map((i) => x[i]));
  const back = Float64Array.from(curve);
  order.forEach((i, place) => (back[i] = mixedUp[place]));
  const moved = curveOf(state, t, x.map((each) => each + 10)).map((each) => each - 10);
  const said = (change) => (change > 0 && change < 0.001 ? scientific(change) : number(change, 3));
  const weights = rowOf(state, t, x, point);
  const near = t.map((j) => Math.abs(j - point) <= NEAR);
  const share = weights.reduce((sum, weight, j) => sum + (near[j] ? weight : 0), 0);
  self.influence.replaceChildren(make("h2", { text: "What has influence" }),
    table("what has influence on the curve", ["", "largest change of the curve"], [
      ["order: shuffled, then put back", said(largestChange(curve, back))],
      ["zero of the scale: 10 more, then taken away", said(largestChange(curve, moved))],
    ]),
    make("p", { className: "quiet", text: `Proximity: the points within ${NEAR} steps of the chosen one have ${number(share, 3)} of its weight; they are ${number(near.filter(Boolean).length / count, 3)} of all points.` }));
}
