import { codeOf, pooled } from "./exact.js";

// Tiles of exact weights, computed off the main thread where a Worker may be started, and in slices on it where none may.
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
  const found = known.has(data.head) ? tileOf(known.get(data.head), ...data.place) : null;
  postMessage({ number: data.number, found }, found ? [found.max.buffer, found.mean.buffer, found.maxCodes.buffer, found.meanCodes.buffer] : []);
};`;

export function tileOf(terms, r0, k0, rows, columns, step) {
  const found = pooled(terms, r0, k0, rows, columns, step);
  return { ...found, maxCodes: Uint8Array.from(found.max, codeOf), meanCodes: Uint8Array.from(found.mean, codeOf) };
}

export function createComputer() {
  const worker = startedWorker();
  const waiting = new Map();
  let [count, sent] = [0, []];
  const here = (head, place) => new Promise((done) => setTimeout(() => done(tileOf(head.terms, ...place)), 0));
  if (!worker) return { pooled: (head, ...place) => here(head, place), threaded: false };
  const give = (head) => {
    if (sent.includes(head.index)) return;
    sent = [...sent, head.index].slice(-4);
    worker.postMessage({ head: head.index, terms: cloned(head.terms) });
  };
  const computer = {
    threaded: true,
    pooled(head, ...place) {
      if (!computer.threaded) return here(head, place);
      give(head);
      const number = count++;
      worker.postMessage({ head: head.index, number, place });
      return new Promise((done) => waiting.set(number, { done, head, place }));
    },
  };
  worker.onmessage = ({ data }) => {
    const { done, head, place } = waiting.get(data.number);
    waiting.delete(data.number);
    done(data.found ?? tileOf(head.terms, ...place));
  };
  worker.onerror = () => {
    computer.threaded = false; // refused after all: what was asked of it is done here
    for (const { done, head, place } of waiting.values()) here(head, place).then(done);
    waiting.clear();
  };
  return computer;
}

function startedWorker() {
  try {
    return new Worker(URL.createObjectURL(new Blob([EXACT_TEXT, String(tileOf), SERVICE], { type: "text/javascript" })));
  } catch {
    return null;
  }
}

// The same with arrays of their own: a view would take its whole block along.
function cloned(held) {
  if (ArrayBuffer.isView(held)) return held.slice();
  if (held === null || typeof held !== "object" || Array.isArray(held)) return held;
  return Object.fromEntries(Object.entries(held).map(([name, value]) => [name, cloned(value)]));
}
