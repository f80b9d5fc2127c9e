import { createCamera } from "./camera.js";
import { createPyramid } from "../data/pyramid.js";
import { createComputer } from "../data/worker.js";
import { gestures } from "./gestures.js";
import { legend } from "./legend.js";
import { drawMap, drawMarks, mapMargins } from "./map_drawing.js";
import { createMinimap } from "./minimap.js";
import { readoutOf } from "./readout.js";
import { mapControls } from "./map_controls.js";
import { scaleOf } from "./colour_scale.js";
import { grouped, label } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";
import { theme } from "../../../../drawing/web/theme.js";

// The map of the chosen head: a canvas for the weights, one above it for marks, and a line on the weight under the pointer.
export function mountMap(root, recording, store) {
  const under = make("canvas", { attributes: { "aria-hidden": "true" } });
  const description = { tabindex: "0", role: "application", "aria-roledescription": "map of weights", "aria-describedby": "readout" };
  const over = make("canvas", { className: "over", attributes: description });
  const readout = make("p", { className: "readout", attributes: { id: "readout", "aria-live": "polite" } });
  const [heading, below] = [make("div", { className: "map-head" }), make("div", { className: "below" })];
  const area = make("div", { className: "area" }, under, over);
  root.append(heading, area, readout, below);
  const computer = createComputer();
  const self = { recording, store, under, over, readout, heading, below, area, computer, pointed: null, cursor: null, frame: 0, written: 0 };
  self.redraw = () => (self.frame ||= requestAnimationFrame(() => drawAll(self)));
  self.mini = createMinimap(self);
  listen(self);
  switchTo(self);
}

// Switches to another head with its own pictures and camera; the position stays if the sizes are equal.
function switchTo(self) {
  const state = self.store.get();
  const head = self.recording.heads[state.head];
  Object.assign(self, { head, pyramid: createPyramid(head, self.computer, self.redraw), camera: createCamera(head), pointed: null, cursor: null });
  self.over.setAttribute("aria-label", `${head.name}, ${head.queryCount} queries by ${head.keyCount} keys`);
  recolour(self);
  resize(self);
  self.camera.show(state.view);
  self.mini.hint();
  tellHead(self);
}

function recolour(self) {
  self.scale = scaleOf(self.head, self.store.get());
  self.pyramid.colour(self.scale);
  self.below.replaceChildren(mapControls(self.store, self), legend(self.scale, self.head));
  self.redraw();
}

function resize(self) {
  const box = self.area.getBoundingClientRect();
  if (!box.width) return;
  const [width, height] = [Math.max(80, Math.floor(box.width)), Math.max(80, Math.floor(box.height))];
  const ratio = window.devicePixelRatio || 1;
  Object.assign(self, { width, height, ratio, margins: mapMargins(self.head, width) });
  const [wide, high] = [width, height].map((size) => Math.round(size * ratio));
  for (const canvas of [self.under, self.over]) {
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  }
  self.camera.setSize(width - self.margins.left - self.margins.right, height - self.margins.top - 6);
  self.redraw();
}

function drawAll(self) {
  self.frame = 0;
  if (!self.area.clientWidth) return undefined; // another tab is in sight
  if (!self.margins) return resize(self);
  const state = self.store.get();
  const step = self.pyramid.step(self.camera.size.map((size) => size * self.ratio));
  if (step !== null) self.pyramid.want(step, self.camera.view);
  drawMap(self, step, state.pool);
  drawMarks(self, state);
  self.mini.draw(state.pool);
  self.over.dataset.drawn = String(Number(self.over.dataset.drawn ?? 0) + 1);
  self.over.dataset.waiting = String(step === null ? 0 : self.pyramid.waiting);
}

// The weight under the pointer or the keyboard's cursor, in words.
function tell(self, position) {
  self.readout.replaceChildren(...readoutOf(self, position));
}

