import { arraysOf } from "../../lens/viewer/web/data/data.js";
import { grouped } from "../../lens/viewer/web/data/labels.js";

// A model in Python: texts go to the server of this page, and recordings come back. It has the interface of worker_reader.js.

const GONE = "The server does not answer: overt play --serve has ended, or is no longer the one that this page came from.";

export function createServedReader() {
  return { progress: () => {}, ready: Promise.resolve(""), read: (text) => answered(text).catch(() => ({ sentence: GONE })) };
}

async function answered(text) {
  const response = await fetch("read", { method: "POST", body: JSON.stringify({ text }), headers: { "Content-Type": "application/json" } });
  const answer = await response.json(); // another server sends no JSON
  if (answer.sentence) return answer;
  const { header, blocks, count, all, seconds } = answer;
  const array = await arraysOf({ encoding: (n) => blocks[n][0], text: (n) => blocks[n][1] });
  return { header, array, all, count, lines: [`${grouped(count)} tokens, read in Python in ${seconds.toFixed(2)} s`] };
}
