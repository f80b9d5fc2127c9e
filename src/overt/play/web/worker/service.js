import { createChanged, createWordVectors } from "./questions/changed.js";
import { createEncoder } from "./encoder.js";
import { createWhy } from "./questions/why.js";
import { createJoining, createScoring } from "./questions/joining.js";
import { answerMessages, embeddedModel } from "./messages.js";
import { createReading } from "./reading.js";
import { startCore } from "./core.js";
import { createWeights } from "./weights.js";
import { createWordPiece } from "./wordpiece.js";

// What runs in the page's Worker: first { core, model } comes, then the weights' blocks one by one as { block }, then texts as { number, text }, or
// as { text, changes, … } for a changed model, as { text, words } for the vectors of its words, as { text, joined } for W_O, as
// { scored } for a score of the reader's own, as { text, edit, why } for the parts of a score.
// Each gets an answer, with a `sentence` where something is wrong.

let [weights, read, changed, wordVectors, joining, scoring, why] = [null, null, null, null, null, null, null];

async function begin(letters) {
  const { bytes, model, sentence } = await embeddedModel(letters);
  if (sentence) return { sentence };
  const core = await startCore(bytes);
  weights = createWeights(core, model);
  const [tokenize, run] = [createWordPiece(model.tokenizer), createEncoder(core, weights, model.shape)];
  read = createReading(core, weights, model.shape, tokenize, run);
  changed = createChanged(core, model.shape, tokenize, run);
  wordVectors = createWordVectors(core, weights, model.shape, tokenize);
  joining = createJoining(core, weights, model.shape, tokenize, run);
  scoring = createScoring(core);
  why = createWhy(core, weights, model.shape, tokenize, run);
  return {};
}

function answer(data) {
  if (data.core !== undefined) return begin(data);
  if (data.changes !== undefined) return changed(data);
  if (data.words) return wordVectors(data);
  if (data.joined) return joining(data);
  if (data.scored) return scoring(data);
  if (data.why) return why(data);
  return data.block === undefined ? read(data.text, data.number, data.edit) : { sentence: weights.add(data.block) };
}

answerMessages(answer);
