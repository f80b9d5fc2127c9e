// The texts of a head: at each decile of its largest weight among texts drawn at random, and the strongest of all.
import { shade } from "../../../../drawing/web/colours.js";
import { make } from "../../../../drawing/web/elements.js";
import { number } from "../../../../drawing/web/numbers.js";
import { css, inkOn } from "../../../../drawing/web/theme.js";

function line(data, [, kind, which, index, weight, query, key, first, words, weights]) {
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
  return make("li", {}, about, make("p", {}, first > 0 ? "… " : "", ...tokens));
}

export function texts(data, head) {
  const examples = data.examples.filter(([each]) => each === head);
  const says = "The query is framed and the key underlined: the largest weight of the text on a token that is not special. Blue is the query's whole row, exactly. Deciles are those of texts drawn at random: what the head does as a rule, not at its best.";
  const list = (kind) => make("ol", { className: "examples" }, ...examples.filter(([, each]) => each === kind).map((each) => line(data, each)));
  return [make("p", { className: "quiet", text: says }), list("decile"), list("rank")];
}
