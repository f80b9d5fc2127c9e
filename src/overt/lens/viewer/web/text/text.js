// The tokens as running text, coloured by their weights from or to the chosen token. A long text is split into parts of a few hundred
// tokens, and the page holds only visible parts, so 32,768 tokens are as quick as 100.
import { arcsOf } from "./arcs.js";
import { scaleOf } from "../map/colour_scale.js";
import { joinerOf, weightsOf, strongestOf, toneOf } from "../data/rows.js";
import { number } from "../../../../drawing/web/numbers.js";
import { drawStripes } from "../steps/bars.js";
import { grouped, label, shorten, titleOf, unknownAt, visible, weightText } from "../data/labels.js";
import { findBox } from "./find.js";
import { button, make } from "../../../../drawing/web/elements.js";
import { channelsOf } from "../../../../drawing/web/colours.js";
import { inkOn } from "../../../../drawing/web/theme.js";

const PART = 256; // PART: tokens of one part
export const ARCS = 12; // ARCS: the most arcs of the chosen token; more would be unreadable
const LETTERS = 80; // LETTERS: the most letters of one token; its title has all of them

const [LARGE, FEW] = [120, 64]; // LARGE: the most tokens in large letters; FEW: the most tokens without stripe and chips
const ARABIC = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u; // ARABIC: scripts from right to left with joined letters

// `cutting`, if the model runs: { pairsOf(store, head), toggle(store, head, query, key) }, the cut pairs and the action of a click on an arc.
export function mountText(root, recording, store, cutting = null) {
  const t = { root, recording, store, cutting, texts: [] };
  prepareText(t);
  const draw = () => root.isConnected && drawText(t);
  store.subscribe((state, changed) => {
    if (["head", "batch", "side", "token", "colour", "theme"].some((name) => changed.has(name))) draw();
  });
  new ResizeObserver(draw).observe(root);
  draw();
}

function prepareText(t) {
  const side = (name, text) => button(text, () => switchTo(t, name), { "data-side": name });
  t.sides = [side("query", "attends to"), side("key", "is attended by")];
  t.name = make("bdi", { className: "asker" });
  t.description = make("p", { className: "told", attributes: { "aria-live": "polite" } });
  t.stripe = make("canvas", { className: "stripe", attributes: { "aria-hidden": "true" } });
  t.stripe.addEventListener("click", (event) => goTo(t, Math.floor((event.offsetX / t.stripe.clientWidth) * t.attention.weights.length)));
  t.chips = make("ol", { className: "chips" });
  t.body = make("div", { className: "running", attributes: { tabindex: "-1" } });
  const bar = make("div", { className: "sides", attributes: { role: "group", "aria-label": "Direction" } }, ...t.sides);
  const find = findBox(() => wordsOf(t), (token, side) => t.store.set({ token, side }), () => drawText(t));
  t.found = find.found;
  t.unknown = make("p", { className: "unknown", attributes: { "aria-live": "polite" } });
  t.root.append(make("div", { className: "says-who" }, t.name, bar, t.description, find.box), t.stripe, t.chips, t.body, t.unknown);
  t.root.classList.add("reading");
}

// The other direction, from the same token if queries and keys are the same text.
function switchTo(t, side) {
  const { key, token, side: before } = t.store.get();
  if (side === before) return;
  const head = headOf(t);
  const strongest = strongestOf(t.attention.weights, 1)[0] ?? 0;
  t.store.set({ side, token: head.same ? token : side === "key" ? (key ?? strongest) : strongest });
}

// All searchable tokens: of one text, or of the queries and the keys.
const wordsOf = (t) => t.texts.map(({ side, tokens }) => ({ side: side === "both" ? t.store.get().side : side, tokens }));

const headOf = (t) => t.recording.heads[t.store.get().head];

