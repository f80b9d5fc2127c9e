import { startCore } from "../worker/core.js";
import { answerMessages, embeddedModel } from "../worker/messages.js";
import { checkedCuts, namesOf, NONE } from "../worker/cuts.js";
import { createWeights } from "../worker/weights.js";
import { createBpe } from "./bpe.js";
import { createReading, crossWeights } from "./reading.js";
import { beamSearch, END, greedySearch, longestOf } from "./search.js";
import { createSeq2Seq } from "./seq2seq.js";
import { createTransformer } from "./transformer.js";
import { createWhy } from "./why.js";

// What runs in the Worker of a translator's page: first { core, model } comes, then the weights' blocks one by one as { block }, then texts. { text, number,
// beam } is translated and shown; { text, edit, beam, why } asks for the parts of a score; { text, off, edit } is translated with heads off and arcs cut; { text, pair: true } by the two models of the lesson on the bottleneck. While
// a text is written, { step } comes for each word.

const EMPTY = "Type a sentence: there is no word in this text.";
const [LIMIT, NEXT] = [256, 5]; // tokens of a source; displayed candidates of the next word

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

// A model with its tokenizer; the names of its tensors begin with the name of the model.
function createTranslator({ tokenizer, shape }, name) {
  const of = { at: (tensor) => weights.at(`${name}.${tensor}`), tensor: (tensor) => weights.tensor(`${name}.${tensor}`) };
  const model = shape.kind === "Transformer" ? createTransformer(core, of, shape) : createSeq2Seq(core, of, shape);
  const more = shape.kind === "Transformer" ? { read: createReading(core, of, shape, model), why: createWhy(core, of, shape, model) } : {};
  return { bpe: createBpe(tokenizer), model, shape, ...more };
}

// The tokens for the model, with the end; the beginning of a text that is too long.
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

// Translates with one model; `written(text, weights)` is called with each word, `weights` are each head's on the source.
function translated(each, source, { beam = 1, off = [], edit = undefined, written = () => {} } = {}) {
  const { model, bpe, shape } = each;
  const nexts = [];
  const memory = model.start(source.ids, off, edit);
  const limit = Math.min(longestOf(source.ids), (shape.limit ?? Infinity) - 1);
  const [tokens, layers] = [[], []];
  if (beam === 1) memory.seen = (layer, state) => (layers[layer] = crossWeights(core, shape, layer, state));
  const result = beam > 1 ? beamSearch(model, memory, limit, beam) : greedySearch(model, memory, limit, (token, scores) => {
    nexts.push(mostProbable(bpe, scores, model.words));
    if (token !== END) tokens.push(token);
    written(tokens, token, layers.flat());
  });
  return { memory, ...result, nexts: beam > 1 ? null : nexts, text: bpe.decode(result.tokens) };
}

// The most probable next words, each with its probability.
function mostProbable(bpe, scores, count) {
  const order = Array.from({ length: count }, (_, i) => i).sort((a, b) => scores[b] - scores[a]);
  const total = order.reduce((sum, i) => sum + Math.exp(scores[i] - scores[order[0]]), 0);
  return order.slice(0, NEXT).map((i) => [bpe.piece(i).replace(/^▁(?=.)/u, ""), Math.exp(scores[i] - scores[order[0]]) / total]);
}

function translation({ text, number, beam, edit: asked = NONE }) {
  const start = performance.now();
  const source = sourceOf(translator, text);
  if (source.empty) return { sentence: EMPTY };
  const before = core.allocate(0);
  const base = asked.cuts.length ? uncut(source, beam, asked) : null;
  const edit = base?.edit ?? asked;
  if (edit.sentence) return edit;
  postMessage({ step: { begin: source.words } });
  const written = (tokens, token, weightsOfHeads) => postMessage({ step: { text: translator.bpe.decode(tokens), word: targetOf(translator, token === END ? [] : [token]).words[0], weights: weightsOfHeads } });
  const { memory, tokens, score, nexts, text: output } = translated(translator, source, { beam, written, edit });
  postMessage({ step: { text: output } });
  const time = performance.now() - start;
  const target = targetOf(translator, tokens);
  const header = translator.read(memory, source, target, number);
  core.release(before);
  const cut = base && { before: base.before, names: base.names, texts: [base.output, output] };
  return { header, output, score, cut, nexts, count: source.ids.length, words: target.ids.length, all: source.all, time, whole: performance.now() - start, lines: linesOf(source, target, time, performance.now() - start) };
}

// The model's translation, the weights before the cuts, and the cuts whose pairs exist.
function uncut(source, beam, { cuts, all }) {
  const start = core.allocate(0);
  const { memory, tokens, text: output } = translated(translator, source, { beam });
  const target = targetOf(translator, tokens);
  const { heads } = translator.read(memory, source, target, 0);
  core.release(start);
  const edit = checkedCuts({ cuts, all }, target.ids.length, source.ids.length, target.words);
  return { output, edit, names: namesOf({ cuts: edit.cuts ?? [] }, target.words, source.words), before: (edit.cuts ?? []).map(({ layer, head, row, key }) => weightOf(heads.find((each) => each.call === layer && each.head === head), row, key)) };
}

const weightOf = ({ query, key, lse, score }, row, column) => {
  let sum = 0;
  for (let d = 0; d < query.width; d++) sum += query.data[row * query.width + d] * key.data[column * key.width + d];
  return Math.exp(sum * score.scale - lse[row]);
};

const linesOf = ({ ids }, target, time, whole) => [`${ids.length} tokens read, ${target.ids.length} written: ${(time / target.ids.length).toFixed(1)} ms a token, ${Math.round(whole)} ms with the picture`];

// Only the translation, with heads off and arcs cut.
function changed({ text, off, edit }) {
  const source = sourceOf(translator, text);
  if (source.empty) return { sentence: EMPTY };
  const before = core.allocate(0);
  const { text: output, tokens, score } = translated(translator, source, { off, edit });
  core.release(before);
  return { output, tokens: tokens.map(translator.bpe.piece), score };
}

// The parts of a score of the decoder's attention to the source, while it writes this text.
function whyOf({ text, beam, edit = NONE, why }) {
  const source = sourceOf(translator, text);
  if (source.empty) return { sentence: EMPTY };
  const before = core.allocate(0);
  const { tokens } = translated(translator, source, { beam, edit });
  core.release(before);
  return translator.why({ source: source.ids, target: targetOf(translator, tokens).ids, edit, why });
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
  if (data.why) return whyOf(data);
  return data.off ? changed(data) : translation(data);
}

answerMessages(answer);
