import { painted, levelsOf } from "../data/pyramid.js";
import { pixelsOf, scaleOf } from "../map/colour_scale.js";
import { keepFocus, selection } from "../map/map_controls.js";
import { aboutHead, headText } from "./about.js";
import { label, weightText } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

const WIDE = 64; // WIDE: the width of a small map in a line, in pixels
const SORTS = [["layer", "by layer"], ["entropy", "sharpest first"], ["role", "by role"], ["token", "attending to the token"]];

// The heads as small maps: one row per layer, or in a sorted line; of one role, or all.
export function mountHeads(root, recording, store) {
  const thumbs = new WeakMap();
  const [top, box, about] = ["heads-head", "heads-box", "about"].map((className) => make("div", { className }));
  root.append(top, box, about);
  const self = { recording, store, thumbs, top, box, about };
  const build = () => {
    self.stale = !root.clientWidth; // an invisible panel is built when it is chosen
    if (!self.stale) controls(self), layout(self), mark(self);
  };
  store.subscribe((state, changed) => {
    const any = (...names) => names.some((name) => changed.has(name));
    if (self.stale) return any("panel") && build();
    const refocus = any("sort", "filter", "batch", "theme") || (state.sort === "token" && any("token", "side"));
    if (refocus || self.pass !== passOf(self)) build();
    else if (any("palette", "colour", "pool")) layout(self), mark(self);
    else if (any("head")) mark(self);
  });
  box.addEventListener("keydown", (event) => walk(box, event));
  build();
}

const passOf = ({ recording, store }) => recording.heads[store.get().head].pass;

// The strength of a head for the chosen token: its mean weight as a key, or its largest weight as a query.
function hardness(head, { side, token }) {
  if (side === "key" || head.same) return Math.abs(head.received[Math.min(token, head.keyCount - 1)] ?? 0);
  const row = head.exact ? head.weightsRow(Math.min(token, head.queryCount - 1)) : head.received;
  return row.reduce((maximum, each) => Math.max(Math.abs(each), maximum), 0);
}

function shown(self) {
  const { recording, store } = self;
  const { sort, filter, batch } = store.get();
  self.pass = passOf(self);
  const result = recording.heads.filter((head) => head.batch === batch && head.pass === self.pass && (filter === "all" || head.role === filter));
  if (sort === "entropy") return result.sort((a, b) => nanLast(a.entropy) - nanLast(b.entropy));
  if (sort === "role") return result.sort((a, b) => a.role.localeCompare(b.role) || b.roleScore - a.roleScore);
  if (sort === "token") {
    const hard = new Map(result.map((head) => [head, hardness(head, store.get())]));
    return result.sort((a, b) => nanLast(-hard.get(a)) - nanLast(-hard.get(b)));
  }
  return result;
}

const nanLast = (number) => (Number.isNaN(number) ? Infinity : number);

function controls(self) {
  const { recording, store, top } = self;
  const { sort, filter, batch } = store.get();
  const matching = recording.heads.filter((head) => head.batch === batch);
  const roles = [...new Set(matching.map((head) => head.role))].sort();
  const counts = roles.map((role) => [role, `${headText({ role })} (${matching.filter((head) => head.role === role && head.pass === passOf(self)).length})`]);
  const change = (patch) => keepFocus(() => store.set(patch));
  const parts = [
    selection("order", SORTS, sort, (value) => change({ sort: value })),
    selection("role", [["all", "every role"], ...counts], filter, (value) => change({ filter: value })),
  ];
  const passes = [...new Set(matching.map((head) => head.pass))];
  if (passes.length > 1) {
    const names = passes.map((pass) => [String(pass), `pass ${pass + 1}`]);
    const firstOf = (value) => matching.find((head) => head.pass === Number(value)).index;
    parts.push(selection("pass", names, String(passOf(self)), (value) => change({ head: firstOf(value) })));
  }
  const layers = new Set(recording.heads.map((head) => head.number)).size;
  const count = make("span", { className: "quiet", text: `${matching.length} in ${layers} ${layers === 1 ? "call" : "calls"}` });
  top.replaceChildren(make("h2", { text: "Heads" }), count, make("div", { className: "controls" }, ...parts));
}

