// Lesson 5: how the sentence's vector changes without some heads, and with another softmax, mask or scale.
import { amount, barred, card, cosine, flag, followSettings, latest, rowsOf, scope, slider, table, toggle } from "./parts.js";
import { editOf } from "../cut/cutting.js";
import { BESIDE, besideCard } from "./beside.js";
import { orderCard, ORDER } from "./order.js";
import { weightsOf } from "../../../lens/viewer/web/data/rows.js";
import { label, numberedLabels } from "../../../lens/viewer/web/data/labels.js";
import { walk } from "../../../lens/viewer/web/heads/heads.js";
import { number } from "../../../drawing/web/numbers.js";
import { button, make } from "../../../drawing/web/elements.js";

const OFF = { name: "off", initial: "", read: (text) => (/^\d{1,3}\.\d{1,3}(,\d{1,3}\.\d{1,3}){0,599}$/.test(text) ? text : undefined), write: (value) => value };
export const SWITCHES = [OFF, amount("temperature", 1, 0.1, 10), flag("causal", false), flag("divided", true), ORDER, BESIDE];
export const UNCHANGED = { off: [], temperature: 1, causal: false, divided: true, placed: true };

const [SHOWN, WORDS, ALONE] = [8, 160, 128]; // rows of the table, words of the text; largest number of tokens for single heads off
const SHOWS = "A head's output is set to zero before the output matrix joins it to the others; everything after it is computed again, in this page. The sentence's vector is the mean of the last layer's vectors; the cosine says how far it turned.";
const NOT = "It does not say that a head is not needed: another may do the same, and the model was never trained without it. A vector that moved is not a meaning that changed.";

// The panel; `reader` is the model running in the page.
export const switchesPanel = (reader) => ({
  name: "switches",
  title: "Heads",
  lesson: 5,
  mount(root, recording, store) {
    root.classList.add("lesson");
    const self = { root, recording, store, reader, base: null, alone: null, turn: 0 };
    prepare(self);
    const [order, drawOrder] = orderCard(self);
    const [beside, drawBeside] = besideCard(self);
    [order, beside].forEach((box) => box.classList.add("second"));
    root.append(make("div", {}, self.settings, order), make("div", {}, self.result, beside, scope(SHOWS, NOT)));
    const change = latest(root, () => compute(self).catch((error) => tell(self, error.message)));
    const names = ["off", "temperature", "causal", "divided", "head", "token", "panel", "theme"];
    const draw = (state, changed) => {
      if (state.panel !== "switches" || state.text === null) return;
      if (names.some((name) => changed.has(name))) change();
      if (["panel", "recording", "shuffle"].some((name) => changed.has(name))) drawOrder();
      if (["panel", "recording", "token", "head", "beside"].some((name) => changed.has(name))) drawBeside();
    };
    store.subscribe(draw);
    followSettings(root, store.get());
    reader.ready.then((sentence) => sentence && tell(self, sentence));
  },
});

const tell = (self, sentence) => (self.said.textContent = sentence);

function prepare(self) {
  const { store } = self;
  self.grid = make("div", { className: "switches-grid", attributes: { role: "group", "aria-label": "heads that are on: layers down, heads across" }, on: { keydown: (event) => walk(self.grid, event) } });
  self.said = make("p", { className: "quiet", attributes: { "aria-live": "polite" }, text: "The model is loading." });
  const temperature = slider(store, "temperature", "temperature of the softmax", { least: -20, most: 20, from: (at) => Number((10 ** (at / 20)).toFixed(2)), to: (value) => Math.round(20 * Math.log10(value)) });
  const whole = button("as the model is", () => store.set({ off: "", temperature: 1, causal: false, divided: true }), { class: "linklike" });
  self.settings = card("Switch heads off, or compute attention in another way",
    make("p", { className: "says", text: "Click a head to switch it off, or a layer for all of its heads. The darker a head, the farther the sentence's vector turns without it alone." }), self.grid, self.said,
    make("div", { className: "settings" }, temperature, make("div", { className: "toggles" }, toggle(store, "divided", "÷ √d"), toggle(store, "causal", "causal mask"), whole)));
  self.result = card("The sentence's vector");
}

const namesOf = (off) => (off ? off.split(",") : []);

// The settings in the form of encoder.js.
function changesOf({ off, temperature, causal, divided }) {
  return { ...UNCHANGED, off: namesOf(off).map((name) => name.split(".").map(Number)), temperature, causal, divided };
}

async function compute(self) {
  const { recording, store, reader } = self;
  const state = store.get();
  followSettings(self.root, state);
  if (self.base?.text !== state.text) {
    self.base = { text: state.text, ...(await reader.changed({ text: state.text, changes: UNCHANGED, order: null, at: null })) };
    self.alone = null;
  }
  const head = recording.heads[state.head];
  const at = { layer: head.number, head: head.head, row: state.token };
  const result = self.base.sentence ? self.base : await reader.changed({ text: state.text, changes: changesOf(state), order: null, at, edit: editOf(state) });
  if (result.sentence) return tell(self, result.sentence);
  const known = state.cut ? (await reader.changed({ text: state.text, changes: UNCHANGED, order: null, at })).weights : weightsOf(head, "query", state.token).weights;
  if (result.states.length !== self.base.states.length || head.queryCount !== result.weights.length) return undefined; // outdated
  drawGrid(self);
  drawResult(self, head, state, result, known);
  if (!self.alone) switchAlone(self);
  return undefined;
}

