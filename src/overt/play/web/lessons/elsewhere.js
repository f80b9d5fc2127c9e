// Lesson 2 where the page has no translator: what it shows, and which page has it.
import { card } from "./parts.js";
import { make } from "../../../drawing/web/elements.js";

const SHOWS = "Two translators read the sentence: one hands it on as a single vector of 256 numbers, the other attends to all states of its encoder. Both write it in French side by side as you type, with BLEU by length beside them.";

export const bottleneckElsewhere = {
  name: "bottleneck",
  title: "The bottleneck",
  lesson: 2,
  mount(root) {
    root.classList.add("lesson");
    root.append(card("In the translator's page", make("p", { className: "says", text: SHOWS }), make("p", { className: "quiet" }, "This page holds an encoder, which writes no words. The page with the translators is written by ", make("code", { text: "overt play translator" }), ".")));
  },
};