function drawText(t) {
  const state = t.store.get();
  const head = headOf(t);
  t.attention = weightsOf(head, state.side, state.token);
  t.maximum = Math.abs(t.attention.weights[strongestOf(t.attention.weights, 1)[0]] ?? 0);
  t.strongest = strongestOf(t.attention.weights, ARCS + 1);
  t.scale = scaleOf(head, state);
  const further = t.strongest.length > ARCS && seen(t, t.strongest.pop());
  t.limit = further ? `Arcs: the ${ARCS} strongest links.` : "";
  const style = getComputedStyle(t.root);
  t.colours = Object.fromEntries(["paper", "blue", "fire"].map((name) => [name, channelsOf(style.getPropertyValue(`--${name}`).trim().slice(1))[0]]));
  const [attending, attended] = state.side === "query" ? [head.queries, head.keys] : [head.keys, head.queries];
  t.attended = attended;
  t.name.textContent = shorten(visible(attending[state.token]), 40);
  t.name.title = titleOf(attending, state.token);
  for (const button of t.sides) button.setAttribute("aria-pressed", String(button.dataset.side === state.side));
  t.root.dataset.side = state.side;
  t.root.toggleAttribute("data-signed", head.signed);
  t.sides.forEach((each, i) => (each.textContent = (head.signed ? ["reads", "is read by"] : ["attends to", "is attended by"])[i]));
  writeTexts(t, head, state);
  for (const text of t.texts) for (const part of text.parts) if (part.tokens) colourPart(t, text, part);
  t.stripe.hidden = t.chips.hidden = t.attention.weights.length <= FEW;
  const sign = (weight) => (state.side === "key" || weight < 0 ? -1 : 1);
  drawStripes(t.stripe, Float32Array.from(t.attention.weights, (weight) => sign(weight) * toneOf(weight, t.maximum, t.scale)), 1, head.same ? state.token : null);
  drawChips(t);
  tellText(t, null);
  reveal(t);
  drawArcs(t);
}

// Writes the texts again if the head's texts differ from the page's.
function writeTexts(t, head, state) {
  const both = head.same;
  const key = `${state.batch} ${head.queryCount} ${head.keyCount} ${both} ${head.queries === t.queries} ${head.keys === t.keys}`;
  if (t.written === key) return;
  [t.written, t.queries, t.keys] = [`${state.batch} ${head.queryCount} ${head.keyCount} ${both} true true`, head.queries, head.keys];
  t.watcher?.disconnect();
  t.watcher = new IntersectionObserver((entries) => showParts(t, entries), { root: t.body, rootMargin: "600px 0px" });
  const names = t.recording.story?.sides ?? ["Queries", "Keys"];
  const texts = both ? [["both", head.keys, "The text"]] : [["query", head.queries, names[0]], ["key", head.keys, names[1]]];
  t.unknown.textContent = unknownText(head.keys);
  t.unknown.hidden = !t.unknown.textContent;
  t.root.classList.toggle("large", head.queryCount + (both ? 0 : head.keyCount) <= LARGE);
  t.texts = texts.map(([side, tokens, label]) => textOf(t, side, tokens, label));
  t.arcs = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  if (t.cutting) [["role", "group"], ["aria-label", "Arcs: Enter or Delete cuts one"]].forEach((attribute) => t.arcs.setAttribute(...attribute));
  else t.arcs.setAttribute("aria-hidden", "true");
  t.focused = focusedArc(t);
  t.body.replaceChildren(make("div", { className: "texts" }, ...t.texts.map((text) => text.box), t.arcs));
  for (const text of t.texts) if (text.parts.length) fillPart(t, text, text.parts[0]); // at once, so that typed text does not flicker
}

function unknownText(tokens) {
  const unknown = Array.from({ length: Math.min(tokens.length, 2000) }, (_, i) => i).filter((i) => unknownAt(tokens, i));
  if (!unknown.length) return "";
  const named = unknown.slice(0, 6).map((i) => `“${label(tokens[i], 16)}”`).join(", ");
  return `The vocabulary lacks ${named}${unknown.length > 6 ? ", …" : ""}: the model reads ${label(tokens.tokenizer?.pieces[unknown[0]] ?? tokens[unknown[0]], 12)} there, the same for every unknown word.`;
}

function textOf(t, side, tokens, heading) {
  const join = joinerOf(tokens);
  const joined = ARABIC.test(tokens.slice(0, 4096).join(""));
  const text = { side, tokens, join, joined, parts: [] };
  text.box = make("div", { className: `text${joined ? " joined" : ""}`, attributes: { role: "group", "aria-label": `${heading}, ${tokens.length} tokens` } });
  if (side !== "both") text.box.append(make("p", { className: "label", text: heading }));
  for (let start = 0; start < tokens.length; start += PART) {
    const node = make("p", { className: "part", attributes: joined ? { dir: "auto" } : {} });
    const part = { start, stop: Math.min(start + PART, tokens.length), node, tokens: null };
    node.of = { text, part };
    node.style.minHeight = tokens.length > PART ? `${Math.ceil((part.stop - part.start) / 9) * 34}px` : "";
    if (tokens.length > PART) node.dataset.from = grouped(start);
    text.parts.push(part);
    text.box.append(node);
    t.watcher.observe(node);
  }
  text.box.addEventListener("click", (event) => chooseToken(t, text, event.target.closest("[data-token]")));
  text.box.addEventListener("keydown", (event) => textKeys(t, text, event));
  text.box.addEventListener("pointerover", (event) => tellText(t, event.target.closest("[data-token]")));
  text.box.addEventListener("pointerleave", () => tellText(t, null));
  return text;
}

