import { open, embedded } from "../../lens/viewer/web/data/data.js";
import { mount } from "../../lens/viewer/web/main.js";
import { createServedReader } from "./served_reader.js";
import { STATES, statesPanel, trainedLayers } from "./lessons/states.js";
import { REWEIGHT, reweightPanel } from "./lessons/reweight.js";
import { SENTENCE, startTyping } from "./typing.js";

// The page whose model runs in Python, behind it.
open(embedded(document)).then((recording) => {
  document.documentElement.className = "live";
  document.getElementById("still").remove();
  const root = document.getElementById("viewer");
  const store = mount(root, recording, { fields: [SENTENCE, ...STATES, ...REWEIGHT], panels: [statesPanel(trainedLayers(document)), reweightPanel(null)] });
  startTyping(root, recording, store, JSON.parse(document.getElementById("live").textContent), createServedReader());
});
