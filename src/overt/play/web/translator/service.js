import { startCore } from "../worker/core.js";
import { answerMessages, embeddedModel } from "../worker/messages.js";
import { createWeights } from "../worker/weights.js";
import { createBpe } from "./bpe.js";
import { createReading, crossWeights } from "./reading.js";
import { beamSearch, END, greedySearch, longestOf } from "./search.js";
import { createSeq2Seq } from "./seq2seq.js";
import { createTransformer } from "./transformer.js";

// What runs in the Worker of a translator's page: first { core, model } comes, then the weights' blocks one by one as { block }, then texts. { text, number,
// beam } is translated and shown; { text, off } is translated with heads off; { text, pair: true } by the two models of the lesson on the bottleneck. While
// a text is written, { step } comes for each word.

const EMPTY = "Type a sentence: there is no word in this text.";
const LIMIT = 256; // tokens of a source

let [core, weights, translator, pair] = [null, null, null, []];

async function begin(letters) {
  const { bytes, model, sentence } = await embeddedModel(letters);
  if (sentence) return { sentence };
  core = await startCore(bytes);
  weights = createWeights(core, model);
  translator = createTranslator(model.models.translator, "translator");
  pair = Object.entries(model.models).filter(([name]) => name !== "translator").map(([name, each]) => ({ name, ...createTranslator(each, name) }));
  return {};
}

// A model with its tokenizer; its tensors have its name before their own.
function createTranslator({ tokenizer, shape }, name) {
  const of = { at: (tensor) => weights.at(`${name}.${tensor}`), tensor: (tensor) => weights.tensor(`${name}.${tensor}`) };
  const model = shape.kind === "Transformer" ? createTransformer(core, of, shape) : createSeq2Seq(core, of, shape);
  return { bpe: createBpe(tokenizer), model, shape, read: shape.kind === "Transformer" ? createReading(core, of, shape, model) : null };
}

// The tokens that a model reads, with the end; the beginning of a text that is too long.
function sourceOf({ bpe, shape }, text) {
  const { ids, words, spaced, all } = bpe.encode(text);
  const most = Math.min(LIMIT, shape.limit ?? LIMIT) - 1;
  const cut = (list, end) => [...list.slice(0, most), end];
  return { ids: cut(ids, END), words: cut(words, bpe.piece(END)), pieces: cut(ids.map(bpe.piece), bpe.piece(END)), spaced: cut(spaced, 1), all: all && ids.length <= most, empty: !ids.length };
}

const targetOf = ({ bpe }, tokens) => {
  const pieces = [...tokens, END].map(bpe.piece);
  const marked = pieces.map((piece) => piece.startsWith("▁"));
  return { ids: [...tokens, END], words: pieces.map((piece, i) => (marked[i] && piece.length > 1 ? piece.slice(1) : piece)), pieces, spaced: marked.map((each, i) => Number(i > 0 && (each || i === pieces.length - 1))) };
};

// Writes with one model; `written(text, weights)` is called with each word, `weights` are those of each head on the source.
function translated(each, source, { beam = 1, off = [], written = () => {} } = {}) {
  const { model, bpe, shape } = each;
  const memory = model.start(source.ids, off);
  const limit = Math.min(longestOf(source.ids), (shape.limit ?? Infinity) - 1);
  const [tokens, layers] = [[], []];
  if (beam === 1) memory.seen = (layer, state) => (layers[layer] = crossWeights(core, shape, state));
  const result = beam > 1 ? beamSearch(model, memory, limit, beam) : greedySearch(model, memory, limit, (token) => {
    if (token !== END) tokens.push(token);
    written(tokens, token, layers.flat());
  });
  return { memory, ...result, text: bpe.decode(result.tokens) };
}

function translation({ text, number, beam }) {
  const start = performance.now();
  const source = sourceOf(translator, text);
  if (source.empty) return { sentence: EMPTY };
  const before = core.allocate(0);
  postMessage({ step: { begin: source.words } });
  const written = (tokens, token, weightsOfHeads) => postMessage({ step: { text: translator.bpe.decode(tokens), word: targetOf(translator, token === END ? [] : [token]).words[0], weights: weightsOfHeads } });
  const { memory, tokens, score, text: output } = translated(translator, source, { beam, written });
  postMessage({ step: { text: output } });
  const time = performance.now() - start;
  const target = targetOf(translator, tokens);
  const header = translator.read(memory, source, target, number);
  core.release(before);
  return { header, output, score, count: source.ids.length, words: target.ids.length, all: source.all, time, whole: performance.now() - start, said: saidOf(source, target, time, performance.now() - start) };
}

const saidOf = ({ ids, all }, target, time, whole) => `${ids.length} tokens read${all ? "" : ", the beginning of the text"}, ${target.ids.length} written · ${(time / target.ids.length).toFixed(1)} ms a token, picture ${Math.round(whole)} ms`;

// The translation alone, with heads off.
function changed({ text, off }) {
  const source = sourceOf(translator, text);
  if (source.empty) return { sentence: EMPTY };
  const before = core.allocate(0);
  const { text: output, tokens, score } = translated(translator, source, { off });
  core.release(before);
  return { output, tokens: tokens.map(translator.bpe.piece), score };
}

// Both models of the lesson on the bottleneck; a step has the name of its model, the word and its weights on the source.
function both({ text }) {
  const results = pair.map((each) => {
    const source = sourceOf(each, text);
    if (source.empty) return { sentence: EMPTY };
    const before = core.allocate(0);
    const start = performance.now();
    postMessage({ step: { pair: each.name, begin: source.words } });
    let weightsOfStep = null;
    const model = { ...each.model, step: (tokens, memory) => { const step = each.model.step(tokens, memory); weightsOfStep = step.attention?.[0] ?? null; return step; } };
    const rows = [];
    const written = (tokens, token) => {
      const row = { pair: each.name, word: targetOf(each, [token]).words[0], weights: weightsOfStep, text: each.bpe.decode(tokens) };
      rows.push(row);
      postMessage({ step: row });
    };
    const { text: output, memory } = translated({ ...each, model }, source, { written });
    const vectorOf = each.shape.attention ? null : memory.end;
    core.release(before);
    return { name: each.name, output, vector: vectorOf, rows, count: source.ids.length, words: rows.length, source: source.words, time: performance.now() - start };
  });
  return results.find(({ sentence }) => sentence) ?? { results };
}

function answer(data) {
  if (data.core !== undefined) return begin(data);
  if (data.block !== undefined) return { sentence: weights.add(data.block) };
  if (data.pair) return both(data);
  return data.off ? changed(data) : translation(data);
}

answerMessages(answer);