function showParts(t, entries) {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) fillPart(t, target.of.text, target.of.part);
    else if (target.of.text.parts.length > 1) emptyPart(target.of.part);
  }
  drawArcs(t);
}

function fillPart(t, text, part) {
  if (part.tokens) return;
  part.tokens = [];
  const nodes = [];
  for (let i = part.start; i < part.stop; i++) {
    const { space, text: description, ends } = text.join(text.tokens[i], i === part.start, i);
    // Letters join over the edges of spans, but not of isolated tokens.
    const isolated = !text.joined || !ARABIC.test(description);
    const token = make(isolated ? "bdi" : "span", { text: shorten(visible(description), LETTERS), attributes: { "data-token": String(i), role: "button", tabindex: "-1" } });
    token.title = titleOf(text.tokens, i);
    token.toggleAttribute("data-special", Boolean(text.tokens.tokenizer?.special[i]));
    token.toggleAttribute("data-unknown", unknownAt(text.tokens, i));
    part.tokens.push(token);
    if (space) nodes.push(" ");
    nodes.push(token);
    if (ends) nodes.push(document.createElement("br"));
  }
  part.node.replaceChildren(...nodes);
  part.node.style.minHeight = "";
  colourPart(t, text, part);
}

// Removes the tokens of an invisible part and keeps its height.
function emptyPart(part) {
  if (!part.tokens || part.node.contains(document.activeElement)) return;
  part.node.style.minHeight = `${part.node.offsetHeight}px`;
  part.tokens = null;
  part.node.replaceChildren();
}

// The ink on a tone: the page's own if it is readable, else black or white.
function inkOf(t, share, tone) {
  const { paper } = t.colours;
  return share > 0.5 ? inkOn(paper.map((channel, c) => channel + share * (tone[c] - channel))) : "";
}

function colourPart(t, text, part) {
  const { side, token: chosen } = t.store.get();
  const { signed } = headOf(t);
  const coloured = text.side === "both" || text.side !== side;
  part.tokens.forEach((node, position) => {
    const i = part.start + position;
    const marked = (text.side === "both" || text.side === side) && i === chosen;
    const weight = coloured ? t.attention.weights[i] : 0;
    const share = toneOf(weight, t.maximum, t.scale);
    node.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
    const tone = t.colours[(signed ? weight < 0 : side === "key") || weight < 0 ? "fire" : "blue"];
    node.style.color = text.joined ? "" : inkOf(t, share, tone);
    const found = t.found(text.side === "both" ? side : text.side, i);
    node.className = `${marked ? "own" : ""}${found ? " match" : ""}${Number.isNaN(weight) ? " nan" : ""}${weight < 0 ? " negative" : ""}`.trim();
    node.tabIndex = marked ? 0 : -1;
    if (marked) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
    node.setAttribute("aria-label", labelOf(t, text, i, coloured ? weight : null));
  });
}

function labelOf(t, text, i, weight) {
  const name = shorten(visible(text.tokens[i]), LETTERS);
  if (weight === null) return `${name}, ${i}`;
  return `${name}, ${i}, ${Number.isNaN(weight) ? "not a number" : `weight ${number(weight, 3)}`}`;
}

function chooseToken(t, text, node) {
  if (!node) return;
  const token = Number(node.dataset.token);
  t.store.set(text.side === "both" ? { token } : { token, side: text.side });
}

// Scrolls a token into sight without moving the page around it.
function goTo(t, token) {
  const text = t.texts.find((each) => each.side === "both" || each.side !== t.store.get().side);
  scrollTo(t, text, Math.max(0, Math.min(text.tokens.length - 1, token)));
}

function scrollTo(t, text, token, always = true) {
  const part = text.parts[Math.floor(token / PART)];
  fillPart(t, text, part);
  const node = part.tokens[token - part.start];
  const [bounds, position] = [t.body.getBoundingClientRect(), node.getBoundingClientRect()];
  if (!always && position.top >= bounds.top && position.bottom <= bounds.bottom) return node;
  t.body.scrollTop = Math.max(0, position.top - bounds.top + t.body.scrollTop - t.body.clientHeight / 3);
  node.classList.add("found");
  setTimeout(() => node.classList.remove("found"), 1200);
  return node;
}

// Scrolls to the chosen token if it was chosen elsewhere, on the map or by a link.
function reveal(t) {
  const { side, token } = t.store.get();
  const key = `${t.written} ${side} ${token}`;
  if (t.revealed === key || !t.body.clientHeight) return;
  t.revealed = key;
  scrollTo(t, t.texts.find((each) => each.side === "both" || each.side === side), token, false);
}

const MOVES = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, PageDown: 100, PageUp: -100, Home: -Infinity, End: Infinity };

