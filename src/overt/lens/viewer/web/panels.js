import { mountHeads } from "./heads/heads.js";
import { mountWordHeads } from "./heads/word_heads.js";
import { mountMap } from "./map/map.js";
import { mountPlayer } from "./steps/player.js";
import { mountSteps } from "./steps/steps.js";
import { linksPanel } from "./tables/links.js";
import { checksPanel } from "./tables/checks.js";
import { savePanel } from "./export/export.js";
import { pinned } from "./store.js";
import { make } from "../../../drawing/web/elements.js";

// The stores of the texts side by side: one, or two compared ones.
export const storesOf = (recording, store) => (recording.story?.compared ? recording.batch.map((batch) => pinned(store, recording, batch)) : [store]);

// The first view: the steps of the chosen word, and the word in all heads.
const stepsTab = {
  name: "steps",
  title: "Steps",
  mount(root, recording, store) {
    const player = make("div", { className: "player" });
    root.append(player);
    mountPlayer(player, recording, store);
    const words = make("div", { className: "words" });
    root.append(words);
    for (const each of storesOf(recording, store)) {
      const [steps, heads] = [make("section", { className: "card" }), make("div", { className: "beside" })];
      words.append(make("div", { className: "word" }, steps, heads));
      mountSteps(steps, recording, each);
      mountWordHeads(heads, recording, each);
    }
  },
};

// Every head as a small map, and the chosen one in full.
const mapTab = {
  name: "map",
  title: "Map",
  mount(root, recording, store) {
    const [heads, map] = [make("aside", { className: "heads", attributes: { "aria-label": "Heads" } }), make("div", { className: "map" })];
    root.append(heads, map);
    mountHeads(heads, recording, store);
    mountMap(map, recording, store);
  },
};

// The tabs below the text, in order. Each is { name, title, mount(root, recording, store) }; state.panel names the visible one.
export const PANELS = [stepsTab, mapTab, linksPanel, checksPanel, savePanel];
