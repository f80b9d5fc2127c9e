import { createStore } from "./store.js";
import { PANELS } from "./panels.js";
import { visible, shorten } from "./data/labels.js";
import { make } from "../../../drawing/web/elements.js";
import { theme } from "../../../drawing/web/theme.js";

const HELP = [
  ["heads", "← → ↑ ↓", "from head to head"],
  ["map", "← → ↑ ↓", "from weight to weight, with ⇧ ten at a time"],
  ["map", "+ −", "nearer, farther"],
  ["map", "0", "the whole map"],
  ["map", "Enter", "choose the token"],
  ["tabs", "← →", "from tab to tab"],
  ["text", "← → ↑ ↓", "one token on, ten on"],
  ["text", "PgUp PgDn Home End", "a hundred on, to the ends"],
  ["steps", "← →", "from step to step"],
  ["steps", "↑ ↓", "from key to key"],
  ["anywhere", "1 2 3 4 5", "text, steps, links, checks, save"],
  ["anywhere", ", .", "the token before, the token after"],
  ["anywhere", "a", "attends to, or is attended by"],
  ["anywhere", "m", "strongest or mean"],
  ["anywhere", "l", "logarithmic or linear colour"],
  ["anywhere", "d", "light or dark"],
  ["anywhere", "?", "these keys"],
];

// Builds the page in `root`: a bar above, the heads on the left, the map in the middle, tabs on the right.
export function mount(root, recording) {
  const store = createStore(recording);
  const columns = { left: make("aside", { className: "left" }), centre: make("main", { className: "centre" }), right: make("aside", { className: "right" }) };
  const tabs = PANELS.filter((panel) => panel.position === "right");
  Object.assign(root, { recording, store }); // for more questions in the browser's console: viewer.recording.heads[0].weightsRow(3)
  root.classList.add("viewer");
  root.classList.toggle("no-right", !tabs.length);
  const help = helpDialog();
  root.replaceChildren(bar(recording, store, help), make("div", { className: "columns" }, ...Object.values(columns)), help);
  const follow = () => {
    const { theme: chosen } = store.get();
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
  };
  follow();
  store.subscribe((_, changed) => changed.has("theme") && follow());
  if (tabs.length) columns.right.append(tabStrip(tabs, store));
  const boxes = PANELS.map((panel) => {
    const tab = { role: "tabpanel", id: `panel-${panel.name}`, "aria-labelledby": `tab-${panel.name}` };
    const description = panel.position === "right" ? tab : { "aria-label": panel.title };
    const box = make("section", { className: `panel ${panel.name}`, attributes: description });
    columns[panel.position].append(box);
    return box;
  });
  if (tabs.length) showTab(tabs, store); // before the panels listen: one that comes into sight is there when it draws
  PANELS.forEach((panel, i) => panel.mount(boxes[i], recording, store));
  root.ownerDocument.addEventListener("keydown", (event) => shortcuts(event, store, help)); // wherever the focus is
  return store;
}

function bar(recording, store, help) {
  const title = make("h1", {}, make("bdi", { text: shorten(visible(recording.title), 120) }));
  const more = recording.title === recording.model ? [] : [make("span", { className: "quiet", text: recording.model })];
  const dark = make("button", { text: "light / dark", attributes: { type: "button", id: "theme" }, on: { click: () => toggleTheme(store) } });
  const ask = make("button", { text: "?", attributes: { type: "button", "aria-label": "keys", title: "the keys" }, on: { click: () => help.showModal() } });
  return make("header", { className: "bar" }, make("b", { className: "brand", text: "overt" }), title, ...more, make("span", { className: "room" }), dark, ask);
}

const toggleTheme = (store) => store.set({ theme: theme() === "dark" ? "light" : "dark" });

function helpDialog() {
  const rows = HELP.map(([where, keys, what]) => {
    const caps = keys.split(" ").map((key) => make("kbd", { text: key }));
    return make("tr", {}, make("th", { text: where }), make("td", {}, ...caps), make("td", { text: what }));
  });
  const close = make("button", { text: "close", attributes: { type: "button" }, on: { click: (event) => event.target.closest("dialog").close() } });
  return make("dialog", { className: "help", attributes: { "aria-label": "keys" } }, make("h2", { text: "Keys" }), make("table", {}, ...rows), close);
}

function shortcuts(event, store, help) {
  if (event.metaKey || event.ctrlKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || help.open) return;
  if (event.defaultPrevented) return;
  const { pool, colour, side, token } = store.get();
  const tab = PANELS.filter((panel) => panel.position === "right")[Number(event.key) - 1];
  if (event.key === "?") help.showModal();
  else if (event.key === "m") store.set({ pool: pool === "max" ? "mean" : "max" });
  else if (event.key === "l") store.set({ colour: colour === "log" ? "linear" : "log" });
  else if (event.key === "d") toggleTheme(store);
  else if (event.key === "a") store.set({ side: side === "query" ? "key" : "query" });
  else if (event.key === "," || event.key === ".") store.set({ token: token + (event.key === "." ? 1 : -1) });
  else if (tab) store.set({ panel: tab.name });
  else return;
  event.preventDefault();
}

function tabStrip(tabs, store) {
  const strip = make("div", { className: "tabs", attributes: { role: "tablist" } });
  for (const { name, title } of tabs) {
    const attributes = { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}` };
    strip.append(make("button", { text: title, attributes, on: { click: () => store.set({ panel: name }) } }));
  }
  strip.addEventListener("keydown", (event) => {
    const position = tabs.findIndex((tab) => tab.name === tabName(tabs, store.get()));
    const next = { ArrowLeft: position - 1, ArrowRight: position + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined || !tabs[next]) return;
    event.preventDefault();
    event.stopPropagation();
    store.set({ panel: tabs[next].name });
    strip.querySelector("[aria-selected=true]").focus();
  });
  return strip;
}

const tabName = (tabs, { panel }) => (tabs.some((tab) => tab.name === panel) ? panel : tabs[0].name);

function showTab(tabs, store) {
  const show = () => {
    const chosen = tabName(tabs, store.get());
    for (const { name } of tabs) {
      const tab = document.getElementById(`tab-${name}`);
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
      document.getElementById(`panel-${name}`).hidden = name !== chosen;
    }
  };
  store.subscribe((_, changed) => changed.has("panel") && show());
  show();
}
