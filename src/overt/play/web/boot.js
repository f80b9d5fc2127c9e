import { mount } from "../../lens/viewer/web/main.js";
import { joiningPanel, SIZES } from "./lessons/joining.js";
import { STATES, statesPanel, trainedLayers } from "./lessons/states.js";
import { REWEIGHT, reweightPanel } from "./lessons/reweight.js";
import { SWITCHES, switchesPanel } from "./lessons/switches.js";
import { CUTS, cutting, editOf, startCutting } from "./cut/cutting.js";
import { startLive, tellStory } from "./live.js";
import { SENTENCE, startTyping } from "./typing/typing.js";
import { EXAMPLES } from "./typing/examples.js";
import { startWhere } from "./where.js";
import { createWorkerReader } from "./worker_reader.js";

// The page of an encoder: the recording follows the sentence after the model is loaded.
startLive(({ root, recording, description }) => {
  const reader = createWorkerReader(document, description.blocks);
  const store = mount(root, recording, { titled: false, cutting, fields: [SENTENCE, ...CUTS, ...STATES, ...SIZES, ...SWITCHES, ...REWEIGHT], panels: [statesPanel(trainedLayers(document)), joiningPanel(reader), reweightPanel(reader), switchesPanel(reader)] });
  startTyping(root, recording, store, description, reader, EXAMPLES);
  startCutting(root, recording, store);
  recording.why = (why) => reader.changed({ text: store.get().text, edit: editOf(store.get()), why });
  startWhere(root, recording, store);
  tellStory(store);
});
