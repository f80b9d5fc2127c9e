import { PALETTES } from "./colour_scale.js";
import { button, make } from "../../../../drawing/web/elements.js";

// A group of buttons with one pressed.
export function choices(label, names, chosen, choose) {
  const buttons = names.map(([value, text]) => button(text, () => choose(value), { "aria-pressed": String(value === chosen) }));
  return make("div", { className: "choices", attributes: { role: "group", "aria-label": label } }, ...buttons);
}

export function selection(label, names, chosen, choose) {
  const options = names.map(([value, text]) => make("option", { text, attributes: { value, ...(value === chosen ? { selected: "" } : {}) } }));
  const select = make("select", { attributes: { "aria-label": label }, on: { change: (event) => choose(event.target.value) } }, ...options);
  return select;
}

// The controls of the map: largest or mean of each cell, colours, and zoom.
export function mapControls(store, self) {
  const { pool, colour, palette } = store.get();
  const near = [["zoom in", "+", 1.6], ["zoom out", "−", 1 / 1.6], ["show all", "⤢", 0]];
  const buttons = near.map(([name, text, factor]) => button(text, () => self.zoomBy(factor), { "aria-label": name, title: name }));
  return make("div", { className: "controls" },
    choices("each cell shows", [["max", "strongest"], ["mean", "mean"]], pool, (value) => keepFocus(() => store.set({ pool: value }))),
    choices("colour scale", [["log", "log"], ["linear", "linear"]], colour, (value) => keepFocus(() => store.set({ colour: value }))),
    ...(self.head.signed ? [] : [selection("colours", PALETTES.map((name) => [name, name]), palette, (value) => keepFocus(() => store.set({ palette: value })))]),
    make("div", { className: "choices", attributes: { role: "group", "aria-label": "nearness" } }, ...buttons));
}

// The controls are rebuilt after a change; the keyboard focus stays on the same one.
export function keepFocus(change) {
  const before = document.activeElement;
  const group = before?.closest("[aria-label]:not(button)")?.getAttribute("aria-label");
  const [text, label] = [before?.textContent, before?.getAttribute("aria-label")];
  change();
  const refocus = [...document.querySelectorAll(`[aria-label="${CSS.escape(group ?? "")}"] button, select[aria-label="${CSS.escape(label ?? "")}"]`)];
  (refocus.find((each) => each.tagName === "SELECT" || each.textContent === text) ?? before)?.focus?.();
}
