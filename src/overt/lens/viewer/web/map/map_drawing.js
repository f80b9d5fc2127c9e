import { colourOf, shareOf } from "./colour_scale.js";
import { grouped, isolated, label } from "../data/labels.js";
import { css, inkOn } from "../../../../drawing/web/theme.js";

// One frame of the map: draws ready pictures in their places, without computing any.

const NAMED = 13; // NAMED: the least pixels of a weight for tokens at the edges
const NUMBERED = 46; // NUMBERED: the least pixels of a weight for a number in its cell

// Room for most tokens at the left and above, and for half a number at the right.
export function mapMargins(head, width) {
  if (width < 420) return { left: 54, top: 54, right: 10 };
  const longest = [head.queries, head.keys].map((words) => {
    const some = Array.from({ length: Math.min(200, words.length) }, (_, i) => Math.min(14, words[Math.floor((i * words.length) / Math.min(200, words.length))].length));
    return some.sort((a, b) => a - b)[Math.floor(some.length * 0.97)] ?? 1;
  });
  return { left: Math.max(56, Math.min(112, 26 + 7 * longest[0])), top: Math.max(48, Math.min(98, 22 + 7 * longest[1])), right: 16 };
}

export function drawMap(self, step, pool) {
  const { under, camera, pyramid, head, margins, ratio } = self;
  const pen = under.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, under.width, under.height);
  pen.imageSmoothingEnabled = false;
  const size = camera.size.map((each) => each * ratio);
  const [x0, y0] = [margins.left * ratio, margins.top * ratio];
  pen.save();
  pen.beginPath();
  pen.rect(x0 - ratio, y0 - ratio, under.width - x0 - (margins.right - 2) * ratio, under.height);
  pen.clip();
  const put = (canvas, r0, r1, k0, k1, clear) => {
    const [left, right] = [k0, k1].map((key) => Math.round(x0 + (key - camera.left) * size[0]));
    const [top, bottom] = [r0, r1].map((row) => Math.round(y0 + (row - camera.top) * size[1]));
    if (clear) pen.clearRect(left, top, right - left, bottom - top);
    pen.drawImage(canvas, left, top, right - left, bottom - top);
  };
  const level = pyramid.level(pool, size);
  if (level) put(level.canvas, 0, pyramid.spanned(level)[0], 0, pyramid.spanned(level)[1], false);
  if (step !== null) {
    for (const tile of pyramid.ready(step, pool, camera.view)) {
      put(tile.canvas, tile.r0, tile.r0 + tile.rows * tile.step, tile.k0, tile.k0 + tile.columns * tile.step, true);
    }
  }
  outline(pen, head, camera, size, x0, y0);
  pen.restore();
}

// A hairline around the map, so that masked weights are visibly inside it.
function outline(pen, head, camera, size, x0, y0) {
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--line");
  pen.lineWidth = 1;
  pen.strokeRect(Math.round(x0 - camera.left * size[0]) - 0.5, Math.round(y0 - camera.top * size[1]) - 0.5, head.keyCount * size[0] + 1, head.queryCount * size[1] + 1);
}

export function drawMarks(self, state) {
  const { over, ratio, camera, head, margins, width, height } = self;
  const pen = over.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const x = (key) => margins.left + (key - camera.left) * camera.size[0];
  const y = (row) => margins.top + (row - camera.top) * camera.size[1];
  const paint = { pen, colour, font: getComputedStyle(document.body).fontFamily, x, y };
  edges(self, paint, state);
  pen.save();
  pen.beginPath();
  pen.rect(margins.left - 2, margins.top - 2, width - margins.left - margins.right + 4, height);
  pen.clip();
  band(self, paint, state);
  if (Math.min(...camera.size) >= NUMBERED && head.exact) numbers(self, paint);
  const position = self.pointed ?? self.cursor;
  if (position) ring(self, paint, position);
  pen.restore();
}

// The chosen token's row or column.
function band({ camera, head }, { pen, colour, x, y }, { side, token }) {
  const [across, size] = [side === "query", Math.max(3, camera.size[side === "query" ? 1 : 0])];
  pen.strokeStyle = colour("--fire");
  pen.lineWidth = 1.5;
  if (across) pen.strokeRect(x(0) - 1, y(token + 0.5) - size / 2, head.keyCount * camera.size[0] + 2, size);
  else pen.strokeRect(x(token + 0.5) - size / 2, y(0) - 1, size, head.queryCount * camera.size[1] + 2);
}

// Lines through the weight under the pointer, and a frame around it.
function ring({ head, camera, margins, width, height }, { pen, colour, x, y }, [row, key]) {
  pen.strokeStyle = colour("--quiet");
  pen.lineWidth = 0.5;
  pen.beginPath();
  const [left, right] = [Math.max(margins.left, x(0)), Math.min(width - margins.right, x(head.keyCount))];
  const [top, bottom] = [Math.max(margins.top, y(0)), Math.min(height, y(head.queryCount))];
  pen.moveTo(left, y(row + 0.5));
  pen.lineTo(right, y(row + 0.5));
  pen.moveTo(x(key + 0.5), top);
  pen.lineTo(x(key + 0.5), bottom);
  pen.stroke();
  const [wide, high] = camera.size.map((size) => Math.max(7, size));
  pen.lineWidth = 3.5;
  pen.strokeStyle = colour("--card");
  pen.strokeRect(x(key + 0.5) - wide / 2, y(row + 0.5) - high / 2, wide, high);
  pen.lineWidth = 1.75;
  pen.strokeStyle = colour("--ink");
  pen.strokeRect(x(key + 0.5) - wide / 2, y(row + 0.5) - high / 2, wide, high);
}

