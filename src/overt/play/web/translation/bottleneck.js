// Lesson 2: sentences of increasing length through one vector, and with attention.
import { barred, card, latest, scope, table } from "../lessons/parts.js";
import { drawStrip, largestOf } from "../../../lens/viewer/web/steps/bars.js";
import { stripReader } from "../../../lens/viewer/web/steps/strips.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";
import { createAlignment } from "./alignment.js";

const TITLES = { one: "Through one vector", attention: "With attention" };
const SAYS = { one: "The encoder's last state is all that the decoder gets of the sentence:", attention: "Each word that is written has a context of its own, from all states of the encoder:" };
const SENTENCES = ["I have a dog.", "My mother is a teacher.", "The train is late.", "Do you want some tea?"];
const SHOWS = "Two translators with recurrent layers of 128 numbers in each direction, trained on the same sentences for as long, alone and joined by two, three and four; one decoder reads the encoder's last state alone, the other one attends to all of them. Both run here, word by word.";
const NOT = "They are small and were trained for minutes: their mistakes are many, and larger models of both kinds make fewer. What differs between both is the attention, and what it changes with the length.";

// `curves` are the tests' BLEU by length, by model name.
export const bottleneckPanel = (reader, curves, listeners) => ({
  name: "bottleneck",
  title: "The bottleneck",
  lesson: 2,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const models = Object.fromEntries(Object.keys(curves).map((name) => [name, modelCard(name)]));
    const said = make("p", { className: "quiet", attributes: { "aria-live": "polite" }, text: "The model is loading." });
    const longer = make("div", { className: "toggles" }, ...SENTENCES.map((_, i) => button(`${i + 1} sentence${i ? "s" : ""}`, () => store.set({ text: SENTENCES.slice(0, i + 1).join(" ") }))));
    const begin = card("A longer and longer sentence", make("p", { className: "says", text: "One of these sentences passes through one vector. Let it grow: words are lost or made up, and with attention they stay. Or type your own above." }), longer, said);
    const curve = card("How good they are, by length");
    root.append(make("div", {}, begin, models.one.box, curve), make("div", {}, models.attention.box, scope(SHOWS, NOT)));
    drawCurve(curve, curves, null);
    listeners.push(({ pair, begin: words, word, weights, text }) => pair in models && models[pair].step(words, word, weights, text));
    const draw = latest(root, async () => {
      const { text } = store.get();
      const { results, sentence } = await reader.changed({ text, pair: true });
      said.textContent = sentence ?? "";
      if (!results) return;
      results.forEach((each) => models[each.name].end(each));
      drawCurve(curve, curves, text.split(/\s+/u).filter(Boolean).length);
    });
    store.subscribe((state, changed) => state.panel === "bottleneck" && state.text !== null && ["recording", "panel", "theme"].some((name) => changed.has(name)) && draw());
    reader.ready.then((sentence) => sentence && (said.textContent = sentence));
  },
});

function modelCard(name) {
  const output = make("p", { className: "translation", attributes: { dir: "auto", "data-model": name } });
  const [time, strip, alignment] = [make("p", { className: "quiet" }), make("canvas", { className: "strip", attributes: { role: "img", "aria-label": "the vector", tabindex: "0" } }), name === "one" ? null : createAlignment("each written word's attention to the source")];
  const drawn = alignment ? alignment.box : make("p", { className: "query" }, strip);
  const box = card(TITLES[name], output, make("p", { className: "quiet", text: SAYS[name] }), drawn, time);
  const reader = alignment ? null : stripReader(box);
  if (reader) drawn.after(reader.line);
  return {
    box,
    step(words, word, weights, text) {
      if (text !== undefined) output.textContent = text;
      if (words) alignment?.begin(words);
      else if (weights) alignment?.add(word, weights);
    },
    end(result) {
      output.textContent = result.output;
      if (result.vector) {
        drawStrip(strip, result.vector, largestOf([result.vector]));
        strip.strip = { values: result.vector, name: "the vector" };
        reader.show(largestOf([result.vector]), ".");
      }
      time.textContent = `${result.count} tokens read${result.vector ? ` into ${result.vector.length} numbers` : ""}, ${result.words} written, ${number(result.time / result.words, 1)} ms a token`;
    },
  };
}

function drawCurve(box, curves, words) {
  const names = Object.keys(curves);
  const lengths = curves[names[0]];
  const largest = Math.max(...names.flatMap((name) => curves[name].map(({ bleu }) => bleu)));
  const rows = lengths.map(({ shortest, longest }, i) => [`${shortest} to ${longest}`, ...names.map((name) => barred(number(curves[name][i].bleu, 1), curves[name][i].bleu / largest))]);
  const found = table("BLEU against the number of words", ["words", ...names.map((name) => TITLES[name].toLowerCase())], rows);
  const at = words === null ? -1 : lengths.findIndex(({ shortest, longest }) => words >= shortest && words <= longest);
  found.querySelectorAll("tbody tr")[at]?.classList.add("chosen");
  const of = lengths.reduce((sum, each) => sum + each.rows, 0);
  box.replaceChildren(box.firstChild, found, make("p", { className: "quiet", text: `BLEU of ${of} texts that were not trained on, each an eighth of them by length${at < 0 ? "" : "; the marked row has the length of your sentence"}.` }));
}
