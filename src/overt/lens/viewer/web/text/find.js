// A search among the tokens: matches are marked, and Enter goes to the next match.
import { grouped } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

// `words()` are the texts as { side, tokens }; `choose(token, side)` goes to a match, `changed()` draws the marks.
export function findBox(words, choose, changed) {
  let [matches, at] = [[], -1];
  const input = make("input", { attributes: { type: "search", placeholder: "find a token", "aria-label": "find a token", spellcheck: "false" } });
  const count = make("span", { className: "quiet", attributes: { "aria-live": "polite" } });
  const key = (side, i) => `${side} ${i}`;
  let known = new Set();
  const search = () => {
    const wanted = input.value.trim().toLowerCase();
    matches = wanted ? words().flatMap(({ side, tokens }) => matchesOf(tokens, wanted).map((i) => [i, side])) : [];
    [at, known] = [-1, new Set(matches.map(([i, side]) => key(side, i)))];
    count.textContent = wanted ? (matches.length ? grouped(matches.length) : "none") : "";
    changed();
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") (input.value = "", search(), input.blur());
    if (event.key !== "Enter" || !matches.length) return;
    at = (at + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
    choose(...matches[at]);
    count.textContent = `${grouped(at + 1)} of ${grouped(matches.length)}`;
  });
  return { box: make("span", { className: "find" }, input, count), found: (side, i) => known.size > 0 && known.has(key(side, i)) };
}

// The tokens that contain the searched text, or that begin a run of tokens with this text.
function matchesOf(tokens, wanted) {
  const letters = Array.from(tokens, (token) => token.toLowerCase().replace(/^(##|Ġ|▁)/u, ""));
  const spelled = wanted.replaceAll(/\s+/gu, "");
  const begins = (i) => {
    let text = "";
    for (let j = i; j < letters.length && text.length < spelled.length; j++) text += letters[j].trim();
    return letters[i] !== "" && spelled.startsWith(letters[i].trim()) && text.startsWith(spelled);
  };
  return letters.flatMap((text, i) => (text.includes(wanted) || begins(i) ? [i] : []));
}
