// Numbers on canvas: a vector as a strip of cells, a row of weights as stripes, or bars from a line.
import { shade } from "../../../../drawing/web/colours.js";
import { contextOf, css } from "../../../../drawing/web/theme.js";

export const largestOf = (vectors) => vectors.reduce((most, values) => values.reduce((best, value) => (Number.isFinite(value) ? Math.max(best, Math.abs(value)) : best), most), 1e-12);

export function drawStrip(canvas, values, maximum) {
  const [width, height] = [canvas.clientWidth || 96, canvas.clientHeight || 16];
  const pen = contextOf(canvas, width, height);
  const step = width / Math.max(1, values.length);
  values.forEach((value, d) => {
    pen.fillStyle = css(shade(value / maximum));
    pen.fillRect(d * step, 0, step + 0.6, height);
  });
}

// Draws weak stripes before strong ones, none too thin to see, with a line through the marked one. Pass the canvas's `size` if it is
// known, because asking each of many canvases would lay out the page again each time.
export function drawStripes(canvas, weights, maximum, marked = null, size = [canvas.clientWidth || 28, canvas.clientHeight || 22]) {
  const [width, height] = size;
  const pen = contextOf(canvas, width, height);
  const step = width / Math.max(1, weights.length);
  pen.fillStyle = css(shade(0));
  pen.fillRect(0, 0, width, height);
  const seen = Array.from(weights.keys()).filter((j) => !(Math.abs(weights[j]) < 0.004 * maximum));
  for (const j of seen.sort((a, b) => Math.abs(weights[a]) - Math.abs(weights[b]))) {
    pen.fillStyle = css(shade(weights[j] / maximum));
    pen.fillRect(j * step, 0, Math.max(step + 0.4, 2), height);
  }
  if (marked === null) return;
  pen.fillStyle = getComputedStyle(canvas).getPropertyValue("--fire");
  pen.fillRect((marked + 0.5) * step - 1, 0, 2, height);
}

// One bar per number, up or down from a line in the middle, or at the bottom if no number is negative.
export function drawBars(canvas, values) {
  const [width, height, style] = [canvas.clientWidth || 200, canvas.clientHeight || 56, getComputedStyle(canvas)];
  const pen = contextOf(canvas, width, height);
  const [maximum, step] = [largestOf([values]), width / Math.max(1, values.length)];
  const middle = values.some((value) => value < 0) ? height / 2 : height - 1;
  pen.fillStyle = style.getPropertyValue("--line");
  pen.fillRect(0, middle - 0.5, width, 1);
  values.forEach((value, d) => {
    const tall = (Math.abs(value) / maximum) * (middle - 3);
    pen.fillStyle = style.getPropertyValue(value < 0 ? "--fire" : "--blue");
    pen.fillRect(d * step + 0.5, value < 0 ? middle : middle - tall, Math.max(1, step - 1), Math.max(tall, 0.5));
  });
}
