import { arraysOf } from "../../lens/viewer/web/data/data.js";
import { grouped } from "../../lens/viewer/web/data/labels.js";

// A model that runs in Python: texts go to the server that this page came from, and recordings come back. A reader as worker_reader.js has it.

const GONE = "The server does not answer: overt play --serve has ended, or is no longer the one that this page came from.";

export function createServedReader() {
  return { progress: () => {}, ready: Promise.resolve(""), read: (text) => answered(text).catch(() => ({ sentence: GONE })) };
}

async function answered(text) {
  const response = await fetch("read", { method: "POST", body: JSON.stringify({ text }), headers: { "Content-Type": "application/json" } });
  const answer = await response.json(); // of another server it is none
  if (answer.sentence) return answer;
  const { header, blocks, count, all, seconds } = answer;
  const array = await arraysOf({ encoding: (n) => blocks[n][0], text: (n) => blocks[n][1] });
  return { header, array, all, count, lines: [`${grouped(count)} tokens, read in Python in ${seconds.toFixed(2)} s`] };
}
