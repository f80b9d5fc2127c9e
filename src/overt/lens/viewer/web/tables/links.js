// A table of the strongest links of the head or of the chosen token, for screen readers and for people who want numbers.
import { weightsOf, strongestOf } from "../data/rows.js";
import { grouped, label, titleOf, weightText } from "../data/labels.js";
import { button, gauge, make } from "../../../../drawing/web/elements.js";

const FIRST = 20; // FIRST: rows that are shown at first

export const linksPanel = {
  name: "links",
  title: "Links",
  mount(root, recording, store) {
    root.classList.add("linked");
    const l = { root, recording, store, of: "head", all: false };
    const draw = () => root.isConnected && root.clientWidth && drawLinks(l);
    store.subscribe((state, changed) => {
      if (["head", "batch", "side", "token", "panel"].some((name) => changed.has(name))) draw();
    });
    new ResizeObserver(draw).observe(root);
    draw();
  },
};

// [query, key, weight] of each link, strongest first.
export function linksOf(head, of, state) {
  if (of === "head") {
    const { weights, rows, keys } = head.links;
    return Array.from(weights, (weight, i) => [rows[i], keys[i], weight]);
  }
  const { weights } = weightsOf(head, state.side, state.token);
  return strongestOf(weights, 100).map((position) => (state.side === "query" ? [state.token, position, weights[position]] : [position, state.token, weights[position]]));
}

function drawLinks(l) {
  const state = l.store.get();
  const head = l.recording.heads[state.head];
  const links = linksOf(head, l.of, state);
  const shown = l.all ? links : links.slice(0, FIRST);
  const choices = [["head", `of ${head.name}`], ["token", "of the chosen token"]].map(([of, text]) => button(text, () => switchLinks(l, of), { "aria-pressed": String(l.of === of), "data-of": of }));
  const description = l.of === "head" ? `The ${grouped(shown.length)} strongest links of ${head.name}, in ${head.layer}` : `The ${grouped(shown.length)} strongest links of “${label((state.side === "query" ? head.queries : head.keys)[state.token])}” in ${head.name}`;
  const heading = ["query", "key", ...(head.same ? ["distance"] : []), "weight"].map((text) => make("th", { text, attributes: { scope: "col" } }));
  const table = make("table", {}, make("caption", { text: description }), make("thead", {}, make("tr", {}, ...heading)), make("tbody", {}, ...shown.map((link) => linkRow(l, head, link))));
  const more = links.length > shown.length ? [button(`show all ${grouped(links.length)}`, () => showAll(l), { class: "more" })] : [];
  l.root.replaceChildren(make("div", { className: "sides", attributes: { role: "group", "aria-label": "Links" } }, ...choices), make("div", { className: "scroll" }, table), ...more);
}

function switchLinks(l, of) {
  [l.of, l.all] = [of, false];
  drawLinks(l);
  l.root.querySelector(`[data-of="${of}"]`).focus();
}

function showAll(l) {
  l.all = true;
  drawLinks(l);
  l.root.querySelector(`tbody tr:nth-child(${FIRST + 1}) button`)?.focus();
}

function linkRow(l, head, [query, key, weight]) {
  const named = (tokens, i) => [make("bdi", { text: label(tokens[i]), attributes: { title: titleOf(tokens, i) } }), make("i", { text: grouped(i) })];
  const choose = button("", () => l.store.set({ side: "query", token: query, key }), { title: `query ${query}, key ${key}: choose it` });
  choose.append(...named(head.queries, query));
  return make("tr", { attributes: { "data-query": String(query), "data-key": String(key) } },
    make("th", { attributes: { scope: "row" } }, choose), make("td", {}, ...named(head.keys, key)),
    ...(head.same ? [make("td", { className: "number distance", text: signed(key - query) })] : []),
    make("td", { className: "number weight" }, make("span", { text: weightText(weight) }), gauge(weight, head.signed ? Math.abs(head.links.weights[0]) || 1 : 1)));
}

const signed = (distance) => (distance > 0 ? `+${grouped(distance)}` : distance < 0 ? `−${grouped(-distance)}` : "0");
