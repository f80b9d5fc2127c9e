// The page itself: the player, the keys, the theme, and which explanation is shown.
import { make, markStep, stepButton } from "../../../drawing/web/elements.js";
import { theme } from "../../../drawing/web/theme.js";
import { strip, SVG } from "./draw.js";
import { prepareView } from "./prepare.js";
import { calm, explanations, HOLD, stages, state, views } from "./state.js";
import { choose, draw, drawSteps, drawStrips, stepOf } from "./view.js";

// The sum as it comes about: token after token, the strongest first.
function addUp(v, start) {
  const lines = v.ranked.map((line) => v.e.steps[Number(line.dataset.row)]);
  const count = Math.min(lines.length, Math.floor(((performance.now() - start) / 1800) * Math.min(lines.length, 10)));
  const part = count >= Math.min(lines.length, 10) ? v.e.output : v.e.output.map((_, d) => lines.slice(0, count).reduce((sum, row) => sum + Number(row.weighted[d]), 0));
  strip(v.output.canvas, part, v.output.maximum);
  if (part !== v.e.output && state.playing && stepOf(v).key === "sum") requestAnimationFrame(() => addUp(v, start));
  else strip(v.output.canvas, v.e.output, v.output.maximum);
}

function go(step) {
  state.step = Math.min(Math.max(step, 0), stages.length - 1);
  drawPlayer();
  for (const v of views) {
    drawSteps(v);
    drawStrips(v);
    if (!state.playing || calm.matches) continue;
    if (stepOf(v).key === "normalize") grow(v);
    if (stepOf(v).key === "sum") addUp(v, performance.now());
  }
}

// The bars grow from nothing to their weights.
function grow(v) {
  const bars = v.root.querySelectorAll(".steps tbody .bar b");
  for (const fill of bars) fill.style.width = "0";
  requestAnimationFrame(() => requestAnimationFrame(() => bars.forEach((fill) => (fill.style.width = `${100 * Number(fill.dataset.share)}%`))));
}

function play() {
  if (state.playing) return stop();
  state.playing = true;
  go(state.step >= stages.length - 1 ? 0 : state.step + 1);
  state.timer = setTimeout(next, HOLD[stages[state.step].key]);
  return undefined;
}

function next() {
  if (state.step >= stages.length - 1) return stop();
  go(state.step + 1);
  state.timer = setTimeout(next, HOLD[stages[state.step].key]);
  return undefined;
}

function stop() {
  clearTimeout(state.timer);
  state.playing = false;
  go(state.step);
}

const PLAY = "M1 0l11 6-11 6z";
const PAUSE = "M1 0h3.6v12H1zM7.4 0H11v12H7.4z";

function preparePlayer() {
  const player = document.getElementById("player");
  const icon = document.createElementNS(SVG, "svg");
  icon.setAttribute("viewBox", "0 0 12 12");
  icon.setAttribute("aria-hidden", "true");
  icon.append(document.createElementNS(SVG, "path"));
  const button = make("button", { className: "play", attributes: { type: "button", id: "play" }, on: { click: play } }, icon, make("span", { text: "Play" }));
  const list = make("ol", { className: "stages" });
  stages.forEach((stage, i) => {
    list.append(make("li", {}, stepButton(stage, () => pick(i))));
  });
  player.append(button, list);
}

function pick(step) {
  if (state.playing) stop();
  go(step);
}

function drawPlayer() {
  const button = document.getElementById("play");
  button.querySelector("path").setAttribute("d", state.playing ? PAUSE : PLAY);
  button.querySelector("span").textContent = state.playing ? "Pause" : "Play";
  document.querySelectorAll(".stages button").forEach((button, i) => markStep(button, i, state.step));
}

// From row to row as the table shows them.
function moveRow(v, by) {
  const lines = v.ranked.filter((line) => !line.hidden);
  const at = lines.findIndex((line) => Number(line.dataset.row) === v.row);
  choose(v, Number(lines[Math.min(Math.max(at + by, 0), lines.length - 1)].dataset.row));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const from = event.target;
  const v = views.find((each) => each.root.contains(from)) || views.find((each) => !each.root.hidden);
  if (event.key === "ArrowRight") pick(state.step + 1);
  else if (event.key === "ArrowLeft") pick(state.step - 1);
  else if (event.key === "ArrowDown") moveRow(v, 1);
  else if (event.key === "ArrowUp") moveRow(v, -1);
  // On a button the space bar is the button's.
  else if (event.key === " " && !(from instanceof HTMLButtonElement)) play();
  else return;
  event.preventDefault();
}

function prepareTheme() {
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = theme() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `use the ${button.textContent} theme`);
  };
  const redraw = () => {
    name();
    views.forEach(draw);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  name();
}

// Where every word of a text is a query, one explanation is shown at a time, and the query words lead to the others.
function ask(i) {
  views.forEach((v, k) => (v.root.hidden = k !== i));
}

function prepareAskers() {
  if (!document.querySelector("main.askers")) return;
  for (const v of views) {
    const queries = [...v.root.querySelectorAll(".asks")];
    queries.forEach((token, i) => {
      const button = { role: "button", tabindex: i === v.e.word ? "0" : "-1", "aria-pressed": String(i === v.e.word) };
      for (const [name, value] of Object.entries(button)) token.setAttribute(name, value);
      token.addEventListener("click", () => ask(i));
      token.addEventListener("keydown", (event) => {
        const to = { Enter: i, ArrowDown: Math.min(i + 1, queries.length - 1), ArrowUp: Math.max(i - 1, 0) }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        ask(to);
        views[to].root.querySelectorAll(".asks")[to].focus();
      });
    });
  }
  ask(0);
}

document.documentElement.className = "live";
preparePlayer();
document.querySelectorAll("article[data-explanation]").forEach((root, i) => views.push(prepareView(explanations[i], root)));
prepareAskers();
prepareTheme();
drawPlayer();
views.forEach(draw);
document.addEventListener("keydown", keys);
