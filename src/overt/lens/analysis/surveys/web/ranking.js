// The heads in the order of one measure, ten at a time, and everything that was measured as a table to save.
import { gauge, make } from "../../../../drawing/web/elements.js";
import { interval } from "./values.js";

const COUNT = 10;

// The heads that have the measure, in this order.
function ordered(values, order) {
  const measured = values.map((_, index) => index).filter((index) => values[index] !== null);
  return measured.sort((one, other) => (order === "largest" ? values[other] - values[one] : values[one] - values[other]) || one - other);
}

export function ranking(data, state, choose) {
  const numbers = data.survey[state.rank], values = numbers[0];
  const largest = Math.max(...values.map((value) => Math.abs(value ?? 0)));
  const rows = ordered(values, state.order).slice(0, COUNT).map((index) => {
    const { name, does } = data.heads[index];
    const says = `${name}, ${does}: ${state.rank} ${interval(numbers, index)}`;
    const line = make("button", { attributes: { type: "button", title: says, "aria-label": says, "aria-pressed": String(index === state.head) }, on: { click: () => choose(index) } });
    line.append(make("b", { text: name }), make("span", { className: "quiet", text: does }), gauge(values[index], largest), make("span", { text: interval(numbers, index) }));
    return make("li", {}, line);
  });
  if (!rows.length) return [make("p", { className: "quiet", text: "Not measured in these texts." })];
  const chance = numbers[3].filter((value) => value !== null);
  const says = chance.length ? " The chance of each head stands in its table below." : "";
  return [make("ol", { className: "ranking" }, ...rows), make("p", { className: "quiet meanings", text: `${data.measures.find(({ name }) => name === state.rank).meaning}. Mean over the queries of all texts, with its 95 % interval.${says}` })];
}

// Every head's measures as comma-separated values: the mean, the ends of its interval, and chance.
export function tableText(data) {
  const names = data.measures.map(({ name }) => name);
  const field = (text) => `"${String(text ?? "").replaceAll('"', '""')}"`;
  const header = ["head", "layer", "role", ...names.flatMap((name) => [name, `${name} low`, `${name} high`, `${name} chance`])];
  const rows = data.heads.map(({ name, layer, role }, index) => [name, layer, role, ...names.flatMap((measure) => data.survey[measure].map((column) => column[index] ?? ""))]);
  return [header, ...rows].map((row) => row.map(field).join(",")).join("\r\n");
}
