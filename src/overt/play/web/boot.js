import { open, embedded } from "../../lens/viewer/web/data/data.js";
import { mount } from "../../lens/viewer/web/main.js";
import { joiningPanel, SIZES } from "./lessons/joining.js";
import { STATES, statesPanel, trainedLayers } from "./lessons/states.js";
import { REWEIGHT, reweightPanel } from "./lessons/reweight.js";
import { SWITCHES, switchesPanel } from "./lessons/switches.js";
import { SENTENCE, startTyping } from "./typing.js";
import { createWorkerReader } from "./worker_reader.js";

// The page with a model in it: the recording that Python made is there at once, and follows the sentence once the model is.
open(embedded(document)).then((recording) => {
  document.documentElement.className = "live";
  document.getElementById("still").remove();
  const root = document.getElementById("viewer");
  const description = JSON.parse(document.getElementById("live").textContent);
  const reader = createWorkerReader(document, description.blocks);
  const store = mount(root, recording, { fields: [SENTENCE, ...STATES, ...SIZES, ...SWITCHES, ...REWEIGHT], panels: [statesPanel(trainedLayers(document)), joiningPanel(reader), switchesPanel(reader), reweightPanel(reader)] });
  startTyping(root, recording, store, description, reader);
});
