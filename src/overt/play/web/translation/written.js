// The translator's output: the line below the sentence, and a panel with each word's attention to the source, drawn as it arrives.
import { card, choice, choices, followSettings, scope } from "../lessons/parts.js";
import { weightsOf } from "../../../lens/viewer/web/data/rows.js";
import { make } from "../../../drawing/web/elements.js";
import { createAlignment } from "./alignment.js";

export const SEARCH = choice("search", ["greedy", "beam"]);

const SEARCHES = { greedy: "greedy", beam: "beam of 5" };
const SAYS = { greedy: "The most probable next word is taken, then the next one: words appear as they are written.", beam: "The five most probable texts are kept and extended together; the best one is known at the end." };
const SHOWS = "Each row is a word that the decoder writes: its query meets the keys of the source in the head that is chosen. The model runs here, word by word, with what it has written in a cache.";
const NOT = "A weight says what was read while a word was written, not why it was chosen: a head may look at the end of the source where it has nothing to add.";

// The line with the translation, updated with each word.
export function startOutput(root, recording, listeners) {
  const line = make("p", { className: "translation", attributes: { "aria-live": "polite", dir: "auto" } });
  const { queries } = recording.heads[recording.start];
  line.textContent = queries.slice(0, -1).map((word, i) => (queries.tokenizer?.spaced[i] && i ? ` ${word}` : word)).join("");
  root.querySelector(".typing textarea").after(line);
  listeners.push(({ pair, text }) => pair === undefined && text !== undefined && (line.textContent = text));
}

export const writtenPanel = (listeners) => ({
  name: "written",
  title: "Word by word",
  mount(root, recording, store) {
    root.classList.add("lesson");
    const alignment = createAlignment("each written word's attention to the source");
    const [title, says] = [make("h2"), make("p", { className: "says" })];
    const settings = card("How it is written", choices(store, "search", SEARCHES, "how words are chosen"), says);
    root.append(make("div", {}, make("section", { className: "card" }, title, alignment.box)), make("div", {}, settings, scope(SHOWS, NOT)));
    const draw = () => {
      const head = recording.heads[store.get().head];
      title.textContent = `Attention to the source in ${head.name}`;
      alignment.begin(head.keys);
      head.queries.forEach((word, i) => alignment.add(word, weightsOf(head, "query", i).weights));
    };
    listeners.push(({ pair, begin, word, weights }) => {
      if (pair !== undefined || store.get().panel !== "written") return;
      if (begin) alignment.begin(begin);
      else if (word !== undefined) alignment.add(word, weights[recording.heads[store.get().head].index]);
    });
    store.subscribe((state, changed) => {
      if (state.panel !== "written") return;
      followSettings(settings, state);
      says.textContent = SAYS[state.search];
      if (["head", "recording", "panel", "theme"].some((name) => changed.has(name))) draw();
    });
    followSettings(settings, store.get());
    says.textContent = SAYS[store.get().search];
    draw();
  },
});
