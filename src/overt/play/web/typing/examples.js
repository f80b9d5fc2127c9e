// Sentences to begin with: what each is called, its text, the word to look from, and what to look for; `head` where one head of the bundled model shows it.
import { button, make } from "../../../drawing/web/elements.js";

const TIRED = "The animal didn't cross the street because it was too tired.";
const WIDE = "The animal didn't cross the street because it was too wide.";

export const EXAMPLES = [
  { name: "too tired", text: TIRED, word: "it", look: "Who was tired? Follow the thickest arc of “it”." },
  { name: "too wide", text: WIDE, word: "it", look: "One word has changed. Does “it” look at the street, or still at the animal? Try other heads, too." },
  { name: "a trophy", text: "The trophy doesn't fit in the suitcase because it is too small.", word: "it", look: "What is too small? See which of the two “it” looks at, and in which heads." },
  { name: "two banks", text: "A bank lends money, and a river has a bank, too.", word: "bank", look: "Two banks, one spelling. Which words does each look at? Click the other one." },
  { name: "a list", text: "She bought apples, pears, plums and a melon at the market.", word: "apples", look: "In a list, a word looks at the other things of the list. Which head shows it best?" },
  { name: "a question", text: "Who told the two brothers that their train was late?", word: "their", look: "Whose train? Follow “their”, in several heads." },
];

export const TRANSLATED = [
  { name: "a table", text: "The table is new and it is beautiful.", word: "La", head: "2.3", look: "A table is “la” in French, never “le”. Cut the arc from “La” to “table”, press “in all heads”, and see how many words change." },
  { name: "too tired", text: TIRED, word: "rue", look: "Each French word reads English ones. Cut the arc of “rue”, press “in all heads”, and see what is written then." },
  { name: "a question", text: "Where did you buy these shoes?", word: "chaussures", look: "French has another order. Click each word, and see where it reads." },
  { name: "she", text: "She was tired because she worked all day.", word: "elle", look: "“elle” reads “she”. Cut that arc, press “in all heads”: who worked all day then?" },
  { name: "a list", text: "I bought bread, milk and two apples.", word: "lait", look: "In a list, each word should read its own." },
];

// A row of buttons; `read(example)` copies an example into the field.
export function examplesRow(examples, read) {
  if (!examples.length) return [];
  return [make("div", { className: "examples", attributes: { role: "group", "aria-label": "Sentences to try" } }, make("span", { className: "quiet", text: "or try" }), ...examples.map((example) => button(example.name, () => read(example), { title: example.text })))];
}
