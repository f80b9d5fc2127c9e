// A whole text as one stripe, however long: each pixel has the largest of its tokens' weights, so that no strong link vanishes.
import { toneOf } from "../data/rows.js";

export function drawStripe(canvas, weights, { maximum, scale, signed, marked }) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.max(1, Math.round(size * ratio)));
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const count = weights.length;
  pen.fillStyle = style.color;
  for (let x = 0; x < Math.min(width, Math.max(count, 1)); x++) {
    const cells = Math.min(width, count);
    const [from, to] = [Math.floor((x * count) / cells), Math.max(Math.floor(((x + 1) * count) / cells), Math.floor((x * count) / cells) + 1)];
    let best = 0;
    for (let i = from; i < to && i < count; i++) if (Math.abs(weights[i]) > Math.abs(best)) best = weights[i];
    if (signed) pen.fillStyle = style.getPropertyValue(best < 0 ? "--fire" : "--blue");
    pen.globalAlpha = toneOf(best, maximum, scale);
    // A cell is at least two pixels wide: a lone strong link is to be seen.
    if (pen.globalAlpha > 0) pen.fillRect((x * width) / cells, 0, Math.max(width / cells, 2 * ratio), height);
  }
  pen.globalAlpha = 1;
  if (marked === null) return;
  pen.fillStyle = style.getPropertyValue("--fire");
  pen.fillRect(((marked + 0.5) * width) / count - ratio, 0, 2 * ratio, height);
}
