// A score's tree as MathML, which browsers typeset.

const BETWEEN = { add: "+", sub: "−" };
const LEVELS = { add: 1, sub: 1, neg: 1, mul: 3, div: 4, square: 5, pow: 5 }; // a term inside one that binds tighter gets parentheses
const [OF_SUMS, OF_PRODUCTS, HIGHEST] = [2, 3, 9]; // −Σ x needs none, (Σ x) · y does
const VARIABLES = { query: "q", key: "k", dim: "d" };

export function typeset(tree) {
  const formula = math("math", row(math("mi", "f"), enclosed("(", row(vector("q"), math("mo", ","), vector("k")), ")")), math("mo", "="), shown(tree));
  formula.setAttribute("displaystyle", "true");
  return formula;
}

function math(tag, ...children) {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  node.append(...children);
  return node;
}

const vector = (name) => {
  const node = math("mi", name);
  if (name !== "d") node.setAttribute("class", "vector");
  return node;
};
const row = (...children) => math("mrow", ...children);

// Brackets grow only around tall terms: without a mathematics font they would be too tall otherwise.
function enclosed(left, inner, right) {
  const brackets = [left, right].map((text) => math("mo", text));
  const tall = inner.matches("mfrac, msqrt") || inner.querySelector("mfrac, msqrt");
  brackets.forEach((bracket) => bracket.setAttribute("stretchy", String(Boolean(tall))));
  return row(brackets[0], inner, brackets[1]);
}

// The term with parentheses if its context binds at `least` this tight.
function part(tree, least) {
  const inner = shown(tree);
  const level = tree.name === "sum" && !isDot(tree) ? OF_SUMS : (LEVELS[tree.name] ?? (tree.name === "sum" ? OF_PRODUCTS : HIGHEST));
  return level < least ? enclosed("(", inner, ")") : inner;
}

function shown(tree) {
  const { name, parts: [first, second] = [] } = tree;
  if (name in VARIABLES) return vector(VARIABLES[name]);
  if (name === "number") return math("mn", String(tree.number));
  if (name === "neg") return row(math("mo", "−"), part(first, OF_SUMS));
  if (name === "abs") return enclosed("|", shown(first), "|");
  if (name === "root") return math("msqrt", shown(first));
  if (name === "square" || name === "pow") return math("msup", part(first, HIGHEST), second ? shown(second) : math("mn", "2"));
  if (name === "div") return math("mfrac", shown(first), shown(second));
  if (name === "sum") return summed(tree);
  if (name === "add" || name === "sub") return row(part(first, 1), math("mo", BETWEEN[name]), part(second, name === "sub" ? OF_SUMS : 1));
  if (name === "mul") return row(part(first, OF_PRODUCTS), math("mo", first.features && second.features ? "⊙" : "·"), part(second, OF_PRODUCTS + 1));
  return called(name, [first, second].filter(Boolean));
}

const isDot = ({ parts: [of] }) => of.name === "mul" && of.parts.every((each) => each.features);

// A dot product, or Σ over the features.
function summed(tree) {
  const [of] = tree.parts;
  if (isDot(tree)) return row(part(of.parts[0], OF_PRODUCTS + 1), math("mo", "·"), part(of.parts[1], OF_PRODUCTS + 1));
  return row(math("mo", "∑"), part(of, OF_PRODUCTS + 1));
}

function called(name, parts) {
  const spelled = { amax: "max", amin: "min", maximum: "max", minimum: "min" }[name] ?? name;
  const inside = parts.flatMap((each, i) => (i ? [math("mo", ","), shown(each)] : [shown(each)]));
  return row(math("mi", spelled), enclosed("(", row(...inside), ")"));
}
