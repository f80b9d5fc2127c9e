// The texts of a head: at each decile of its largest weight among texts drawn at random, and the strongest of all.
import { shade } from "../../../../drawing/web/colours.js";
import { make } from "../../../../drawing/web/elements.js";
import { number } from "../../../../drawing/web/numbers.js";
import { css, inkOn } from "../../../../drawing/web/theme.js";

// The weights among a text's tokens: a canvas with a cell for each query and key, and what is under the pointer.
function weightMap(name, words, codes) {
  const side = words.length, cell = Math.max(1, Math.floor(480 / side));
  const bytes = Uint8Array.from(atob(codes), (letter) => letter.charCodeAt(0));
  const canvas = make("canvas", { className: "weight-map", attributes: { width: String(side * cell), height: String(side * cell), role: "img", "aria-label": `the weights of ${name} in this text, ${side} queries by ${side} keys` } });
  const says = make("p", { className: "quiet", text: "Rows are queries, columns are keys; point at a cell." });
  const pen = canvas.getContext("2d");
  bytes.forEach((code, at) => {
    pen.fillStyle = css(shade(Math.sqrt(code / 255)));
    pen.fillRect((at % side) * cell, Math.floor(at / side) * cell, cell, cell);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [row, column] = [event.offsetY / canvas.clientHeight, event.offsetX / canvas.clientWidth].map((share) => Math.max(0, Math.min(side - 1, Math.floor(share * side))));
    says.replaceChildren(make("bdi", { text: words[row] }), " → ", make("bdi", { text: words[column] }), ` ${number(bytes[row * side + column] / 255, 2)}`);
  });
  return [canvas, says];
}

// The map is drawn when it is opened first.
function mapOf(name, words, codes) {
  const details = make("details", {}, make("summary", { text: "this text's map of weights" }));
  details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(...weightMap(name, words, codes)));
  return details;
}

function line(data, [head, kind, which, index, weight, query, key, first, words, weights, codes]) {
  const label = kind === "decile" ? `decile ${which} %` : `strongest ${which}`;
  const about = make("div", { className: "quiet" }, make("b", { text: number(weight, 3) }), ` ${label}, text ${index}`);
  if (!words) return make("li", {}, about, make("p", { text: data.texts[index] ?? "" }), make("div", { className: "quiet", text: `token ${query} to token ${key}` }));
  const tokens = words.map((word, position) => {
    const at = first + position, token = make("bdi", { text: word, className: [at === query ? "query" : "", at === key ? "key" : ""].join(" ").trim() });
    if (weights && weights[position] > 0) {
      const colour = shade(Math.sqrt(weights[position] / 255));
      [token.style.backgroundColor, token.style.color] = [css(colour), inkOn(colour)];
    }
    return token;
  });
  return make("li", {}, about, make("p", {}, first > 0 ? "… " : "", ...tokens), ...(codes ? [mapOf(data.heads[head].name, words, codes)] : []));
}

export function texts(data, head) {
  const examples = data.examples.filter(([each]) => each === head);
  const says = "The query is framed and the key underlined: the largest weight of the text on a token that is not special. Blue is the query's whole row, exactly. The strongest text has its map of weights. Deciles are those of texts drawn at random: what the head does as a rule, not at its best.";
  const list = (kind) => make("ol", { className: "examples" }, ...examples.filter(([, each]) => each === kind).map((each) => line(data, each)));
  return [make("p", { className: "quiet", text: says }), make("h3", { text: "Strongest texts" }), list("rank"), make("h3", { text: "Texts at each decile" }), list("decile")];
}
