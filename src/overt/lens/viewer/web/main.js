import { createStore, nameOf } from "./store.js";
import { startEmbedded } from "./embed/embedded.js";
import { PANELS, storesOf } from "./panels.js";
import { savePicture } from "./export/panel_picture.js";
import { selection } from "./map/map_controls.js";
import { moveRow } from "./steps/steps.js";
import { mountText } from "./text/text.js";
import { grouped, visible, shorten } from "./data/labels.js";
import { button, make } from "../../../drawing/web/elements.js";
import { theme } from "../../../drawing/web/theme.js";

const HELP = [
  ["anywhere", "← →", "from step to step"],
  ["anywhere", "↑ ↓", "from key to key"],
  ["anywhere", "space", "play the steps"],
  ["anywhere", ", .", "the token before, the token after"],
  ["anywhere", "/", "find a token"],
  ["anywhere", "a", "attends to, or is attended by"],
  ["anywhere", "1 2 3 4 5", "steps, map, links, checks, save"],
  ["anywhere", "m", "strongest or mean"],
  ["anywhere", "l", "logarithmic or linear colour"],
  ["anywhere", "d", "light or dark"],
  ["anywhere", "?", "these keys"],
  ["text", "← → ↑ ↓", "one token forward or back, or ten"],
  ["text", "PgUp PgDn Home End", "a hundred tokens, or to the ends"],
  ["heads", "← → ↑ ↓", "from head to head"],
  ["map", "← → ↑ ↓", "from weight to weight, with ⇧ ten at a time"],
  ["map", "+ −", "zoom in, zoom out"],
  ["map", "0", "the whole map"],
  ["map", "Enter", "choose the token"],
  ["tabs", "← →", "from tab to tab"],
];

