// Vectors on canvas: as a strip of cells, blue above zero and vermillion below, or as bars from a line.
import { contextOf } from "../../../../drawing/web/theme.js";

function penOf(canvas) {
  const [width, height] = [canvas.clientWidth || 200, canvas.clientHeight || 16];
  const style = getComputedStyle(canvas);
  const [plus, minus, line] = ["--blue", "--fire", "--line"].map((name) => style.getPropertyValue(name));
  return { pen: contextOf(canvas, width, height), width, height, plus, minus, line };
}

export function drawStrip(canvas, values, maximum) {
  const { pen, width, height, plus, minus } = penOf(canvas);
  const step = width / Math.max(1, values.length);
  values.forEach((value, d) => {
    pen.fillStyle = value < 0 ? minus : plus;
    pen.globalAlpha = Number.isFinite(value) ? Math.min(1, Math.abs(value) / maximum) : 1;
    pen.fillRect(d * step, 0, step + 0.3, height);
  });
}

// One bar a number, up or down from a line: in the middle, or at the bottom where none is negative.
export function drawBars(canvas, values) {
  const { pen, width, height, plus, minus, line } = penOf(canvas);
  const maximum = Math.max(1e-12, ...Array.from(values, Math.abs).filter(Number.isFinite));
  const step = width / Math.max(1, values.length);
  const signed = Array.from(values).some((value) => value < 0);
  const middle = signed ? height / 2 : height - 1;
  pen.fillStyle = line;
  pen.fillRect(0, middle - 0.5, width, 1);
  values.forEach((value, d) => {
    const tall = (Math.abs(value) / maximum) * (middle - 3);
    pen.fillStyle = value < 0 ? minus : plus;
    pen.fillRect(d * step + 0.5, value < 0 ? middle : middle - tall, Math.max(1, step - 1), Math.max(tall, 0.5));
  });
}
