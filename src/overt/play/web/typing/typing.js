import { contentToken } from "../../../lens/viewer/web/data/content.js";
import { recordingOf } from "../../../lens/viewer/web/data/data.js";
import { grouped, label, shorten } from "../../../lens/viewer/web/data/labels.js";
import { scientific } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";
import { weightsOf } from "../../../lens/viewer/web/data/rows.js";
import { nameOf } from "../../../lens/viewer/web/store.js";
import { editOf } from "../cut/cutting.js";
import { createWish, leadingHead } from "./chosen_word.js";
import { examplesRow } from "./examples.js";

// The editable sentence: its latest text goes to the reader, and the answer becomes the page's recording.

const TITLE = 72; // letters
const LAST = 9; // the last step of any head
const ADDRESSED = 2000; // letters: a longer text is not written into the address

// The sentence in the page's address; null until the model has read one.
export const SENTENCE = { name: "text", initial: null, read: (text) => text.slice(0, ADDRESSED), write: (text) => (text.length > ADDRESSED ? "" : text) };

// `reader` is { ready, progress, read } as worker_reader.js has it; `description` is { text, label, notes }, `examples` as examples.js has them. Gives
// { again }, which reads the sentence once more.
export function startTyping(root, recording, store, description, reader, examples = []) {
  const input = make("textarea", { attributes: { id: "sentence", rows: "2", spellcheck: "false", autocomplete: "off", dir: "auto" } });
  const state = make("p", { className: "state", attributes: { "aria-live": "polite" } });
  input.value = store.get().text ?? description.text;
  const field = make("div", { className: "field" }, make("label", { text: description.label, attributes: { for: "sentence" } }), input);
  const box = make("section", { className: "typing", attributes: { "aria-label": "The sentence" } });
  const self = { root, recording, store, first: recording.story, opened: nameOf(recording.heads[recording.start]), description, reader, input, state, wanted: null, busy: true, said: store.said(), wish: createWish(recording, store), sharpest: false, cut: "" };
  const look = make("p", { className: "look", attributes: { "aria-live": "polite" } });
  const read = (example) => {
    [input.value, self.said, self.sharpest, look.textContent] = [example.text, example.head ? { wanted: { head: example.head } } : {}, true, example.look];
    self.wish.want(example.word);
    fresh(self);
    want(self);
  };
  box.append(make("div", { className: "asks" }, changeButton(field, input), ...examplesRow(examples, read)), field, look, state);
  root.querySelector(".bar").after(box);
  reader.progress = (share) => (state.textContent = `The model is loading: ${Math.round(100 * share)} %`);
  state.textContent = "The model is loading";
  input.addEventListener("input", () => {
    look.textContent = "";
    fresh(self);
    want(self);
  });
  store.subscribe(({ cut }, changed) => !changed.has("recording") && (changed.has("cut") ? cut !== self.cut : changed.has("everywhere")) && want(self));
  store.subscribe(({ text }, changed) => changed.has("text") && !changed.has("recording") && follow(self, text));
  reader.ready.then((sentence) => {
    input.disabled = Boolean(sentence);
    if (sentence) return (box.classList.add("off"), (input.value = description.text), tell(self, sentence, true));
    self.busy = false;
    box.dataset.ready = "true";
    self.wanted ??= input.value;
    return next(self);
  });
  return { again: () => want(self) };
}

// Shows the sentence once, as the model's tokens; the button opens the field for changes.
function changeButton(field, input) {
  field.hidden = true;
  const open = button("Change the sentence", () => {
    field.hidden = !field.hidden;
    open.setAttribute("aria-expanded", String(!field.hidden));
    if (!field.hidden) input.focus();
  }, { class: "change", "aria-expanded": "false" });
  return open;
}

// The address has changed to another sentence.
function follow(self, text) {
  if (text === null || self.input.disabled) return;
  [self.input.value, self.said] = [text, self.store.said()];
  want(self);
}

// Another text has other pairs: cuts belong to the text before.
const fresh = (self) => self.store.set({ cut: (self.cut = ""), everywhere: false });

function want(self) {
  self.wanted = self.input.value;
  if (!self.busy) next(self);
}