// Builds the page in `root`: a bar, the text or two compared texts, and the tabs below, one of them visible. A live page adds `panels` after
// the others, and `fields` of its address (store.js); `titled`: whether the text is the page's title; `cutting`: see text.js.
export function mount(root, recording, { panels: more = [], fields = [], titled = true, cutting = null } = {}) {
  const store = createStore(recording, fields);
  const panels = [...PANELS, ...more];
  Object.assign(root, { recording, store }); // for more questions in the browser's console: viewer.recording.heads[0].weightsRow(3)
  root.classList.add("viewer");
  const help = helpDialog(cutting ? [["arcs", "← → Delete", "from arc to arc; cut it, or undo"]] : []);
  const texts = storesOf(recording, store).map((each) => [make("section", { className: "panel reading", attributes: { "aria-label": "The text" } }), each]);
  const boxes = panels.map(({ name }) => make("section", { className: `panel ${name}`, attributes: { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` } }));
  root.replaceChildren(bar(root, recording, store, help, titled), ...factsOf(recording), make("div", { className: `texts-row${texts.length > 1 ? " compared" : ""}` }, ...texts.map(([box]) => box)), tabStrip(store, panels), ...boxes, help);
  const follow = ({ theme: chosen }) => {
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
  };
  follow(store.get());
  const named = root.querySelector(".bar h1 bdi");
  const title = ({ batch }) => (recording.title === recording.texts[recording.batch[0]] ? recording.texts[batch] : recording.title); // a title that is a text follows the visible text
  const nameIt = (state) => titled && (named.textContent = shorten(visible(title(state) ?? recording.title), 120));
  nameIt(store.get());
  store.subscribe((state, changed) => (changed.has("recording") || changed.has("batch")) && nameIt(state));
  store.subscribe((state, changed) => changed.has("theme") && follow(state));
  showTab(root, store, panels); // before the panels listen, so that a panel is visible when it draws
  texts.forEach(([box, each]) => mountText(box, recording, each, cutting));
  panels.forEach((panel, i) => panel.mount(boxes[i], recording, store));
  startEmbedded(root, store);
  root.ownerDocument.addEventListener("keydown", (event) => shortcuts(event, root, store, help, panels)); // wherever the focus is
  return store;
}

function bar(root, recording, store, help, titled) {
  const { model, story } = recording;
  const title = titled ? recording.title : (story?.heading ?? model);
  const more = story && !titled ? [visible(story.source)] : story ? [make("b", { text: story.heading }), ` ${visible(story.source)}`] : [];
  return make("header", { className: "bar" }, make("b", { className: "brand", text: "overt" }), make("h1", {}, make("bdi", { text: shorten(visible(title), 120) })), make("span", { className: "quiet source", attributes: { title: more.map((part) => part.textContent ?? part).join("") } }, ...more), ...textChooser(recording, store), make("span", { className: "room" }),
    button("picture", (event) => savePicture(root, event.currentTarget), { id: "picture", title: "save what is visible as a PNG picture" }), button("light / dark", () => toggleTheme(store), { id: "theme" }), button("?", () => help.showModal(), { "aria-label": "keys", title: "the keys" }));
}

// The contents of a recording: heads, texts, its file, and the time of saving.
function factsOf({ model, story, heads, calls, batch, file, date, recorded }) {
  if (story) return [];
  const share = (seen, total, noun) => `${grouped(seen)}${seen < total ? ` of ${grouped(total)}` : ""} ${noun}${total === 1 ? "" : "s"}`;
  const [layers, total] = recorded;
  const counted = `${share(new Set(heads.map(nameOf)).size, total, "head")} in ${share(new Set(calls.map(({ number }) => number)).size, layers, "attention layer")}`;
  const facts = [visible(model), counted, batch.length > 1 && `${grouped(batch.length)} texts`, file && visible(file), date].filter(Boolean);
  return [make("p", { className: "quiet facts", text: facts.join(" · ") })];
}

// The choice of the text in all panels; two compared texts are already side by side.
function textChooser(recording, store) {
  if (recording.batch.length < 2 || recording.story?.compared) return [];
  const names = recording.batch.map((batch) => [String(batch), recording.texts[batch] ? `${batch + 1}: ${shorten(visible(recording.texts[batch]), 60)}` : `text ${batch + 1}`]);
  const chooser = selection("the text", names, String(store.get().batch), (value) => store.set({ batch: Number(value) }));
  chooser.classList.add("text-chooser");
  store.subscribe(({ batch }, changed) => changed.has("batch") && (chooser.value = String(batch)));
  return [chooser];
}

const toggleTheme = (store) => store.set({ theme: theme() === "dark" ? "light" : "dark" });

function helpDialog(more) {
  const rows = [...HELP, ...more].map(([where, keys, what]) => make("tr", {}, make("th", { text: where }), make("td", {}, ...keys.split(" ").map((key) => make("kbd", { text: key }))), make("td", { text: what })));
  return make("dialog", { className: "help", attributes: { "aria-label": "keys" } }, make("h2", { text: "Keys" }), make("table", {}, ...rows), button("close", (event) => event.target.closest("dialog").close()));
}

function shortcuts(event, root, store, help, panels) {
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || help.open) return;
  const { pool, colour, side, token, step, playing, embed } = store.get();
  const last = root.querySelectorAll(".stages button").length - 1;
  const now = Math.min(step, last);
  const tab = embed ? null : panels[Number(event.key) - 1];
  const change = {
    m: { pool: pool === "max" ? "mean" : "max" }, l: { colour: colour === "log" ? "linear" : "log" }, a: { side: side === "query" ? "key" : "query" },
    ",": { token: token - 1 }, ".": { token: token + 1 }, ArrowRight: { step: Math.min(now + 1, last), playing: false }, ArrowLeft: { step: Math.max(now - 1, 0), playing: false },
  }[event.key];
  if (change) store.set(change);
  else if (event.key === "?") help.showModal();
  else if (event.key === "/") root.querySelector(".reading input").focus();
  else if (event.key === "d") toggleTheme(store);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") moveRow(root, storesOf(root.recording, store)[0], event.key === "ArrowDown" ? 1 : -1);
  else if (event.key === " " && event.target.tagName !== "BUTTON") store.set({ playing: !playing, panel: "steps" });
  else if (tab) store.set({ panel: tab.name });
  else return;
  event.preventDefault();
}

function tabStrip(store, panels) {
  const tabs = panels.map(({ name, title, lesson }) => {
    const tab = button(title, () => store.set({ panel: name }), { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}` });
    if (lesson) tab.prepend(make("i", { text: String(lesson) }));
    tab.classList.toggle("lesson", Boolean(lesson));
    return tab;
  });
  const lessons = tabs.filter((tab) => tab.classList.contains("lesson"));
  const group = lessons.length ? [make("span", { className: "lessons", attributes: { role: "presentation" } }, ...lessons)] : [];
  const strip = make("div", { className: "tabs", attributes: { role: "tablist" } }, ...tabs.filter((tab) => !lessons.includes(tab)), ...group);
  strip.addEventListener("keydown", (event) => {
    const position = panels.findIndex(({ name }) => name === tabName(store.get(), panels));
    const next = panels[{ ArrowLeft: position - 1, ArrowRight: position + 1, Home: 0, End: panels.length - 1 }[event.key]];
    if (!next) return;
    event.preventDefault();
    store.set({ panel: next.name });
    strip.querySelector("[aria-selected=true]").focus();
  });
  return strip;
}

const tabName = ({ panel }, panels) => (panels.some(({ name }) => name === panel) ? panel : panels[0].name);

function showTab(root, store, panels) {
  const show = () => {
    const chosen = (root.dataset.panel = tabName(store.get(), panels));
    for (const { name } of panels) {
      const tab = root.querySelector(`#tab-${name}`);
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
      root.querySelector(`#panel-${name}`).hidden = name !== chosen;
    }
  };
  store.subscribe((_, changed) => changed.has("panel") && show());
  show();
}
