// Every head as a point, two measures across and up; the first layer is pale and the last one strong.
import { shade } from "../../../../drawing/web/colours.js";
import { decimals, number } from "../../../../drawing/web/numbers.js";
import { css } from "../../../../drawing/web/theme.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [720, 440, 76, 48, 36, 16];

function node(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round ends and steps around the values.
function scale(values, from, to) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = (most - least || Math.abs(most) || 1) * 0.05, low = least - room, high = most + room;
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks, digits: decimals([step], 0, 6) };
}

function point(data, state, index, x, y, choose) {
  const { number: layer, name, does } = data.heads[index];
  const [across, up] = [data.survey[state.x], data.survey[state.y]];
  const deepest = Math.max(1, ...data.heads.map((each) => each.number));
  const says = `${name}, ${does}: ${state.x} ${number(across[0][index], 3)}, ${state.y} ${number(up[0][index], 3)}`;
  const [cx, cy] = [x.at(across[0][index]), y.at(up[0][index])];
  const circle = node("circle", { cx, cy, r: index === state.head ? 7 : 5, class: index === state.head ? "point chosen" : "point", fill: css(shade(0.3 + (0.6 * layer) / deepest)), tabindex: "0", role: "button", "aria-label": says });
  circle.append(node("title", {}, says));
  circle.addEventListener("click", () => choose(index));
  circle.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), choose(index)));
  const whiskers = [];
  if (across[1][index] !== null) whiskers.push(node("line", { x1: x.at(across[1][index]), x2: x.at(across[2][index]), y1: cy, y2: cy, class: "whisker" }));
  if (up[1][index] !== null) whiskers.push(node("line", { x1: cx, x2: cx, y1: y.at(up[1][index]), y2: y.at(up[2][index]), class: "whisker" }));
  if (data.beside && data.beside[state.x][0][index] !== null && data.beside[state.y][0][index] !== null) {
    whiskers.push(node("line", { x1: cx, y1: cy, x2: x.at(data.beside[state.x][0][index]), y2: y.at(data.beside[state.y][0][index]), class: "arrow" }));
  }
  return [...whiskers, circle];
}

export function scatter(data, state, choose) {
  const both = (name) => [...data.survey[name].slice(0, 3).flat(), ...(data.beside ? data.beside[name][0] : [])].filter((value) => value !== null);
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `heads by ${state.x} and ${state.y}` });
  if (!both(state.x).length || !both(state.y).length) {
    svg.append(node("text", { x: LEFT, y: HEIGHT / 2 }, "Not measured in these texts."));
    return svg;
  }
  const x = scale(both(state.x), LEFT, WIDTH - RIGHT), y = scale(both(state.y), HEIGHT - BOTTOM, TOP);
  for (const tick of x.ticks) {
    svg.append(node("line", { x1: x.at(tick), x2: x.at(tick), y1: TOP, y2: HEIGHT - BOTTOM, class: "grid-line" }));
    svg.append(node("text", { x: x.at(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, number(tick, x.digits)));
  }
  for (const tick of y.ticks) {
    svg.append(node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(tick), y2: y.at(tick), class: "grid-line" }));
    svg.append(node("text", { x: LEFT - 6, y: y.at(tick) + 4, "text-anchor": "end" }, number(tick, y.digits)));
  }
  svg.append(node("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, state.x));
  svg.append(node("text", { x: 4, y: 20 }, state.y));
  const order = data.heads.map((_, index) => index).filter((index) => data.survey[state.x][0][index] !== null && data.survey[state.y][0][index] !== null);
  order.sort((one, other) => (one === state.head) - (other === state.head));
  for (const index of order) svg.append(...point(data, state, index, x, y, choose));
  return svg;
}
