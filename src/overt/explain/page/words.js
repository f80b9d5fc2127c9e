// Numbers and sentences. What a reader typed reaches the page only through textContent.
const make = (tag, options = {}, ...children) => {
  const { className, text, attributes = {}, on = {} } = options;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const [name, handler] of Object.entries(on)) node.addEventListener(name, handler);
  node.append(...children);
  return node;
};

function number(value, places = 2) {
  value = Number(value);
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2).replace("+", "") : value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replaceAll("-", "−");
}

function places(values, least = 2, most = 4) {
  const largest = Math.max(0, ...values.map(Number).filter(Number.isFinite).map(Math.abs));
  return largest === 0 ? least : Math.min(most, Math.max(least, 1 - Math.floor(Math.log10(largest))));
}

function vector(values, shown = 3) {
  const decimals = places(values);
  if (values.length <= shown + 1) return `[${values.map((value) => number(value, decimals)).join("  ")}]`;
  return `[${values.slice(0, shown).map((value) => number(value, decimals)).join("  ")} … ${values.length}]`;
}

// A formula as nodes: the indices of h_1, a_1j, x_j are set low.
function formula(text) {
  const fragment = document.createDocumentFragment();
  text.split(/(?<=(?<!\w)[A-Za-z])_(\d+[ij]?|[ij])(?!\w)/).forEach((part, i) => part && fragment.append(i % 2 ? make("sub", { text: part }) : part));
  return fragment;
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + Number(value) * Number(b[i]), 0);
const near = (a, b) => Math.abs(a - b) <= 1e-3 * Math.max(1, Math.abs(b));

// How a step comes to its number for one token, written out as far as it fits. Where the plain formula does not give
// the number (another score, a bias, another normalizer), only the number itself is told.
const WORKINGS = {
  vectors({ e, row, names }) {
    const own = `${e.query_name} = ${vector(e.query)}`;
    return e.recipe === "qkv" ? `${own}   k = ${vector(row.key)}   v = ${vector(row.value)}` : `${names.value} = ${vector(row.value)}`;
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
    const own = Number(row.scaled);
    if (e.normalizer === "softmax") {
      const [part, whole] = [Math.exp(own), all.reduce((sum, value) => sum + Math.exp(value), 0)];
      if (whole < 1e6 && near(part / whole, row.weight)) return `e^${number(own)} ÷ Σ e^s = ${number(part)} ÷ ${number(whole)} = ${number(row.weight, 3)}`;
    }
    const whole = all.reduce((sum, value) => sum + value, 0);
    if (e.normalizer === "sum" && near(own / whole, row.weight)) return `${number(own)} ÷ ${number(whole)} = ${number(row.weight, 3)}`;
    return `${e.normalizer}: ${number(row.weight, 3)}`;
  },
  weigh: ({ row }) => `${number(row.weight, 3)} · ${vector(row.value)} = ${vector(row.weighted)}`,
  sum: ({ e, row, stage }) => `adds ${vector(row.weighted)} to ${stage.formula.includes("=") ? stage.formula : `output = ${stage.formula}`} = ${vector(e.output)}`,
  join: ({ e, stage }) => `${stage.formula} = ${vector(e.joined || [...e.query, ...e.output], 4)}`,
};

const bracketed = (value) => (Number(value) < 0 ? `(${number(value)})` : number(value));

function working(e, stage, row) {
  const names = { value: e.state_names[row.index], score: (e.stages.find((each) => each.key === "score").formula || "").replaceAll("_j", `_${row.index + 1}`) };
  return WORKINGS[stage.key]({ e, row, stage, names });
}
