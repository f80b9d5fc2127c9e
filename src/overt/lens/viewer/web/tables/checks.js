// The facts about the picture: the residual and its rounding bound, the model as run or as configured, weights and their contributions,
// the value of equal weights, and the limits of a picture of weights.
import { allowedCount, weightsOf, strongestOf } from "../data/rows.js";
import { number, scientific } from "../../../../drawing/web/numbers.js";
import { queryOf } from "../steps/steps.js";
import { ARCS } from "../text/text.js";
import { grouped, label, visible } from "../data/labels.js";
import { gauge, make } from "../../../../drawing/web/elements.js";

export const checksPanel = {
  name: "checks",
  title: "Checks",
  mount(root, recording, store) {
    root.classList.add("honest");
    const draw = () => root.isConnected && root.clientWidth && drawChecks(root, recording, store.get());
    store.subscribe((state, changed) => {
      if (["head", "batch", "side", "token", "panel"].some((name) => changed.has(name))) draw();
    });
    new ResizeObserver(draw).observe(root);
    draw();
  },
};

function drawChecks(root, recording, state) {
  const head = recording.heads[state.head];
  const query = queryOf(head, state);
  root.replaceChildren(
    section("Recomputed, compared with the model's output", ...residualLines(recording, head)),
    ...(recording.reading ? [section("This reading", list(recording.reading))] : []),
    section("As run", list(runLines(head))),
    ...(head.signed
      ? [section("What the layer does before and after the mixing", list(aroundLines(head))), section("Signed weights", ...signedLines(head, query), make("p", { text: sumText(head, state) }))]
      : [section("Compared with equal weights", ...baselineLines(head, query), make("p", { text: sumText(head, state) })), section("Weights compared with what they add", ...normedLines(head, query))]),
    section("What this picture does not show", list(unsaidLines(recording, head))),
    ...(recording.missing.length ? [section("Not recorded", list(recording.missing.map(([name, why]) => `${visible(name)}: ${visible(why)}`)))] : []),
  );
}

const section = (title, ...children) => make("section", {}, make("h2", { text: title }), ...children);
const list = (lines) => make("ul", {}, ...lines.map((text) => make("li", { text })));

function residualLines(recording, head) {
  const line = (name, { difference, bound, holds }) => {
    if (Number.isNaN(difference)) return make("p", { className: "check", text: `${name}: not compared${head.note ? visible(head.note) : ""}` });
    const said = `${name}: ${scientific(difference)} ${holds ? "✓ within" : "✗ beyond"} the rounding bound ${scientific(bound)}`;
    return make("p", { className: `check ${holds ? "holds" : "differs"}`, text: said });
  };
  const thisCall = { difference: head.residual, bound: head.bound, holds: head.holds };
  const loop = recording.story?.loops[head.batch];
  return [line(`this call (${head.name.split("H")[0]})`, thisCall), line("all calls", recording.verified), ...(loop ? [make("p", { className: "check", text: loop })] : [])];
}

function runLines(head) {
  const kind = head.signed ? [`A linear token mixer (${visible(head.call.mixer)}): each position writes into a state, and the weights of a row are computed by walking back. They are signed and do not sum to one.`] : [];
  const lines = [...kind, `Recorded where the model called ${visible(head.call.source)}, in ${visible(head.layer)}: the page shows what ran.`, ...head.notes.map(visible)];
  if (!head.notes.length && !head.signed) lines.push("No attention setting of the model's configuration was found unused.");
  if (!head.exact) lines.push("The recording holds summaries: of each query only the strongest weights are known.");
  if (head.stored) lines.push("The recording holds the weights themselves: this page does not recompute them.");
  return lines;
}

// The layer's operations before and after the mixing, which the weights do not show.
function aroundLines(head) {
  const { around } = head.call;
  return around.length ? around.map(visible) : ["Nothing that mixes tokens or scales outputs was found before or after it."];
}

function signedLines(head, query) {
  const name = make("bdi", { text: `“${label(head.queries[query])}”` });
  const { weights, whole } = weightsOf(head, "query", query);
  const [size, sum] = [weights.reduce((total, each) => total + Math.abs(each), 0), weights.reduce((total, each) => total + each, 0)];
  const negative = weights.reduce((count, each) => count + (each < 0), 0);
  const largest = weights[strongestOf(weights, 1)[0]] ?? 0;
  const known = whole ? "" : " Only the recorded strongest weights are known.";
  const said = ` has ${grouped(negative)} negative weights of ${grouped(weights.length)}; the largest in size is ${number(largest, 3)}. The sizes add up to ${number(size, 3)}, the weights to ${number(sum, 3)}: they are coefficients of the values, and need not sum to 1.${known}`;
  return [make("p", {}, name, said), make("p", { text: `Entropy of |W| ÷ Σ |W|: ${number(head.entropies[query])} of at most ${number(Math.log(Math.max(1, weights.length)))} nats.` })];
}

