// A typed score as a tree of { name, parts, features }: `features` is true if it has a number for each feature of q and k.
import { REDUCTIONS } from "./functions.js";

const TOKEN = /\s*(?:(?<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?<name>[a-z_]\w*)|(?<sign>\*\*|.))/iuy;
const SAME = { "−": "-", "–": "-", "×": "*", "**": "^", "÷": "/", "∙": "·", "⋅": "·", "∑": "Σ" };
const POWERS = { "²": "2", "³": "3" };
const BINARY = { "+": [1, "add"], "-": [1, "sub"], "*": [2, "mul"], "/": [2, "div"], "·": [2, "dot"], "^": [4, "pow"] };
const SIGNED = 3; // a sign binds tighter than a product, and less tight than a power
const NAMES = { q: "query", k: "key", d: "dim" };
const ONE = { abs: "abs", exp: "exp", log: "log", ln: "log", tanh: "tanh", sigmoid: "sigmoid", sin: "sin", cos: "cos", sqrt: "root", relu: "relu", sum: "sum", mean: "mean" };
const KNOWN = [...Object.keys(NAMES), ...Object.keys(ONE), "min", "max", "dot"];

// Throws an Error with rule, got and fix in one sentence.
export function parsed(text) {
  const tokens = tokensOf(text);
  let next = 0;
  const peek = () => tokens[next];
  const take = (sign, fix) => {
    if (peek().text !== sign) refuse(`“${sign}”`, peek(), fix);
    next += 1;
  };
  const refuseTerm = () => isTerm(peek()) && refuse("+, −, *, /, · or ^", peek(), "write * for the product of each feature, · for the dot product");
  // A term and its continuation, as far as operators bind at least this tight.
  const expression = (least) => {
    let left = first();
    for (let found = BINARY[peek().text]; found && found[0] >= least; found = BINARY[peek().text]) {
      next += 1;
      left = combined(found[1], left, expression(found[0] + (found[1] === "pow" ? 0 : 1)));
    }
    refuseTerm();
    return left;
  };
  const enclosed = (opening, closing) => {
    const inner = expression(0);
    take(closing, `close the “${opening.text}” at character ${opening.at}`);
    return inner;
  };
  const first = () => {
    const token = tokens[next++];
    if (token.number !== undefined) return numberOf(token.number);
    if (token.name) return Object.hasOwn(NAMES, token.name) ? input(token.name) : call(token);
    if (token.text === "-") return node("neg", expression(SIGNED));
    if (token.text === "Σ") return reduced("sum", expression(SIGNED + 1));
    if (token.text === "√") return node("root", expression(SIGNED + 2));
    if (token.text === "(") return enclosed(token, ")");
    if (token.text === "|") return node("abs", enclosed(token, "|"));
    return refuse("q, k, d, a number, a function or “(”", token, token.text ? "remove it, or put a term before it" : "end with a term");
  };
  const call = (token) => {
    if (!KNOWN.includes(token.name)) throw new Error(`Expected a name that is known, got “${token.name}” at character ${token.at}. Fix: ${nearest(token.name)}.`);
    const opening = peek();
    take("(", `write ${token.name}(…)`);
    const parts = [expression(0)];
    while (peek().text === ",") (next += 1), parts.push(expression(0));
    take(")", `close the “(” at character ${opening.at}`);
    return called(token.name, parts);
  };
  const tree = expression(0);
  const rest = peek();
  if (rest.text) refuse("the end", rest, ")|".includes(rest.text) ? "remove it, or open it before" : "remove it");
  if (tree.features) throw new Error("Expected one number for each pair of q and k, got one for each feature. Fix: put sum(…) around it.");
  return tree;
}

function tokensOf(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    const { number, name, sign } = match.groups;
    const found = number ?? name ?? SAME[sign] ?? sign;
    const at = TOKEN.lastIndex - (number ?? name ?? sign).length + 1;
    if (!found.trim()) break; // blanks at the end
    if (Object.hasOwn(POWERS, found)) tokens.push({ text: "^", at }, { text: POWERS[found], number: POWERS[found], at });
    else tokens.push({ text: found, number, name, at });
  }
  return [...tokens, { text: "", at: text.length + 1 }];
}

const isTerm = ({ text, name, number }) => name !== undefined || number !== undefined || "(√Σ".includes(text || " ");

function refuse(expected, { text, at }, fix) {
  throw new Error(`Expected ${expected}, got ${text ? `“${text}” at character ${at}` : "the end"}. Fix: ${fix}.`);
}

const numberOf = (text) => ({ name: "number", number: Number(text), features: false });
const input = (name) => ({ name: NAMES[name], features: name !== "d" });
const node = (name, ...parts) => ({ name, parts, features: parts.some((part) => part.features) });

function combined(name, left, right) {
  if (name === "dot") return left.features && right.features ? reduced("sum", node("mul", left, right)) : node("mul", left, right);
  if (name === "pow" && right.name === "number" && right.number === 2) return node("square", left);
  return node(name, left, right);
}

function reduced(name, part) {
  if (!part.features) throw new Error("Expected a number for each feature inside of sum, mean, max or min, got one number for the pair. Fix: use q or k there, as in sum(q * k); q·k is a sum already.");
  return { ...node(name, part), features: false };
}

function called(name, parts) {
  const most = name in ONE ? [1] : name === "dot" ? [2] : [1, 2];
  if (!most.includes(parts.length)) throw new Error(`Expected ${most.join(" or ")} argument${most.at(-1) > 1 ? "s" : ""} of ${name}, got ${parts.length}. Fix: ${name}(${most[0] > 1 ? "q, k" : "…"}).`);
  if (name === "dot") return combined("dot", ...dotted(parts));
  if (name === "max" || name === "min") return parts.length > 1 ? node(`${name}imum`, ...parts) : reduced(`a${name}`, parts[0]);
  if (name === "mean") return node("div", reduced("sum", parts[0]), { name: "dim", features: false });
  if (name === "relu") return node("maximum", parts[0], numberOf("0"));
  return ONE[name] in REDUCTIONS ? reduced(ONE[name], parts[0]) : node(ONE[name], parts[0]);
}

function dotted(parts) {
  if (parts.every((part) => part.features)) return parts;
  throw new Error("Expected two vectors in dot(…), got one number for the pair. Fix: dot(q, k).");
}

// The known name with the smallest Levenshtein distance.
function nearest(name) {
  const away = (other) => {
    let row = Array.from({ length: other.length + 1 }, (_, j) => j);
    for (let i = 1; i <= name.length; i++) {
      const before = row;
      row = [i];
      for (let j = 1; j <= other.length; j++) row.push(Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (name[i - 1].toLowerCase() === other[j - 1] ? 0 : 1)));
    }
    return row.at(-1);
  };
  const best = KNOWN.reduce((found, other) => (away(other) < away(found) ? other : found));
  return away(best) <= Math.max(1, name.length / 2) ? `write ${best}` : `use ${KNOWN.slice(0, -1).join(", ")} or dot`;
}