// Reads one text at a time; of the texts typed meanwhile, only the last.
async function next(self) {
  self.busy = true;
  while (self.wanted !== null) {
    const text = self.wanted;
    self.wanted = null;
    const result = await self.reader.read(text, editOf(self.store.get()));
    if (result.refused) self.store.set({ cut: self.cut });
    if (result.sentence) tell(self, result.sentence, true);
    else show(self, text, result);
  }
  self.busy = false;
}

function tell(self, sentence, wrong = false) {
  self.state.textContent = sentence;
  self.state.classList.toggle("wrong", wrong);
  self.state.setAttribute("aria-live", wrong ? "polite" : "off"); // measurements at each letter are not read out
}

function show(self, text, result) {
  const { recording, store, root, said, wish } = self;
  const [chosen, first] = [store.get(), !root.dataset.read];
  const { wanted, ...asked } = said;
  const name = wanted?.head ?? nameOf(recording.heads[chosen.head]);
  Object.assign(recording, recordingOf(headerOf(self, text, result), result.array ?? ((array) => array)), { reading: readingOf(result), cut: result.cut ?? null, nexts: result.nexts ?? null });
  self.cut = chosen.cut;
  const side = asked.side ?? chosen.side;
  const named = recording.heads.findIndex((each) => nameOf(each) === name);
  let head = named < 0 ? recording.start : named;
  if (wanted?.word) wish.want(wanted.word);
  let token = wanted?.word ? null : (asked.token ?? (text === chosen.text ? chosen.token : null));
  token ??= wish.tokenIn(recording.heads[head], side);
  if (token === null && !wish.head) head = leadingHead(recording, recording.heads.findIndex((each) => nameOf(each) === self.opened), side);
  else if (token !== null && self.sharpest && !(wanted?.head && named >= 0)) head = sharpestHead(recording, head, token);
  token ??= contentToken(recording.heads[head], side);
  document.title = recording.title;
  const story = first ? { step: chosen.step, playing: chosen.playing } : chosen.playing || self.sharpest ? { step: LAST } : {};
  store.replaced({ head, batch: 0, token, key: text === chosen.text ? chosen.key : null, view: null, ...story, ...asked, head, token, text });
  if ("token" in asked) wish.note();
  [self.said, self.sharpest] = [{}, false]; // the word or head in the address or the example has been shown
  tell(self, result.all === false ? `${grouped(result.count)} tokens, the beginning of the text: the model takes no more` : "");
  root.dataset.read = String(Number(root.dataset.read ?? 0) + 1);
}

// The head of the same layer in which the token has its strongest link to another word.
function sharpestHead({ heads }, index, token) {
  const { number, same } = heads[index];
  const strengthOf = (head) => {
    const { weights } = weightsOf(head, "query", token);
    return weights.reduce((most, weight, j) => (head.keys.tokenizer?.special[j] || (same && j === token) ? most : Math.max(most, weight)), 0);
  };
  return heads.filter((head) => head.number === number).reduce((best, head) => (strengthOf(head) > strengthOf(best) ? head : best)).index;
}

function headerOf({ recording, description, store, first, opened }, text, { header, check }) {
  const shown = text === description.text ? opened : nameOf(recording.heads[store.get().head]);
  const start = header.heads.findIndex(({ call, head }) => nameOf({ number: header.calls[call].number, head }) === shown);
  const { model } = recording;
  const title = shorten(text.slice(0, 4 * TITLE).replaceAll(/\s+/gu, " ").trim(), TITLE);
  const told = { heading: first?.heading ?? "", source: first?.source ?? "", why: [text === description.text ? first?.why[0] : ""], notes: [description.notes], loops: [check ? checkText(check) : ""], words: [0], sides: first?.sides ?? null, compared: false };
  return { title, model, missing: [], passes: 1, start: Math.max(0, start), opened: null, ...header, story: told };
}

const checkText = ({ row, word, number, difference, largest }) =>
  `“${label(word, 24)}” (token ${row}) on its way through layer ${number}, computed again in float64 by plain JavaScript: ${scientific(difference)} from WebAssembly's, where the largest number is ${largest.toFixed(1)}`;

// The results of the checks of this reading, a line each.
function readingOf({ count, time, whole, check, lines }) {
  const milliseconds = (number) => `${number < 10 ? number.toFixed(1) : grouped(number)} ms`;
  return lines ?? [`${grouped(count)} tokens: ${milliseconds(time)} in the model, ${milliseconds(whole)} with the picture`, ...(check ? [`computed again in JavaScript: ${scientific(check.difference)} apart`] : [])];
}
