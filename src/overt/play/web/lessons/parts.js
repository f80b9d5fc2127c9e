// Parts of lessons: fields of the address, cards, settings, and work of which only the latest result counts.
import { button, formulaNodes, gauge, make } from "../../../drawing/web/elements.js";
import { number } from "../../../drawing/web/numbers.js";

// Fields of the page's address for store.js: yes or no, a number in a range, words of a pattern.
export const flag = (name, initial) => ({ name, initial, read: (text) => ({ true: true, false: false })[text], write: String });
export const amount = (name, initial, least, most) => ({ name, initial, read: (text) => (/^-?\d{1,9}(\.\d{1,6})?$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : undefined), write: String });
export const whole = (name, initial, most) => ({ name, initial, read: (text) => (/^\d{1,9}$/.test(text) && Number(text) <= most ? Number(text) : undefined), write: String });
export const choice = (name, choices) => ({ name, initial: choices[0], read: (text) => (choices.includes(text) ? text : undefined), write: (value) => value });

export const card = (title, ...children) => make("section", { className: "card" }, make("h2", {}, ...formulaNodes(title)), ...children);

// The claims of a lesson, and their limits.
export const scope = (shows, not) => make("section", { className: "card true" }, make("h2", { text: "What this shows, and what it does not" }), make("p", {}, ...formulaNodes(shows)), make("p", { className: "quiet" }, ...formulaNodes(not)));

// A setting that is on or off.
export const toggle = (store, name, text) => button(text, () => store.set({ [name]: !store.get()[name] }), { "data-set": name });

// One of several settings.
export function choices(store, name, texts, label) {
  const buttons = Object.entries(texts).map(([value, text]) => button(text, () => store.set({ [name]: value }), { "data-set": name, "data-value": value }));
  return make("div", { className: "choices", attributes: { role: "group", "aria-label": label } }, ...buttons);
}

// A number set by a slider; `steps` converts the slider's integers to the setting and back.
export function slider(store, name, text, { least, most, from, to, said = (value) => number(value) }) {
  const input = make("input", { attributes: { type: "range", min: String(least), max: String(most), id: `set-${name}`, "data-set": name } });
  const output = make("output", { attributes: { for: `set-${name}` } });
  input.addEventListener("input", () => store.set({ [name]: from(Number(input.value)) }));
  const row = make("div", { className: "slider" }, make("label", { text, attributes: { for: `set-${name}` } }), input, output);
  row.follow = (value) => {
    if (document.activeElement !== input || from(Number(input.value)) !== value) input.value = String(to(value));
    output.textContent = said(value);
    input.setAttribute("aria-valuetext", said(value));
  };
  return row;
}

// Updates all settings inside `root` to the state.
export function followSettings(root, state) {
  for (const each of root.querySelectorAll("button[data-set]")) {
    const { set, value } = each.dataset;
    each.setAttribute("aria-pressed", String(value === undefined ? state[set] : state[set] === value));
  }
  for (const row of root.querySelectorAll(".slider")) row.follow(state[row.querySelector("input").dataset.set]);
}

// A table with a head; cells are texts or elements, a row's first cell names it.
export function table(caption, names, rows) {
  const cell = (each) => (each instanceof Node ? make("td", { className: "number" }, each) : make("td", { className: "number", text: each }));
  const first = (each) => (each instanceof Node ? make("th", { attributes: { scope: "row" } }, each) : make("th", { text: each, attributes: { scope: "row" } }));
  const head = make("tr", {}, ...names.map((text) => make("th", { attributes: { scope: "col" } }, ...formulaNodes(text))));
  return make("table", {}, make("caption", { text: caption }), make("thead", {}, head), make("tbody", {}, ...rows.map(([name, ...cells]) => make("tr", {}, first(name), ...cells.map(cell)))));
}

// A number with a bar next to it.
export const barred = (text, share) => make("span", { className: "barred" }, make("span", { text }), gauge(share, 1));

// Runs `work` with the latest arguments, one at a time; a question replaced by a later one is skipped. `box` is busy meanwhile.
export function latest(box, work) {
  let [wanted, busy] = [null, false];
  return async (...args) => {
    wanted = args;
    if (busy) return;
    busy = true;
    box.setAttribute("aria-busy", "true");
    try {
      while (wanted) {
        const now = wanted;
        wanted = null;
        await work(...now);
      }
    } finally {
      busy = false;
      box.removeAttribute("aria-busy");
    }
  };
}

export function cosine(a, b) {
  let [product, left, right] = [0, 0, 0];
  for (let d = 0; d < a.length; d++) [product, left, right] = [product + a[d] * b[d], left + a[d] * a[d], right + b[d] * b[d]];
  return product / Math.sqrt(left * right);
}

// Consecutive rows of numbers as vectors.
export const rowsOf = (numbers, width) => Array.from({ length: numbers.length / width }, (_, i) => numbers.subarray(i * width, (i + 1) * width));
