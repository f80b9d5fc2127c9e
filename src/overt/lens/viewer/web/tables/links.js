// The strongest links as a table: of the head, or of the chosen token; for screen readers, and for people who want numbers.
import { weightsOf, strongestOf } from "../data/rows.js";
import { grouped, label, titleOf, weightText } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

const FIRST = 20; // rows that are there without asking

export const linksPanel = {
  name: "links",
  title: "Links",
  position: "right",
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
  const choices = [["head", `of ${head.name}`], ["token", "of the chosen token"]].map(([of, text]) => make("button", {
    text, attributes: { type: "button", "aria-pressed": String(l.of === of), "data-of": of }, on: { click: () => switchLinks(l, of) },
  }));
  const description = l.of === "head" ? `The ${grouped(shown.length)} strongest links of ${head.name}, in ${head.layer}` : `The ${grouped(shown.length)} strongest links of “${label((state.side === "query" ? head.queries : head.keys)[state.token])}” in ${head.name}`;
  const heading = ["query", "key", "distance", "weight"].map((text) => make("th", { text, attributes: { scope: "col" } }));
  const table = make("table", {}, make("caption", { text: description }), make("thead", {}, make("tr", {}, ...heading)), make("tbody", {}, ...shown.map((link) => linkRow(l, head, link))));
  const more = links.length > shown.length ? [make("button", { className: "more", text: `show all ${grouped(links.length)}`, attributes: { type: "button" }, on: { click: () => showAll(l) } })] : [];
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
  const choose = make("button", { attributes: { type: "button", title: `query ${query}, key ${key}: choose it` }, on: { click: () => l.store.set({ side: "query", token: query, key }) } });
  choose.append(make("bdi", { text: label(head.queries[query]), attributes: { title: titleOf(head.queries, query) } }), make("i", { text: grouped(query) }));
  const fill = make("b", { className: weight < 0 ? "negative" : "" });
  fill.style.width = `${100 * Math.min(1, Math.abs(weight) / (head.signed ? Math.abs(head.links.weights[0]) || 1 : 1) || 0)}%`;
  const distance = head.same ? signed(key - query) : "";
  return make("tr", { attributes: { "data-query": String(query), "data-key": String(key) } },
    make("th", { attributes: { scope: "row" } }, choose), make("td", {}, make("bdi", { text: label(head.keys[key]), attributes: { title: titleOf(head.keys, key) } }), make("i", { text: grouped(key) })),
    make("td", { className: "number", text: distance }), make("td", { className: "weight" }, make("span", { text: weightText(weight) }), make("i", {}, fill)));
}

const signed = (distance) => (distance > 0 ? `+${grouped(distance)}` : distance < 0 ? `−${grouped(-distance)}` : "0");