function textKeys(t, text, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const node = event.target.closest("[data-token]");
  if (!node) return;
  const at = Number(node.dataset.token);
  if (event.key === "Enter" || event.key === " ") chooseToken(t, text, node);
  else if (event.key in MOVES) {
    const token = Math.max(0, Math.min(text.tokens.length - 1, at + MOVES[event.key]));
    t.store.set(text.side === "both" ? { token } : { token, side: text.side });
    scrollTo(t, text, token, false).focus({ preventScroll: true });
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

// The description of the token under the pointer.
function tellText(t, node) {
  const { side } = t.store.get();
  const { weights } = t.attention;
  const text = node?.closest(".part")?.of.text;
  if (!text) return void (t.description.textContent = t.limit);
  const i = Number(node.dataset.token);
  t.description.replaceChildren(make("bdi", { text: shorten(visible(text.tokens[i]), 60) }), ` token ${grouped(i)}`);
  if (text.side === "both" || text.side !== side) t.description.append(Number.isNaN(weights[i]) ? ", not a number" : `, weight ${number(weights[i], 4)}`);
}

function drawChips(t) {
  t.chips.setAttribute("aria-label", "Strongest links");
  t.chips.replaceChildren(...t.strongest.slice(0, 5).filter((i) => Math.abs(t.attention.weights[i]) >= t.maximum / 100).map((i) => {
    const chip = make("button", { attributes: { type: "button", "data-place": String(i) }, on: { click: () => goTo(t, i) } });
    chip.append(make("bdi", { text: shorten(visible(t.attended[i]), 18) }), make("span", { text: weightText(t.attention.weights[i]) }));
    chip.title = titleOf(t.attended, i);
    return make("li", {}, chip);
  }));
}

// Draws arcs from the chosen token to the strongest tokens on the page; chips and the stripe show the others. A text of one line makes
// room above itself for large arcs.
function drawArcs(t) {
  if (!t.arcs) return;
  const nodes = t.texts.flatMap((text) => text.parts.flatMap((part) => part.tokens ?? []));
  const tops = t.texts.length === 1 ? nodes.map((node) => node.offsetTop) : [];
  const line = tops.length > 1 && tops.length <= PART && tops.every((top) => Math.abs(top - tops[0]) < 8);
  const room = line ? 56 : t.root.classList.contains("large") ? 16 : 12;
  t.root.classList.toggle("arched", line);
  const { side, token } = t.store.get();
  const at = (text, i) => text?.parts[Math.floor(i / PART)]?.tokens?.[i % PART];
  const from = at(t.texts.find((text) => text.side === "both" || text.side === side), token);
  const attended = t.texts.find((text) => text.side === "both" || text.side !== side);
  const focused = t.focused ?? focusedArc(t);
  t.focused = undefined;
  arcsOf(t.arcs, from, linksOf(t, (i) => at(attended, i), from), room, nodes);
  if (focused !== undefined) (t.arcs.querySelector(`[data-arc="${focused}"]`) ?? t.arcs.querySelector(".hit"))?.focus();
}

const focusedArc = (t) => (t.body.contains(document.activeElement) ? document.activeElement.dataset.arc : undefined);

// The drawn links, strongest first; on a page whose model runs they are buttons, and cut links stay visible.
function linksOf(t, nodeOf, from) {
  const { side, token } = t.store.get();
  const pair = (i) => (side === "query" ? [token, i] : [i, token]);
  const cut = t.cutting ? t.cutting.pairsOf(t.store, headOf(t)).filter((each) => each[side === "query" ? 0 : 1] === token).map((each) => each[side === "query" ? 1 : 0]) : [];
  const links = t.strongest.filter((i) => !cut.includes(i) && seen(t, i)).map((i) => ({ i, share: toneOf(t.attention.weights[i], t.maximum, t.scale), negative: t.attention.weights[i] < 0 }));
  const drawn = [...links, ...cut.map((i) => ({ i, share: 0.1, cut: true }))];
  return drawn.map((link) => ({ ...link, node: nodeOf(link.i), ...(t.cutting ? { name: nameOf(t, pair(link.i), link), click: () => t.cutting.toggle(t.store, headOf(t), ...pair(link.i)) } : {}) })).filter(({ node }) => node && node !== from);
}

const seen = (t, i) => toneOf(t.attention.weights[i], t.maximum, t.scale) > 0.015;

const nameOf = (t, [query, key], { i, cut }) => `${cut ? "undo the cut" : "cut"} ${label(headOf(t).queries[query], 20)} → ${label(headOf(t).keys[key], 20)}${cut ? "" : `, weight ${number(t.attention.weights[i], 3)}`}`;