function baselineLines(head, query) {
  const name = make("bdi", { text: `“${label(head.queries[query])}”` });
  const count = allowedCount(head, query);
  if (!count) return [make("p", {}, name, " may attend to nothing: its weights are zeros.")];
  const { weights } = weightsOf(head, "query", query);
  const maximum = Math.abs(weights[strongestOf(weights, 1)[0]] ?? 0);
  const description = ` may attend to ${counted(count, "key", "keys")}. Equal weights would be ${share(1 / count)} each; its largest is ${share(maximum)}, ${number(maximum * count, maximum * count < 10 ? 1 : 0)} times that.`;
  const entropy = head.entropies[query];
  const spread = `Its weights are spread out like ${Math.exp(entropy) < 10 ? number(Math.exp(entropy), 1) : grouped(Math.exp(entropy))} equal ones: entropy ${number(entropy)} of at most ${number(Math.log(count))} nats.`;
  return [make("p", {}, name, description), make("p", { text: spread })];
}

// The sum of the chosen token's weights.
function sumText(head, { side, token }) {
  const { weights, whole } = weightsOf(head, side, token);
  const total = (sizeOf) => number(weights.reduce((sum, weight) => sum + sizeOf(weight), 0), 3);
  const many = `${side === "query" ? counted(weights.length, "key", "keys") : counted(weights.length, "query", "queries")}${whole ? "" : ", of the recorded strongest links only"}`;
  const way = side === "query" ? "of" : "from";
  return head.signed ? `Signed weights ${way} ${many}: their sizes add up to ${total(Math.abs)}, they themselves to ${total(Number)}.` : `Weights ${way} ${many}, together ${total(Number)}.`;
}

const counted = (count, one, many) => `${grouped(count)} ${count === 1 ? one : many}`;

const share = (weight) => (weight > 0 && weight < 5e-4 ? scientific(weight) : number(weight, 3));

// The strongest keys by weight and by contribution, ‖α·v·W_O‖, both as shares of their sums.
function normedLines(head, query) {
  const { outNorm } = head;
  if (!outNorm) return [make("p", { className: "quiet", text: `‖α·v·W_O‖ is not known: ${visible(head.outWhy)}.` })];
  const { weights, whole } = weightsOf(head, "query", query);
  if (!whole) return [make("p", { className: "quiet", text: "‖α·v·W_O‖ needs every weight of the query." })];
  const added = weights.map((weight, j) => Math.abs(weight) * outNorm[j]);
  const [all, sum] = [weights, added].map((values) => values.reduce((total, value) => total + Math.abs(value), 0) || 1);
  const shown = [...new Set([...strongestOf(weights, 5), ...strongestOf(added, 5)])];
  const rows = shown.map((j) => make("tr", { attributes: { "data-key": String(j) } },
    make("th", { attributes: { scope: "row" } }, make("bdi", { text: label(head.keys[j], 16) })),
    make("td", { text: number(outNorm[j]) }), shareCell(Math.abs(weights[j]) / all, "alpha"), shareCell(added[j] / sum, "normed")));
  const heading = ["key", "‖v·W_O‖", "share of α", "share of ‖α·v·W_O‖"].map((text) => make("th", { text, attributes: { scope: "col" } }));
  const caption = make("caption", { text: "The strongest keys of the chosen token, by weight and by the length of what they add" });
  return [make("table", { className: "normed" }, caption, make("thead", {}, make("tr", {}, ...heading)), make("tbody", {}, ...rows)),
    make("p", { className: "quiet", text: "A large weight on a short value vector adds little (Kobayashi et al. 2020)." })];
}

function shareCell(value, kind) {
  const cell = make("td", { className: "share" }, make("span", { text: number(value, 3) }), gauge(value, 1));
  cell.querySelector("b").classList.add(kind);
  return cell;
}

function unsaidLines(recording, head) {
  const layers = new Set(recording.calls.map((call) => call.number)).size;
  const lines = [
    head.signed ? "A weight says with which sign and size the value of a position is added. It is not the reason for the model's output." : "A weight says from which tokens values are taken. It is not the reason for the model's output.",
    head.signed ? "Large weights of opposite signs may cancel." : "Other weights may give the same output: these weights are not the only possible explanation.",
    `This is one head of ${grouped(head.call.total)} in one of ${grouped(layers)} recorded calls; the other heads and the residual path may outweigh it.`,
  ];
  if (head.number > 0) lines.push(`After the first layer a position holds a mixture of tokens: to ${head.signed ? "read" : "attend to"} a position is not to ${head.signed ? "read" : "attend to"} its word.`);
  if (["first token", "separator"].includes(head.role) && !head.signed) lines.push("Weight on the first token or a separator often means that the query attends to nothing.");
  if (head.keyCount > ARCS) lines.push(`Arcs go to the ${ARCS} strongest of ${grouped(head.keyCount)} keys; the table of links has more.`);
  if (head.keyCount > 128) lines.push("Zoomed out, a cell shows the largest or the mean of many weights; the text and the table show single weights.");
  return lines;
}