// The buttons in their places.
function layout(self) {
  const { store, box } = self;
  const { sort, filter } = store.get();
  const result = shown(self);
  self.order = result;
  const grid = sort === "layer" && filter === "all" && Math.max(0, ...result.map((head) => head.call.total)) <= 16;
  box.className = `heads-box ${grid ? "grid" : "line"}`;
  if (!result.length) return box.replaceChildren(make("p", { className: "quiet", text: "No head of this role here." }));
  self.wide = WIDE;
  if (!grid) return box.replaceChildren(...result.map((head) => button(self, head, true)));
  const calls = [...new Set(result.map((head) => head.number))];
  const maximum = Math.max(...result.map((head) => head.head)) + 1;
  const across = Array.from({ length: maximum }, (_, i) => i).filter((i) => result.some((head) => head.head === i));
  box.style.setProperty("--across", across.length);
  self.wide = Math.max(10, Math.min(44, (box.clientWidth - 26) / across.length - 4));
  const rows = calls.map((number) => {
    const matching = new Map(result.filter((head) => head.number === number).map((head) => [head.head, head]));
    const name = make("span", { className: "layer", text: `L${number}`, attributes: { title: [...matching.values()][0].layer } });
    const row = across.map((i) => (matching.has(i) ? button(self, matching.get(i), false) : make("span", {})));
    return make("div", { className: "row", attributes: { role: "group", "aria-label": `layer ${number}` } }, name, ...row);
  });
  const names = make("div", { className: "row names", attributes: { "aria-hidden": "true" } }, make("span", {}), ...across.map((i) => make("span", { text: String(i) })));
  return box.replaceChildren(names, ...rows);
}

function button(self, head, named) {
  const { store } = self;
  const canvas = make("canvas", { attributes: { "aria-hidden": "true" } });
  draw(self, head, canvas);
  const entropy = Number.isNaN(head.entropy) ? "not a number" : `${head.entropy.toFixed(2)} nats`;
  const description = `layer ${head.number} head ${head.head}: ${headText(head)} ${head.roleScore.toFixed(2)}, entropy ${entropy}`;
  const title = `${head.name} · ${headText(head)} ${head.roleScore.toFixed(2)} · entropy ${entropy}`;
  const choose = () => store.set({ head: head.index });
  const result = make("button", { attributes: { type: "button", "aria-label": description, title }, on: { click: choose } }, canvas);
  result.dataset.head = head.index;
  if (named) result.append(make("b", { text: head.name }), make("i", { text: side(self, head) }));
  return result;
}

// The sort key of a head in a line.
function side({ store }, head) {
  const state = store.get();
  if (state.sort === "entropy") return `${head.entropy.toFixed(2)} nats`;
  if (state.sort === "token") return weightText(Number(hardness(head, state).toPrecision(2)));
  return `${label(headText(head), 28)} ${head.roleScore.toFixed(2)}`;
}

// A head's small map, from a level with cells of at least one pixel, because a finer level would lose some cells.
function draw(self, head, canvas) {
  const { colour, palette, pool } = self.store.get();
  if (!head.base) return;
  const thumbs = self.thumbs.get(head) ?? self.thumbs.set(head, {}).get(head);
  const levels = (thumbs[pool] ??= levelsOf(head, pool));
  const maximum = self.wide * (window.devicePixelRatio || 1);
  const level = levels.find(({ rows, columns }) => Math.max(rows, columns) <= maximum) ?? levels.at(-1);
  painted(level, pixelsOf(scaleOf(head, { colour, palette })), canvas);
}

function mark(self) {
  const { head } = self.store.get();
  self.about.replaceChildren(...aboutHead(self.recording.heads[head]));
  const buttons = [...self.box.querySelectorAll("button")];
  const any = buttons.some((each) => Number(each.dataset.head) === head);
  buttons.forEach((each, i) => {
    const chosen = Number(each.dataset.head) === head;
    each.setAttribute("aria-pressed", String(chosen));
    each.tabIndex = chosen || (!any && i === 0) ? 0 : -1;
    if (chosen && self.marked !== head) each.scrollIntoView({ block: "nearest" });
  });
  self.marked = head;
}

// The arrow keys go from head to head, in their layout.
export function walk(box, event) {
  const buttons = [...box.querySelectorAll("button")];
  const position = buttons.indexOf(document.activeElement);
  const top = buttons[0]?.getBoundingClientRect().top;
  const across = Math.max(1, buttons.filter((each) => Math.abs(each.getBoundingClientRect().top - top) < 4).length);
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -position, End: buttons.length - 1 - position }[event.key];
  if (position < 0 || by === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const next = buttons[position + by];
  if (!next) return;
  next.click();
  box.querySelector(`[data-head="${next.dataset.head}"]`)?.focus();
}