function numbers(self, { pen, font, x, y }) {
  const { camera, head, scale } = self;
  const [r0, r1, k0, k1] = camera.view;
  pen.font = `11px ${font}`;
  [pen.textAlign, pen.textBaseline] = ["center", "middle"];
  for (let row = Math.floor(r0); row < Math.min(r1, head.queryCount); row++) {
    for (let key = Math.floor(k0); key < Math.min(k1, head.keyCount); key++) {
      if (!head.allowed(row, key)) continue;
      const weight = head.weight(row, key);
      pen.fillStyle = inkOn(colourOf(weight, scale));
      const small = shareOf(Math.abs(weight), scale) > 0 ? weight.toExponential(0) : "0";
      pen.fillText(Number.isNaN(weight) ? "NaN" : (Math.abs(weight) >= 0.0005 ? weight.toFixed(3) : small).replaceAll("-", "−"), x(key + 0.5), y(row + 0.5));
    }
  }
}

// The labels of the edges: tokens if there is space, else positions in the sequence, and the names of the sides.
function edges(self, paint, state) {
  const { pen, colour, font } = paint;
  const { camera, head, margins, width, height } = self;
  const [r0, r1, k0, k1] = camera.view;
  pen.font = `12px ${font}`;
  pen.textBaseline = "middle";
  const chosen = (side, position) => state.side === side && state.token === position;
  if (camera.size[1] >= NAMED && head.known) {
    for (let row = Math.floor(r0); row < Math.min(r1, head.queryCount); row++) {
      if (paint.y(row + 0.5) < margins.top || paint.y(row + 0.5) > height) continue;
      pen.fillStyle = colour(chosen("query", row) ? "--fire-ink" : "--quiet");
      pen.textAlign = "right";
      pen.fillText(fittedLabel(pen, head.queries[row], margins.left - 20), margins.left - 7 + Math.max(0, paint.x(0) - margins.left), paint.y(row + 0.5));
    }
  } else ticks(paint, r0, r1, (row) => [margins.left - 7 + Math.max(0, paint.x(0) - margins.left), paint.y(row), "right"]);
  if (camera.size[0] >= NAMED && head.known) {
    for (let key = Math.floor(k0); key < Math.min(k1, head.keyCount); key++) {
      if (paint.x(key + 0.5) < margins.left || paint.x(key + 0.5) > width - margins.right) continue;
      pen.save();
      pen.translate(paint.x(key + 0.5), margins.top - 7 + Math.max(0, paint.y(0) - margins.top));
      pen.rotate(-Math.PI / 2);
      pen.fillStyle = colour(chosen("key", key) ? "--fire-ink" : "--quiet");
      pen.textAlign = "left";
      pen.fillText(fittedLabel(pen, head.keys[key], margins.top - 20), 0, 0);
      pen.restore();
    }
  } else ticks(paint, k0, k1, (key) => [paint.x(key), margins.top - 10 + Math.max(0, paint.y(0) - margins.top), "center"]);
  sides(self, paint);
}

// Which side is which, in the corner.
function sides({ margins, camera }, { pen, colour, font, x, y }) {
  const [left, top] = [margins.left + Math.max(0, x(0) - margins.left), margins.top + Math.max(0, y(0) - margins.top)];
  pen.font = `600 10.5px ${font}`;
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "left";
  pen.fillText("keys →", left, camera.size[0] >= NAMED ? top - margins.top + 7 : top - 26);
  pen.save();
  pen.translate(Math.max(7, left - margins.left + 7), top);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "right";
  pen.fillText("← queries", 0, 0);
  pen.restore();
}

function ticks({ pen, colour }, from, to, position) {
  pen.fillStyle = colour("--quiet");
  const apart = niceStep((to - from) / 5);
  for (let tick = Math.ceil(from / apart) * apart; tick <= to; tick += apart) {
    const [x, y, align] = position(tick);
    pen.textAlign = align;
    pen.fillText(grouped(tick), x, y);
  }
}

// Ticks at powers of two, so that usual lengths of models fall on them; never between two positions.
const niceStep = (apart) => Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(apart, 1e-9))));

const fittedLabels = new Map();

function fittedLabel(pen, text, space) {
  const key = `${space}/${text.length > 80 ? text.slice(0, 80) : text}`;
  if (!fittedLabels.has(key)) {
    if (fittedLabels.size > 4000) fittedLabels.clear();
    let [maximum, result] = [20, label(text, 20)];
    while (maximum > 1 && pen.measureText(result).width > space) result = label(text, --maximum);
    fittedLabels.set(key, isolated(result));
  }
  return fittedLabels.get(key);
}