function drawGrid(self) {
  const { recording, store } = self;
  const off = new Set(namesOf(store.get().off));
  const switched = (names) => {
    const some = new Set(namesOf(store.get().off));
    const all = names.every((name) => some.has(name));
    names.forEach((name) => (all ? some.delete(name) : some.add(name)));
    store.set({ off: [...some].join(",") });
  };
  const across = Math.max(...recording.heads.map((head) => head.head)) + 1;
  if (self.grid.childElementCount !== recording.heads.length + recording.calls.length) {
    self.grid.style.gridTemplateColumns = `38px repeat(${across}, minmax(0, 1fr))`;
    const rows = recording.calls.map(({ number: layer }) => [layer, Array.from({ length: across }, (_, h) => `${layer}.${h}`)]);
    self.grid.replaceChildren(...rows.flatMap(([layer, names]) => [
      button(`L${layer}`, () => switched(names), { class: "layer", "aria-label": `all heads of layer ${layer}` }),
      ...names.map((name) => button("", () => switched([name]), { "data-head": name })),
    ]));
  }
  const largest = Math.max(1e-9, ...Object.values(self.alone ?? {}));
  self.grid.querySelectorAll("[data-head]").forEach((cell, i) => {
    const [name, turn] = [cell.dataset.head, self.alone?.[cell.dataset.head]];
    const said = turn === undefined ? "" : `, alone it turns the vector by 1 − ${number(1 - turn, 4)}`;
    cell.setAttribute("aria-pressed", String(!off.has(name)));
    cell.setAttribute("aria-label", `L${name.replace(".", "H")} ${off.has(name) ? "off" : "on"}${said}`);
    cell.title = `L${name.replace(".", "H")}${turn === undefined ? "" : `: without it alone the cosine is ${number(1 - turn, 4)}`}`;
    cell.style.setProperty("--share", `${Math.round((90 * (turn ?? 0)) / largest)}%`);
    cell.tabIndex = i ? -1 : 0;
  });
  const count = recording.heads.length;
  const cut = store.get().cut ? "; the cut arcs are cut here, too" : "";
  tell(self, `${off.size ? `${off.size} of ${count} heads are off` : `all ${count} heads are on`}${cut}${off.size || self.alone ? "" : "; each is being switched off alone …"}`);
}

// Each head switched off separately, one after the other, so that a text typed meanwhile waits for at most one of them.
async function switchAlone(self) {
  const { base, recording, reader, store } = self;
  const turn = (self.turn += 1);
  const found = {};
  if (base.states.length / base.width > ALONE) return tell(self, `Of texts with more than ${ALONE} tokens no head is switched off alone.`);
  for (const { number: layer, head } of recording.heads) {
    const result = await reader.changed({ text: base.text, changes: { ...UNCHANGED, off: [[layer, head]] }, order: null, at: null });
    if (turn !== self.turn || self.base !== base || store.get().panel !== "switches" || result.sentence) return undefined;
    found[`${layer}.${head}`] = Math.max(0, 1 - cosine(result.mean, base.mean));
  }
  self.alone = found;
  return drawGrid(self);
}

function drawResult(self, head, state, result, known) {
  const { base } = self;
  const turned = cosine(result.mean, base.mean);
  const [now, before] = [rowsOf(result.states, result.width), rowsOf(base.states, base.width)];
  const moved = now.map((vector, i) => 1 - cosine(vector, before[i]));
  const words = make("p", { className: "moved", attributes: { dir: "auto" } }, ...moved.slice(0, WORDS).flatMap((turn, i) => {
    const word = make("bdi", { text: label(head.queries[i], 40), attributes: { title: `cosine ${number(1 - turn, 4)}` } });
    word.style.setProperty("--share", `${Math.round(100 * Math.sqrt(Math.min(1, Math.max(0, turn))))}%`);
    word.classList.toggle("own", i === state.token);
    return [word, " "];
  }));
  const after = result.weights;
  const name = numberedLabels(head.keys);
  const strongest = Array.from(after.keys()).sort((a, b) => Math.max(after[b], known[b]) - Math.max(after[a], known[a])).slice(0, SHOWN);
  self.result.replaceChildren(make("h2", { text: "The sentence's vector" }),
    make("p", { className: "large-number" }, make("b", { text: number(turned, 4), attributes: { "data-cosine": "" } }), make("span", { className: "quiet", text: "cosine to the vector of the model as it is" })),
    make("p", { className: "quiet", text: "Each word's own vector, the darker the farther it turned:" }), words,
    make("h2", { text: `What “${label(head.queries[state.token], 24)}” attends to in ${head.name}` }),
    table("weights as the model is, and as it is set here", ["key", "as the model is", "as set here"], strongest.map((j) => [make("bdi", { text: name(j) }), barred(number(known[j], 3), known[j]), barred(number(after[j], 3), after[j])])));
}
