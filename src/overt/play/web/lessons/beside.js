// The chosen word in another sentence: the heads that give half of its weight to a word here, and their weights there.
import { barred, card, latest, table } from "./parts.js";
import { placeIn } from "../typing/chosen_word.js";
import { recordingOf } from "../../../lens/viewer/web/data/data.js";
import { weightsOf } from "../../../lens/viewer/web/data/rows.js";
import { label, numberedLabels } from "../../../lens/viewer/web/data/labels.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";

const [HALF, SHOWN, LETTERS] = [0.5, 8, 500];
const SAYS = "One sentence proves little: change a word and read on. A head that finds the right word in one sentence may find the same one where it is wrong.";

export const BESIDE = { name: "beside", initial: "The animal didn't cross the street because it was too wide.", read: (text) => text.slice(0, LETTERS), write: (text) => text };

// The card, and the function that draws it.
export function besideCard({ recording, store, reader }) {
  const input = make("textarea", { attributes: { id: "beside", rows: "2", spellcheck: "false", dir: "auto", maxlength: String(LETTERS) }, on: { input: () => store.set({ beside: input.value }) } });
  const result = make("div");
  const box = card("The same word in another sentence", make("p", { className: "says", text: SAYS }), make("label", { className: "quiet", text: "The other sentence:", attributes: { for: "beside" } }), input, result);
  let other = { text: null, recording: null };
  const draw = latest(box, async () => {
    const { beside, text } = store.get();
    if (document.activeElement !== input) input.value = beside;
    if (other.text !== beside) {
      const read = await reader.read(beside);
      if (read.sentence) return void (result.textContent = read.sentence);
      other = { text: beside, recording: recordingOf({ title: "", model: "", missing: [], passes: 1, start: 0, opened: null, story: null, ...read.header }, (array) => array) };
    }
    if (store.get().text === text) result.replaceChildren(...compared(recording, other.recording, store));
    return undefined;
  });
  return [box, draw];
}

// For each head, the other word with a word's largest weight.
function strongestWords(recording, token) {
  return recording.heads.map((head) => {
    const { weights } = weightsOf(head, "query", token);
    const { special } = head.keys.tokenizer;
    const plain = Array.from(weights, (weight, j) => (j === token || special[j] ? 0 : weight));
    const key = plain.reduce((best, weight, j) => (weight > plain[best] ? j : best), 0);
    return { head, key, weight: plain[key] };
  });
}

function compared(recording, other, store) {
  const { token, head: chosen } = store.get();
  const [words, others] = [recording, other].map((each) => each.heads[0].queries);
  const at = placeIn(words, others, token);
  const [here, there] = [strongestWords(recording, token), strongestWords(other, at)];
  const count = (found, word, list) => found.filter(({ key, weight }) => weight >= HALF && list[key] === word).length;
  const [word, goal] = [label(words[token], 24), words[here[chosen].key]];
  const name = [words, others].map((list) => numberedLabels(list));
  const order = Array.from(here.keys()).filter((h) => Math.max(here[h].weight, there[h].weight) >= HALF).sort((a, b) => Math.max(here[b].weight, there[b].weight) - Math.max(here[a].weight, there[a].weight));
  const cell = ({ key, weight }, side) => make("span", {}, make("bdi", { text: name[side](key) }), barred(number(weight, 3), weight));
  const rows = order.slice(0, SHOWN).map((h) => [button(here[h].head.name, () => store.set({ head: h })), cell(here[h], 0), cell(there[h], 1)]);
  const changed = words[token] === others[at] ? "" : ` There, “${label(others[at], 24)}” stands in its place.`;
  return [
    make("p", { attributes: { "data-beside": "" }, text: `“${word}” gives “${label(goal, 24)}” half of its weight and more in ${count(here, goal, words)} of ${here.length} heads; in the other sentence in ${count(there, goal, others)}.${changed}` }),
    rows.length ? table("heads that give a word half of the weight in one of the sentences", ["head", "here", "there"], rows) : make("p", { className: "quiet", text: "No head gives another word half of its weight, in either sentence." }),
  ];
}
