// The source words to which each written word attends: a row for each written word, a column for each word read.
import { label, numberedLabels } from "../../../lens/viewer/web/data/labels.js";
import { number } from "../../../drawing/web/numbers.js";
import { make } from "../../../drawing/web/elements.js";

const [COLUMNS, ROWS] = [64, 96]; // drawn columns and rows

export function createAlignment(name) {
  const grid = make("div", { className: "alignment", attributes: { role: "img", "aria-label": name } });
  const rest = make("p", { className: "quiet" });
  let [source, rows] = [[], 0];
  return {
    box: make("div", {}, grid, rest),
    begin(words) {
      [source, rows] = [Array.from({ length: Math.min(COLUMNS, words.length) }, (_, j) => numberedLabels(words)(j)), 0];
      grid.style.gridTemplateColumns = `max-content repeat(${source.length}, minmax(5px, 30px))`;
      grid.replaceChildren(make("span"), ...source.map((word) => make("span", { className: "column", text: word })));
      rest.textContent = words.length > COLUMNS ? `The first ${COLUMNS} of ${words.length} tokens are shown.` : "";
    },
    add(word, weights) {
      if ((rows += 1) > ROWS) return void (rest.textContent = `The first ${ROWS} tokens that were written are shown.`);
      const shown = label(word, 18);
      grid.append(make("span", { className: "row", text: shown }), ...source.map((from, j) => {
        const cell = make("i", { attributes: { title: `${shown} → ${from}: ${number(weights[j], 3)}` } });
        cell.style.setProperty("--share", `${Math.round(100 * Math.min(1, weights[j]))}%`);
        return cell;
      }));
    },
  };
}
