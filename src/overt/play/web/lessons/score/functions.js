// The functions of typed scores. Names and order are those of programs in the core (native/attention/programs/program.hpp).

export const OPERATIONS = ["load", "store", "neg", "abs", "sign", "exp", "log", "log1p", "expm1", "root", "tanh", "sigmoid", "sin", "cos", "erf", "atan", "square",
  "add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "eq", "pow", "rsub", "rdiv", "lt", "le", "rpow", "select", "sum", "amax", "amin"];

// The functions of one and of two numbers, in float64.
export const FUNCTIONS = {
  neg: (x) => -x, abs: Math.abs, exp: Math.exp, log: Math.log, root: Math.sqrt, tanh: Math.tanh, sigmoid: (x) => 1 / (1 + Math.exp(-x)), sin: Math.sin, cos: Math.cos, square: (x) => x * x,
  add: (x, y) => x + y, sub: (x, y) => x - y, mul: (x, y) => x * y, div: (x, y) => x / y, maximum: (x, y) => Math.max(x, y), minimum: (x, y) => Math.min(x, y), pow: Math.pow,
};

// With operands swapped.
export const REVERSED = { add: "add", sub: "rsub", mul: "mul", div: "rdiv", maximum: "maximum", minimum: "minimum", pow: "rpow" };

// Reductions over the features: the initial number, and the step in float64.
export const REDUCTIONS = { sum: [0, FUNCTIONS.add], amax: [-Infinity, FUNCTIONS.maximum], amin: [Infinity, FUNCTIONS.minimum] };

// f(q, k) in float64: a number; intermediate results with a number for each feature are arrays.
export function scoreOf(tree, q, k) {
  const value = ({ name, parts, number }) => {
    if (name === "query" || name === "key") return name === "query" ? q : k;
    if (name === "number" || name === "dim") return name === "dim" ? q.length : number;
    const inputs = parts.map(value);
    if (name in REDUCTIONS) return inputs[0].reduce(REDUCTIONS[name][1], REDUCTIONS[name][0]);
    if (inputs.every((each) => typeof each === "number")) return FUNCTIONS[name](...inputs);
    return Float64Array.from(q, (_, d) => FUNCTIONS[name](...inputs.map((each) => (typeof each === "number" ? each : each[d]))));
  };
  return value(tree);
}
