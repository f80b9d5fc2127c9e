// The page's state of choices, which every panel reads, changes and observes; the page's address carries it, so a link restores it.
//
// { head, batch, token, key, side, pool, colour, palette, view, panel, step, playing, sort, filter, theme }. `head` is an index in
// recording.heads; `token` is a query if `side` is "query", a key if it is "key"; `view` is [r0, r1, k0, k1], null for all.
// A page may have more `fields`, each { name, initial, read, write }: `read` returns the value of a text in the address, undefined if the
// text is invalid; `write` returns the text for the address, which omits fields with their initial values.

import { contentToken } from "./data/content.js";

const CHOICES = { side: ["query", "key"], pool: ["max", "mean"], colour: ["linear", "log"], theme: ["auto", "light", "dark"] };
const WORDS = ["palette", "panel", "sort", "filter"];
const HOLD = 320; // HOLD: the least ms between two changes of the address; browsers refuse more than 100 in 30 s

export function createStore(recording, fields = [], page = window) {
  const listeners = new Set();
  let [said, wanted] = fromHash(recording, fields, page.location.hash);
  let state = settled(recording, {}, { ...startOf(recording), ...Object.fromEntries(fields.map(({ name, initial }) => [name, initial])), ...said });
  let timer = 0, seen = page.location.hash;
  const write = () => {
    timer = 0;
    if (page.location.hash !== seen) return; // another address was entered: its event, which reads it, is still to come
    const hash = toHash(recording, fields, state);
    if (hash !== seen && addressed(page)) page.history.replaceState(null, "", hash);
    seen = page.location.hash;
  };
  const apply = (patch) => {
    const next = settled(recording, state, patch);
    const changed = new Set(Object.keys(next).filter((name) => String(next[name]) !== String(state[name])));
    if (!changed.size) return;
    state = next;
    for (const listener of [...listeners]) listener(state, changed);
    if (!timer) timer = setTimeout(write, HOLD);
  };
  // Draws everything again for a replaced recording, and adapts the choices to it.
  const replaced = (patch) => {
    state = settled(recording, {}, { ...state, playing: false, ...patch });
    const changed = new Set([...Object.keys(state), "recording"]);
    for (const listener of [...listeners]) listener(state, changed);
    if (!timer) timer = setTimeout(write, HOLD);
  };
  page.addEventListener?.("hashchange", () => {
    seen = page.location.hash;
    [said, wanted] = fromHash(recording, fields, seen);
    apply(said);
  });
  return {
    get: () => state,
    set: apply,
    replaced,
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    said: () => ({ ...said, wanted }), // the address as last read; `wanted` names a head and a word that may not exist yet
    link: () => page.location.href.split("#")[0] + toHash(recording, fields, state),
  };
}

// Whether the page has an address that can be written; a notebook's frame has none.
export const addressed = (page = window) => /^(file|https?):$/.test(page.location.protocol);

function startOf(recording) {
  const head = recording.start;
  return {
    head, batch: recording.heads[head].batch, token: recording.opened?.token ?? contentToken(recording.heads[head]), key: null, side: "query", pool: "max",
    colour: recording.longest > 128 ? "log" : "linear", palette: "blue", view: null, panel: "steps", step: 9, playing: false, sort: "layer", filter: "all",
    theme: "auto", embed: false,
  };
}

// A head's name in the address.
export const nameOf = ({ number, head }) => `${number}.${head}`;

// The state after a change, with all choices adapted to the chosen head.
function settled(recording, state, patch) {
  const next = { ...state, ...patch };
  if ("batch" in patch && !("head" in patch) && patch.batch !== state.batch) next.head = twin(recording, next.head, patch.batch);
  if (!(next.head in recording.heads)) next.head = recording.start;
  const head = recording.heads[next.head];
  next.batch = head.batch;
  // A pair belongs to the chosen token, so another token begins without one.
  if (!("key" in patch) && (("token" in patch && patch.token !== state.token) || ("side" in patch && patch.side !== state.side))) next.key = null;
  const before = recording.heads[state.head];
  if (before && !("view" in patch) && (before.queryCount !== head.queryCount || before.keyCount !== head.keyCount)) next.view = null;
  const maximum = (next.side === "query" ? head.queryCount : head.keyCount) - 1;
  next.token = Math.max(0, Math.min(maximum, Math.round(next.token) || 0));
  if (next.key !== null) next.key = Math.max(0, Math.min(head.keyCount - 1, next.key));
  return next;
}

