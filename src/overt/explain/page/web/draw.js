// Canvases and arcs. Each function draws anew from the data, so that a change of theme or of size needs no bookkeeping.
import { shade } from "./colours.js";
import { contextOf, css } from "../../../drawing/web/theme.js";

// A vector as a strip of cells, blue above zero and vermillion below.
export function strip(canvas, values, maximum) {
  const width = canvas.clientWidth || 96;
  const pen = contextOf(canvas, width, 16);
  const step = width / values.length;
  values.forEach((value, i) => {
    pen.fillStyle = css(shade(Number(value) / (maximum || 1)));
    pen.fillRect(i * step, 0, step + 0.6, 16);
  });
}

// The largest size among numbers in rows, one by one: there may be more of them than a call takes arguments.
export function largest(rows) {
  let maximum = 1e-12;
  for (const row of rows) for (const value of row) if (Math.abs(value) > maximum && Number.isFinite(Number(value))) maximum = Math.abs(value);
  return maximum;
}

// A weight of a half is strong: below it colours stay pale, so that a row that looks everywhere does not look sure.
export const STRONG = 0.5;

// A head's row of weights, a stripe a token.
export function stripes(canvas, weights) {
  const [width, height] = [canvas.clientWidth || 28, canvas.clientHeight || 22];
  const pen = contextOf(canvas, width, height);
  const step = width / weights.length;
  pen.fillStyle = css(shade(0));
  pen.fillRect(0, 0, width, height);
  // Weak before strong, none thinner than can be seen.
  const order = weights.map((_, j) => j).sort((a, b) => Math.abs(Number(weights[a])) - Math.abs(Number(weights[b])));
  for (const j of order) {
    pen.fillStyle = css(shade(Number(weights[j])));
    pen.fillRect(j * step, 0, Math.max(step + 0.4, 2), height);
  }
}

export const SVG = "http://www.w3.org/2000/svg";

// Arcs from the word to what it attends to, where the sentence stands on one line.
export function arcs(sentence, weights, marked, maximum) {
  sentence.querySelector("svg")?.remove();
  sentence.classList.remove("arched");
  const tokens = [...sentence.querySelectorAll(".token")];
  if (marked === null || tokens.some((token) => Math.abs(token.offsetTop - tokens[0].offsetTop) > 8) || tokens.length < 2) return;
  sentence.classList.add("arched");
  const middle = (token) => token.offsetLeft + token.offsetWidth / 2;
  const floor = tokens[marked].offsetTop - 2;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  const span = Math.max(...tokens.map((token) => Math.abs(middle(token) - middle(tokens[marked]))), 1);
  weights.forEach((weight, j) => {
    const share = Math.abs(Number(weight)) / maximum;
    if (j === marked || !(share > 0.015)) return;
    const [from, to] = [middle(tokens[marked]), middle(tokens[j])];
    const height = 14 + 48 * Math.sqrt(Math.abs(to - from) / span);
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${from},${floor} C${from},${floor - height} ${to},${floor - height} ${to},${floor}`);
    path.setAttribute("fill", "none");
    path.setAttribute("stroke", `var(--${Number(weight) < 0 ? "fire" : "blue"})`);
    path.setAttribute("stroke-width", String(0.75 + 5 * share));
    path.setAttribute("stroke-linecap", "round");
    path.setAttribute("opacity", String(0.25 + 0.7 * Math.sqrt(share)));
    svg.append(path);
  });
  sentence.append(svg);
}

// The weights of every query: rows are queries, columns are keys.
export function board(canvas, e, space) {
  const [rows, columns] = [e.matrix.length, e.tokens.length];
  const named = Math.max(rows, columns) <= 64;
  const margin = named ? labelSpace(canvas, [...e.labels, ...e.query_labels]) : 0;
  const wide = Math.max(named ? 9 : 1, Math.min(44, Math.floor((space - margin) / columns)));
  const font = `${Math.min(12, wide)}px ${getComputedStyle(document.body).fontFamily}`;
  const high = Math.min(wide, 26);
  canvas.style.width = `${margin + columns * wide}px`;
  canvas.style.height = `${margin + rows * high}px`;
  const pen = contextOf(canvas, margin + columns * wide, margin + rows * high);
  const gap = wide > 8 ? 1 : 0;
  const maximum = largest(e.matrix);
  e.matrix.forEach((row, i) => row.forEach((weight, j) => {
    pen.fillStyle = css(shade(Number(weight) / maximum));
    pen.fillRect(margin + j * wide, margin + i * high, wide - gap, high - gap);
  }));
  const style = getComputedStyle(document.documentElement);
  if (named) names(pen, e, { margin, wide, high }, font, style);
  pen.lineWidth = 2;
  pen.strokeStyle = style.getPropertyValue("--fire");
  pen.strokeRect(margin, margin + e.word * high - 0.5, columns * wide - 1, high);
  return { margin, wide, high, maximum };
}

function labelSpace(canvas, labels) {
  const pen = canvas.getContext("2d");
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return Math.min(96, 12 + Math.ceil(Math.max(...labels.map((label) => pen.measureText(label).width))));
}

function names(pen, e, { margin, wide, high }, font, style) {
  pen.font = font;
  pen.textBaseline = "middle";
  e.query_labels.forEach((label, i) => {
    pen.fillStyle = style.getPropertyValue(i === e.word ? "--fire-ink" : "--quiet");
    pen.textAlign = "right";
    pen.fillText(cropped(pen, label, margin - 10), margin - 6, margin + (i + 0.5) * high);
  });
  e.labels.forEach((label, j) => {
    pen.save();
    pen.fillStyle = style.getPropertyValue(j === e.word_index ? "--fire-ink" : "--quiet");
    pen.translate(margin + (j + 0.5) * wide, margin - 6);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(cropped(pen, label, margin - 10), 0, 0);
    pen.restore();
  });
}

function cropped(pen, label, space) {
  if (pen.measureText(label).width <= space) return label;
  const letters = [...label];
  while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > space) letters.pop();
  return `${letters.join("")}…`;
}