function tellHead(self) {
  const { head } = self;
  const size = `${grouped(head.queryCount)} × ${grouped(head.keyCount)}`;
  const mixer = head.signed ? ` · signed weights: ${label(head.call.mixer, 40)}` : "";
  const kind = head.exact ? mixer : mixer + " · a summary: single weights cannot be recomputed";
  self.heading.replaceChildren(make("h2", { text: head.name }), make("span", { className: "quiet", text: `${head.layer}, head ${head.head} · ${size}${kind}` }));
  tell(self, null);
}

function listen(self) {
  const { store, over } = self;
  const moved = () => {
    self.redraw();
    clearTimeout(self.written);
    self.written = setTimeout(() => (store.set({ view: self.camera.whole ? null : self.camera.view }), self.mini.hint()), 200);
  };
  // Keys and buttons zoom around the cursor or the chosen token, which stays visible.
  const zoomBy = (factor) => {
    const held = self.cursor ?? startOfCursor(self);
    self.camera.zoom(factor, ...self.camera.place(...held));
    self.camera.reach(...held);
    moved();
  };
  self.lookAt = (row, key, point = false) => {
    const [r0, r1, k0, k1] = self.camera.view;
    self.camera.show([row - (r1 - r0) / 2, row + (r1 - r0) / 2, key - (k1 - k0) / 2, key + (k1 - k0) / 2]);
    if (point) tell(self, (self.cursor = [row, key]));
    moved();
  };
  const inside = ([x, y]) => self.camera.at(x - self.margins.left, y - self.margins.top);
  gestures(over, {
    pan: (x, y) => (self.camera.pan(x, y), moved()),
    zoom: (factor, x, y) => (x === undefined ? zoomBy(factor) : (self.camera.zoom(factor, x - self.margins.left, y - self.margins.top), moved())),
    point(at) {
      const position = at && inside(at);
      if (String(position) === String(self.pointed)) return;
      self.pointed = position;
      tell(self, position ?? self.cursor);
      self.redraw();
    },
    choose(at) {
      const position = at ? inside(at) : self.cursor;
      if (!position) return;
      self.cursor = position;
      tell(self, position);
      store.set({ token: store.get().side === "query" ? position[0] : position[1], key: position[1] });
      self.redraw();
    },
    step([rows, keys]) {
      const [row, key] = self.cursor ?? startOfCursor(self);
      const next = self.cursor ? [row + rows, key + keys] : [row, key];
      self.cursor = [Math.max(0, Math.min(self.head.queryCount - 1, next[0])), Math.max(0, Math.min(self.head.keyCount - 1, next[1]))];
      self.camera.reach(...self.cursor);
      tell(self, self.cursor);
      moved();
    },
    whole: () => (self.camera.show(null), moved()),
  });
  self.zoomBy = (factor) => (factor ? zoomBy(factor) : (self.camera.show(null), moved()));
  store.subscribe((state, changed) => {
    if (changed.has("head")) switchTo(self);
    else if (changed.has("view") && String(state.view) !== String(self.camera.whole ? null : self.camera.view)) (self.camera.show(state.view), self.mini.hint(), self.redraw());
    if (["colour", "palette", "pool", "theme"].some((name) => changed.has(name))) recolour(self);
    if (["token", "side", "key"].some((name) => changed.has(name))) self.redraw();
  });
  new ResizeObserver(() => resize(self)).observe(self.area);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour(self));
  self.theme = theme;
}

// The keyboard's cursor begins at the chosen token's strongest link, or without one at the strongest link of all.
function startOfCursor({ head, store, camera }) {
  const { token, side } = store.get();
  const [r0, r1, k0, k1] = camera.view;
  const weights = head.exact ? (side === "query" ? head.weightsRow(token) : head.weightsColumn(token)) : null;
  const other = weights ? weights.indexOf(weights.reduce((best, each) => (Math.abs(each) > Math.abs(best) ? each : best), 0)) : 0;
  const position = side === "query" ? [token, Math.max(0, other)] : [Math.max(0, other), token];
  const visible = position[0] >= r0 && position[0] < r1 && position[1] >= k0 && position[1] < k1;
  return visible || camera.whole ? position : [Math.floor((r0 + r1) / 2), Math.floor((k0 + k1) / 2)];
}
