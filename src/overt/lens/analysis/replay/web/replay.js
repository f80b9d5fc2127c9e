// Replayed answers: mass and knock-out of each span side by side, for the whole answer and for each of its tokens.
import { shade } from "../../../../drawing/web/colours.js";
import { gauge, make } from "../../../../drawing/web/elements.js";
import { number, scientific } from "../../../../drawing/web/numbers.js";
import { css, inkOn } from "../../../../drawing/web/theme.js";

const data = JSON.parse(document.getElementById("data").textContent);
const state = { replay: 0, span: 0 };
const parts = { spans: make("section", { className: "card" }), answer: make("section", { className: "card" }), about: make("div") };

const largest = (values) => Math.max(1e-9, ...values.map((value) => Math.abs(value ?? 0)));
const text = (value, digits = 3) => (value === null ? "—" : number(value, digits));

function words(replay, values, most) {
  const nodes = replay.answer.map((word, at) => {
    const value = values[at] ?? 0, colour = shade(Math.sign(value) * Math.sqrt(Math.abs(value) / most));
    const node = make("bdi", { text: word, attributes: { title: text(value, 4) } });
    [node.style.backgroundColor, node.style.color] = [css(colour), inkOn(colour)];
    return node;
  });
  return make("p", { className: "words" }, ...nodes);
}

function table(names, rows, className = "") {
  const head = make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { text: name }))));
  return make("div", { className: "scrolls", attributes: { tabindex: "0" } }, make("table", { className }, head, make("tbody", {}, ...rows)));
}

function spanRow(replay, span, index) {
  const most = { mass: largest(replay.spans.map((each) => each.mass)), change: largest(replay.spans.map((each) => each.change)) };
  const choose = () => ((state.span = index), draw());
  const name = make("th", {}, make("button", { text: span.name, attributes: { type: "button", "aria-pressed": String(index === state.span) } }));
  const cells = [make("td", { text: String(span.tokens) }), make("td", { text: text(span.mass) }, gauge(span.mass, most.mass)), make("td", { text: text(span.change) }, gauge(span.change, most.change)), make("td", { text: span.strongest_head })];
  return make("tr", { className: index === state.span ? "chosen" : "", on: { click: choose } }, name, ...cells);
}

function drawSpans(replay) {
  if (!replay.spans.length) return parts.spans.replaceChildren(make("h2", { text: "Not explained" }), make("p", { className: "bad", text: replay.refused }));
  const says = "Mass is the weight that the tokens of the answer give to a span, the mean over all heads. Change is what the answer's log probability loses where the span's keys are masked for all other tokens, in nats. Mass is not use: read both.";
  const names = ["span", "tokens", "mass", "change by knock-out", "head with the most mass"];
  parts.spans.replaceChildren(make("h2", { text: "Spans" }), make("p", { className: "quiet", text: says }), table(names, replay.spans.map((span, index) => spanRow(replay, span, index))));
}

function drawAnswer(replay) {
  const span = replay.spans[state.span], { server, replayed } = replay.check;
  // One scale for all spans: a span that nothing reads stays pale.
  const most = (name) => largest(replay.spans.flatMap((each) => each[name]));
  const shown = !span ? [] : [
    make("p", { className: "quiet", text: `Mass on “${span.name}”, at most ${text(Math.max(...span.mass_by_token))}` }), words(replay, span.mass_by_token, most("mass_by_token")),
    make("p", { className: "quiet", text: `Change without it, at most ${text(largest(span.change_by_token))} nats; vermillion: likelier without` }), words(replay, span.change_by_token, most("change_by_token")),
  ];
  const rows = replay.answer.map((word, at) => {
    const difference = server[at] === null || replayed[at] === null ? "—" : scientific(replayed[at] - server[at]);
    const cells = [text(server[at], 4), text(replayed[at], 4), difference, ...(span ? [text(span.mass_by_token[at]), text(span.change_by_token[at])] : [])];
    return make("tr", {}, make("th", {}, make("bdi", { text: word })), ...cells.map((cell) => make("td", { text: cell })));
  });
  const names = ["token", "server", "replayed", "difference", ...(span ? ["mass", "change"] : [])];
  parts.answer.replaceChildren(make("h2", { text: span ? `The answer and “${span.name}”` : "The answer" }), ...shown, table(names, rows, "tokens"));
}

function draw() {
  const replay = data.replays[state.replay];
  if (!replay) return;
  state.span = Math.min(state.span, Math.max(0, replay.spans.length - 1));
  const about = `${replay.dialect}, line ${replay.line}: ${replay.prompt_tokens} tokens of prompt, ${replay.answer.length} of the answer`;
  const notes = replay.notes.map((note) => make("p", { className: "quiet", text: note }));
  parts.about.replaceChildren(make("h2", { text: replay.name || `line ${replay.line}` }), make("p", { className: "quiet", text: about }), make("p", { className: replay.check.holds ? "quiet" : "bad", text: replay.verdict }), ...notes);
  drawSpans(replay);
  drawAnswer(replay);
}

function mount() {
  const names = data.replays.map(({ name }) => name);
  const called = ({ name, line }) => (!name ? `line ${line}` : names.indexOf(name) === names.lastIndexOf(name) ? name : `${name}, line ${line}`);
  const options = data.replays.map((replay, index) => make("option", { text: `${called(replay)}${replay.refused ? " (not explained)" : ""}`, attributes: { value: String(index) } }));
  const select = make("select", { attributes: { "aria-label": "answer" }, on: { change: () => ((state.replay = Number(select.value)), draw()) } }, ...options);
  const controls = make("div", { className: "controls" }, make("label", { text: "answer " }, select));
  const lines = data.skipped.map(([line, why]) => make("p", { className: "quiet", text: `line ${line} was skipped: ${why}` }));
  const count = lines.length === 1 ? "1 line was skipped" : `${lines.length} lines were skipped`;
  const skipped = lines.length ? [make("details", { className: "skipped", attributes: lines.length > 3 ? {} : { open: "" } }, make("summary", { className: "bad", text: count }), ...lines)] : [];
  const root = document.getElementById("replay");
  root.className = "replay";
  root.append(make("h1", { text: data.title }), ...skipped, ...(options.length > 1 ? [controls] : []), parts.about, parts.spans, parts.answer);
  document.getElementById("still").remove();
  document.documentElement.className = "live";
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

mount();
