import { recordingOf } from "../../lens/viewer/web/data/data.js";
import { grouped, label, shorten, visible } from "../../lens/viewer/web/data/labels.js";
import { scientific } from "../../drawing/web/numbers.js";
import { make } from "../../drawing/web/elements.js";

// The sentence that can be changed: what is typed goes to the reader, always the latest, and what comes back becomes the page's recording.

const TITLE = 72; // letters
const ADDRESSED = 2000; // letters: a longer text is no part of the address

// The sentence in the page's address; null until the model has read one.
export const SENTENCE = { name: "text", initial: null, read: (text) => text.slice(0, ADDRESSED), write: (text) => (text.length > ADDRESSED ? "" : text) };

// `reader` is { ready, progress, read } as worker_reader.js has it; `description` is { text, label, notes }. Gives { again }, which reads the sentence once
// more.
export function startTyping(root, recording, store, description, reader) {
  const input = make("textarea", { attributes: { id: "sentence", rows: "2", spellcheck: "false", autocomplete: "off", dir: "auto" } });
  const state = make("p", { className: "state", attributes: { "aria-live": "polite" } });
  input.value = store.get().text ?? description.text;
  const box = make("section", { className: "typing" }, make("label", { text: description.label, attributes: { for: "sentence" } }), input, state);
  root.querySelector(".bar").after(box);
  const self = { root, recording, store, first: recording.story, description, reader, input, state, wanted: null, busy: true, said: store.said() };
  reader.progress = (share) => (state.textContent = `The model is loading: ${Math.round(100 * share)} %`);
  state.textContent = "The model is loading";
  input.addEventListener("input", () => want(self));
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

// The address has become another one, with another sentence.
function follow(self, text) {
  if (text === null || self.input.disabled) return;
  [self.input.value, self.said] = [text, self.store.said()];
  want(self);
}

function want(self) {
  self.wanted = self.input.value;
  if (!self.busy) next(self);
}

// One text at a time; of those that were typed meanwhile, the last.
async function next(self) {
  self.busy = true;
  while (self.wanted !== null) {
    const text = self.wanted;
    self.wanted = null;
    const result = await self.reader.read(text);
    if (result.sentence) tell(self, result.sentence, true);
    else show(self, text, result);
  }
  self.busy = false;
}

function tell(self, sentence, wrong = false) {
  self.state.textContent = sentence;
  self.state.classList.toggle("wrong", wrong);
  self.state.setAttribute("aria-live", wrong ? "polite" : "off"); // what is measured at each letter is not read out
}

function show(self, text, result) {
  const { recording, store, root, said } = self;
  const before = recording.heads[store.get().head];
  const [words, chosen] = [before.queries, store.get()];
  const token = said.token ?? placeIn(words, result.header.words[0], chosen.token);
  Object.assign(recording, recordingOf(headerOf(self, text, result, token), result.array ?? ((array) => array)));
  const head = recording.heads[chosen.head] ? chosen.head : recording.start;
  document.title = recording.title;
  store.replaced({ head, batch: 0, token, key: null, view: null, ...said, text });
  self.said = {}; // what the address asked for is there
  tell(self, saidOf(result));
  root.dataset.read = String(Number(root.dataset.read ?? 0) + 1);
}

function headerOf({ recording, description, store, first }, text, { header, check }, token) {
  const { model } = recording;
  const title = shorten(text.slice(0, 4 * TITLE).replaceAll(/\s+/gu, " ").trim(), TITLE);
  const told = { heading: first?.heading ?? "", source: first?.source ?? "", why: [text === description.text ? first?.why[0] : ""], notes: [description.notes], loops: [check ? checkText(check) : ""], words: [token], sides: first?.sides ?? null, compared: false };
  return { title, model, missing: [], passes: 1, start: text === description.text ? recording.start : Math.min(store.get().head, header.heads.length - 1), opened: null, ...header, story: told };
}

const checkText = ({ row, word, number, difference, largest }) =>
  `“${label(word, 24)}” (token ${row}) on its way through layer ${number}, computed again in float64 by plain JavaScript: ${scientific(difference)} from WebAssembly's, where the largest number is ${largest.toFixed(1)}`;

function saidOf({ count, all, time, whole, check, said }) {
  if (said) return said;
  const rest = all ? "" : ", the beginning of the text: the model takes no more";
  return `${grouped(count)} tokens${rest} · model ${time < 10 ? time.toFixed(1) : grouped(time)} ms, picture ${grouped(whole)} ms${check ? ` · computed again in JavaScript: ${scientific(check.difference)} apart` : ""}`;
}

// Where a token stands in the changed sentence: the same place before what changed, as far from the end behind it; within it the nearest word that
// is the same.
export function placeIn(before, after, token) {
  let [start, end] = [0, 0];
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start++;
  while (end < most - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  if (token < start) return token;
  if (token >= before.length - end) return token + after.length - before.length;
  const same = after.flatMap((word, i) => (word === before[token] ? [i] : []));
  const away = (i) => Math.abs(i - token);
  return same.length ? same.reduce((best, i) => (away(i) < away(best) ? i : best)) : Math.min(token, after.length - 1);
}
