// Compiles a score's tree to a program of the core: integers in the form of overt/attention/expressions/instructions.py.
import { OPERATIONS, REDUCTIONS, REVERSED } from "./functions.js";

const PLACES = { query: 1, key: 2, number: 4, temporary: 5, product: 6 };
const NOTHING = [0, 0, 0];

// { code, numbers, size } for q and k of `dim` numbers. Each reduction is a stage that runs for every feature; what it starts from, and what is made of
// it, are stages that run once. `size` is the number of instructions.
export function programOf(tree, dim) {
  const [numbers, stages, stored] = [[], [], new Map()];
  let products = 0;
  const numberAt = (value) => {
    if (!numbers.includes(value)) numbers.push(value);
    return [PLACES.number, numbers.indexOf(value), 0];
  };
  // The operand from which an instruction can read a node; undefined if it must be computed first.
  const operand = (node) => {
    if (node.name === "query" || node.name === "key") return [PLACES[node.name], 0, 1];
    if (node.name === "number" || node.name === "dim") return numberAt(node.name === "dim" ? dim : node.number);
    return stored.get(node);
  };
  const emit = (name, first = NOTHING, second = NOTHING) => stages.at(-1).instructions.push([OPERATIONS.indexOf(name), ...first, ...second]);
  const stage = (count) => stages.at(-1)?.count === count && count === 0 ? undefined : stages.push({ count, instructions: [] });
  const store = (node) => {
    const temporary = [PLACES.temporary, [...stored.values()].filter(([place]) => place === PLACES.temporary).length, 0];
    emit("store", temporary);
    stored.set(node, temporary);
  };
  const value = (node) => {
    const at = operand(node);
    if (at) return emit("load", at);
    const [first, second] = node.parts;
    if (second && !operand(second) && operand(first)) return (value(second), emit(REVERSED[node.name], operand(first)));
    if (second && !operand(second)) (value(second), store(second));
    value(first);
    return emit(node.name, second ? operand(second) : NOTHING);
  };
  const reduce = (node) => {
    node.parts?.forEach(reduce);
    if (!(node.name in REDUCTIONS)) return;
    if (isProduct(node)) return void ((products = 1), stored.set(node, [PLACES.product, 0, 0]));
    stage(0);
    emit("load", numberAt(REDUCTIONS[node.name][0]));
    store(node);
    stage(dim);
    value(node.parts[0]);
    emit(node.name, stored.get(node));
  };
  reduce(tree);
  stage(0);
  value(tree);
  const temporaries = [...stored.values()].filter(([place]) => place === PLACES.temporary).length;
  const forward = [temporaries, stages.length, ...stages.flatMap(({ count, instructions }) => [count, instructions.length, ...instructions.flat()])];
  const code = [products, ...(products ? [0, 0, dim] : []), ...forward, 0, 0]; // no backward pass
  return { code: Int32Array.from(code), numbers: Float64Array.from(numbers), size: stages.reduce((sum, each) => sum + each.instructions.length, 0) };
}

// q · k itself, which the core computes for all pairs of a tile at once.
function isProduct({ name, parts: [of] }) {
  return name === "sum" && of.name === "mul" && of.parts[0].name === "query" && of.parts[1].name === "key";
}
