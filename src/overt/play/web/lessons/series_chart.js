// A series as points, its re-weighted curve, and the weights of the chosen point as the points' colours and as bars below.
import { shade } from "../../../drawing/web/colours.js";
import { number } from "../../../drawing/web/numbers.js";
import { contextOf, css } from "../../../drawing/web/theme.js";

const [LEFT, RIGHT, TOP, BARS] = [44, 12, 12, 56]; // margins around the points, and the height below them for the weights

const heightOf = (canvas) => canvas.clientHeight - BARS - TOP;
const stepOf = (canvas, count) => (canvas.clientWidth - LEFT - RIGHT) / Math.max(1, count - 1);

// The index of the point at this position, and the value at this height.
export const indexAt = (canvas, count, x) => Math.max(0, Math.min(count - 1, Math.round((x - LEFT) / stepOf(canvas, count))));
export const valueAt = (canvas, [low, high], y) => high - (Math.max(0, Math.min(1, (y - TOP) / heightOf(canvas))) * (high - low));

// Draws the chart; returns the lowest and the highest value of the scale.
export function drawSeries(canvas, { x, curve, weights, point, range }) {
  const style = getComputedStyle(canvas);
  const pen = contextOf(canvas, canvas.clientWidth, canvas.clientHeight);
  const [low, high] = range ?? rangeOf([...x, ...curve]);
  const place = (value, i) => [LEFT + i * stepOf(canvas, x.length), TOP + (1 - (value - low) / (high - low)) * heightOf(canvas)];
  const colour = (name) => style.getPropertyValue(name);
  const largest = Math.max(1e-12, ...weights.map((weight) => (Number.isFinite(weight) ? Math.abs(weight) : 0)));
  axis(pen, canvas, [low, high], colour);
  const radius = Math.max(2, Math.min(5, stepOf(canvas, x.length) * 0.4));
  x.forEach((value, i) => {
    disc(pen, place(value, i), radius + 1, colour("--quiet"));
    disc(pen, place(value, i), radius, css(shade(weights[i] / largest)));
  });
  pen.strokeStyle = colour("--blue");
  pen.lineWidth = 2.5;
  pen.lineJoin = "round";
  pen.beginPath();
  curve.forEach((value, i) => Number.isFinite(value) && pen.lineTo(...place(value, i)));
  pen.stroke();
  ring(pen, place(x[point], point), radius + 4, colour("--fire"));
  disc(pen, place(curve[point], point), 4, colour("--fire"));
  bars(pen, canvas, weights, largest, point, colour);
  return [low, high];
}

function rangeOf(values) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const room = 0.08 * (high - low) || 1;
  return [low - room, high + room];
}

function axis(pen, canvas, range, colour) {
  pen.font = `11px ${colour("--mono") || "monospace"}`;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  [0, 0.5, 1].forEach((share) => {
    const y = TOP + share * heightOf(canvas);
    pen.fillStyle = colour("--line");
    pen.fillRect(LEFT, y - 0.5, canvas.clientWidth - LEFT - RIGHT, 1);
    pen.fillStyle = colour("--quiet");
    pen.fillText(number(range[1] - share * (range[1] - range[0]), Math.abs(range[1] - range[0]) < 20 ? 1 : 0), LEFT - 7, y);
  });
}

function bars(pen, canvas, weights, largest, point, colour) {
  const [base, step] = [canvas.clientHeight - 4, stepOf(canvas, weights.length)];
  const signed = weights.some((weight) => weight < 0);
  const [line, tall] = signed ? [base - (BARS - 22) / 2, (BARS - 22) / 2] : [base, BARS - 22];
  pen.fillStyle = colour("--line");
  pen.fillRect(LEFT, line - 0.5, canvas.clientWidth - LEFT - RIGHT, 1);
  weights.forEach((weight, i) => {
    const height = (tall * Math.abs(weight)) / largest;
    pen.fillStyle = colour(i === point || weight < 0 ? "--fire" : "--blue");
    if (height > 0.2) pen.fillRect(LEFT + i * step - Math.max(1, step * 0.35), weight < 0 ? line : line - height, Math.max(2, step * 0.7), height);
  });
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "right";
  pen.fillText("w", LEFT - 7, line - tall / 2);
}

function disc(pen, [x, y], radius, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

function ring(pen, [x, y], radius, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.stroke();
}