// The store of one of two compared texts: a choice in the other text is mapped to this one by head and by word.
export function pinned(store, recording, batch) {
  const get = () => {
    const state = store.get();
    if (state.batch === batch) return state;
    const [from, head] = [recording.heads[state.head], twin(recording, state.head, batch)];
    const to = recording.heads[head];
    const sides = state.side === "query" ? [from.queries, to.queries] : [from.keys, to.keys];
    return { ...state, batch, head, token: matching(...sides, state.token, recording.story?.words[batch] ?? 0), key: state.key === null ? null : matching(from.keys, to.keys, state.key, null) };
  };
  return { ...store, get, set: (patch) => store.set({ batch, head: get().head, token: get().token, ...patch }) };
}

// The position of the same occurrence of the word in another text.
function matching(words, others, i, otherwise) {
  const places = (list) => list.flatMap((word, j) => (word === words[i] ? [j] : []));
  return places(others)[places(words).indexOf(i)] ?? otherwise;
}

// The same head of another batch entry.
export function twin(recording, index, batch) {
  const { number, head } = recording.heads[index];
  const result = recording.heads.findIndex((each) => each.batch === batch && each.number === number && each.head === head);
  return result < 0 ? index : result;
}

function toHash(recording, fields, state) {
  const head = recording.heads[state.head];
  const said = { head: nameOf(head), batch: state.batch, token: state.token };
  for (const name of ["side", "pool", "colour", "palette", "panel", "step", "sort", "filter", "theme"]) said[name] = state[name];
  for (const { name, initial, write } of fields) if (String(state[name]) !== String(initial)) said[name] = write(state[name]);
  if (state.embed) said.embed = 1;
  if (state.key !== null) said.key = state.key;
  if (state.view) said.view = state.view.map((edge) => Number(edge.toFixed(2))).join(",");
  const written = (value) => encodeURIComponent(String(value).replace(/\p{Surrogate}/gu, "\ufffd")).replaceAll("%2C", ",");
  return `#${Object.entries(said).filter(([, value]) => value !== "").map(([name, value]) => `${name}=${written(value)}`).join("&")}`;
}

// The valid choices in an address, and the names of the head and the word that it asks for.
function fromHash(recording, fields, hash) {
  const said = Object.fromEntries(new URLSearchParams(hash.slice(1)));
  const result = {};
  for (const [name, choices] of Object.entries(CHOICES)) if (choices.includes(said[name])) result[name] = said[name];
  for (const name of WORDS) if (/^[\w .-]{1,40}$/.test(said[name] ?? "")) result[name] = said[name];
  for (const name of ["token", "step"]) if (/^\d{1,9}$/.test(said[name] ?? "")) result[name] = Number(said[name]);
  for (const { name, read } of fields) {
    const value = name in said ? read(said[name]) : undefined;
    if (value !== undefined) result[name] = value;
  }
  if (said.embed === "1") result.embed = true;
  const named = said.head ?? nameOf(recording.heads[recording.start]);
  const head = recording.heads.findIndex((each) => nameOf(each) === named && String(each.batch) === (said.batch ?? "0"));
  if (head >= 0 && ("head" in said || "batch" in said)) result.head = head;
  const word = said.word?.slice(0, 80);
  if (word && !("token" in result)) result.token = Math.max(0, (result.side === "key" ? recording.heads[result.head ?? recording.start].keys : recording.heads[result.head ?? recording.start].queries).indexOf(word));
  if (/^\d{1,9}$/.test(said.key ?? "")) result.key = Number(said.key);
  else if (said.head) result.key = null;
  const view = (said.view ?? "").split(",").map(Number);
  if (view.length === 4 && view.every(Number.isFinite) && view[0] < view[1] && view[2] < view[3]) result.view = view;
  else if (said.head) result.view = null;
  return [result, { word, head: said.head }];
}
