import { codeOf, pooled } from "./exact.js";

// Tiles of exact weights, computed in a Worker, or in slices on the main thread if no Worker may be started.
//
// `computer.pooled(head, r0, k0, rows, columns, step)` promises { max, mean, maxCodes, meanCodes }.

const SERVICE = `
const known = new Map();
onmessage = ({ data }) => {
  if (data.terms) {
    if (known.size >= 4) known.delete(known.keys().next().value);
    known.set(data.head, data.terms);
    return;
  }
  const result = known.has(data.head) ? tileOf(known.get(data.head), ...data.position) : null;
  postMessage({ number: data.number, result }, result ? [result.max.buffer, result.mean.buffer, result.maxCodes.buffer, result.meanCodes.buffer] : []);
};`;

const codesOf = (weights, terms) => Uint8Array.from(weights, (weight) => codeOf(weight, Boolean(terms.mixer)));

export function tileOf(terms, r0, k0, rows, columns, step) {
  const result = pooled(terms, r0, k0, rows, columns, step);
  return { ...result, maxCodes: codesOf(result.max, terms), meanCodes: codesOf(result.mean, terms) };
}

export function createComputer() {
  const worker = startedWorker();
  const waiting = new Map();
  let [count, sent] = [0, []];
  const here = (head, position) => new Promise((done) => setTimeout(() => done(tileOf(head.terms, ...position)), 0));
  if (!worker) return { pooled: (head, ...position) => here(head, position), threaded: false };
  const give = (head) => {
    if (sent.includes(head.id)) return;
    sent = [...sent, head.id].slice(-4);
    worker.postMessage({ head: head.id, terms: cloned(head.terms) });
  };
  const computer = {
    threaded: true,
    pooled(head, ...position) {
      if (!computer.threaded) return here(head, position);
      give(head);
      const number = count++;
      worker.postMessage({ head: head.id, number, position });
      return new Promise((done) => waiting.set(number, { done, head, position }));
    },
  };
  worker.onmessage = ({ data }) => {
    const { done, head, position } = waiting.get(data.number);
    waiting.delete(data.number);
    done(data.result ?? tileOf(head.terms, ...position));
  };
  worker.onerror = () => {
    computer.threaded = false; // the Worker was refused, so the main thread does its work
    for (const { done, head, position } of waiting.values()) here(head, position).then(done);
    waiting.clear();
  };
  return computer;
}

function startedWorker() {
  try {
    return new Worker(URL.createObjectURL(new Blob([`const { ${Object.keys(REUSED())} } = (${REUSED})();`, `const codesOf = ${codesOf};`, String(tileOf), SERVICE], { type: "text/javascript" })));
  } catch {
    return null;
  }
}

// A copy with separate arrays, because sending a view would copy its whole block.
function cloned(original) {
  if (ArrayBuffer.isView(original)) return original.slice();
  if (original === null || typeof original !== "object" || Array.isArray(original)) return original;
  return Object.fromEntries(Object.entries(original).map(([name, value]) => [name, cloned(value)]));
}
