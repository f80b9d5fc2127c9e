// How each step comes to its number for one token, written out with the numbers.
import { bracketed, decimals, number, vectorText } from "../../../drawing/web/numbers.js";

export const vector = (values, shown = 3) => vectorText(values, shown, decimals(values));
const dot = (a, b) => a.reduce((sum, value, i) => sum + Number(value) * Number(b[i]), 0);
const near = (a, b) => Math.abs(a - b) <= 1e-3 * Math.max(1, Math.abs(b));

// How a step comes to its number for one token, written out as far as it fits. Where the plain formula does not give
// the number (another score, a bias, another normalizer), only the number itself is shown.
const WORKINGS = {
  vectors({ e, row, names }) {
    const thisScore = `${e.query_name} = ${vector(e.query)}`;
    return e.recipe === "qkv" ? `${thisScore}   k = ${vector(row.key)}   v = ${vector(row.value)}` : `${names.value} = ${vector(row.value)}`;
  },
  score({ e, row, stage, names }) {
    const result = number(row.score);
    if (e.query.length !== row.key.length || !near(dot(e.query, row.key), Number(row.score))) return `${names.score} = ${result}`;
    const terms = e.query.slice(0, 3).map((value, i) => `${number(value)}·${bracketed(row.key[i])}`).join(" + ");
    const rest = e.query.length > 3 ? ` + … ${e.query.length} terms` : "";
    return `${stage.formula} = ${terms}${rest} = ${result}`;
  },
  scale: ({ e, row }) => (e.scale_name ? `${number(row.score)} ÷ ${e.scale_name} = ${number(row.scaled)}` : `${number(row.score)} + bias = ${number(row.scaled)}`),
  normalize({ e, row }) {
    const all = e.steps.map((step) => Number(step.scaled));
    const thisScore = Number(row.scaled);
    if (e.normalizer === "softmax") {
      const [part, whole] = [Math.exp(thisScore), all.reduce((sum, value) => sum + Math.exp(value), 0)];
      if (whole < 1e6 && near(part / whole, row.weight)) return `e^${number(thisScore)} ÷ Σ e^s = ${number(part)} ÷ ${number(whole)} = ${number(row.weight, 3)}`;
    }
    const whole = all.reduce((sum, value) => sum + value, 0);
    if (e.normalizer === "sum" && near(thisScore / whole, row.weight)) return `${number(thisScore)} ÷ ${number(whole)} = ${number(row.weight, 3)}`;
    return `${e.normalizer}: ${number(row.weight, 3)}`;
  },
  weigh: ({ row }) => `${number(row.weight, 3)} · ${vector(row.value)} = ${vector(row.weighted)}`,
  sum: ({ e, row, stage }) => `adds ${vector(row.weighted)} to ${stage.formula.includes("=") ? stage.formula : `output = ${stage.formula}`} = ${vector(e.output)}`,
  join: ({ e, stage }) => `${stage.formula} = ${vector(e.joined || [...e.query, ...e.output], 4)}`,
};

export function working(e, stage, row) {
  const names = { value: e.state_names[row.index], score: (e.stages.find((each) => each.key === "score").formula || "").replaceAll("_j", `_${row.index + 1}`) };
  return WORKINGS[stage.key]({ e, row, stage, names });
}
