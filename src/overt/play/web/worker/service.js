import { createChanged, createWordVectors } from "./changed.js";
import { createEncoder } from "./encoder.js";
import { createJoining } from "./joining.js";
import { createReading } from "./reading.js";
import { startCore } from "./core.js";
import { createWeights } from "./weights.js";
import { createWordPiece } from "./wordpiece.js";

// What runs in the page's Worker: first { core, model } comes, then the weights' blocks one by one as { block }, then texts as { number, text }, or
// as { text, changes, … } for a changed model, as { text, words } for the vectors of its words, as { text, joined } for W_O.
// Each gets an answer, with a `sentence` where something is wrong.

const DAMAGED = "The file's model cannot be read: the file is cut short or damaged. Write the page again with overt play.";

let [weights, read, changed, wordVectors, joining] = [null, null, null, null, null];

async function begin(letters) {
  const [bytes, description] = await Promise.all([inflated(letters.core), inflated(letters.model)]).catch(() => []);
  if (!bytes) return { sentence: DAMAGED };
  const [core, model] = [await startCore(bytes), JSON.parse(new TextDecoder().decode(description))];
  weights = createWeights(core, model);
  const [tokenize, run] = [createWordPiece(model.tokenizer), createEncoder(core, weights, model.shape)];
  read = createReading(core, weights, model.shape, tokenize, run);
  changed = createChanged(core, model.shape, tokenize, run);
  wordVectors = createWordVectors(core, weights, model.shape, tokenize);
  joining = createJoining(core, weights, model.shape, tokenize, run);
  return {};
}

async function inflated(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

function answer(data) {
  if (data.core !== undefined) return begin(data);
  if (data.changes !== undefined) return changed(data);
  if (data.words) return wordVectors(data);
  if (data.joined) return joining(data);
  return data.block === undefined ? read(data.text, data.number) : { sentence: weights.add(data.block) };
}

function wrong(error) {
  const memory = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
  return `The model cannot run here: ${memory ? "the browser gives it too little memory" : error.message}.`;
}

onmessage = async ({ data }) => {
  try {
    postMessage(await answer(data));
  } catch (error) {
    postMessage({ sentence: wrong(error) });
  }
};
