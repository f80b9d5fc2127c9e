import { mount } from "../../lens/viewer/web/main.js";
import { bottleneckElsewhere } from "./lessons/elsewhere.js";
import { joiningPanel, SIZES } from "./lessons/joining.js";
import { STATES, statesPanel, trainedLayers } from "./lessons/states.js";
import { REWEIGHT, reweightPanel } from "./lessons/reweight.js";
import { SWITCHES, switchesPanel } from "./lessons/switches.js";
import { startLive } from "./live.js";
import { SENTENCE, startTyping } from "./typing.js";
import { createWorkerReader } from "./worker_reader.js";

// The page of an encoder: the recording follows the sentence once the model is there.
startLive(({ root, recording, description }) => {
  const reader = createWorkerReader(document, description.blocks);
  const store = mount(root, recording, { fields: [SENTENCE, ...STATES, ...SIZES, ...SWITCHES, ...REWEIGHT], panels: [statesPanel(trainedLayers(document)), bottleneckElsewhere, joiningPanel(reader), switchesPanel(reader), reweightPanel(reader)] });
  startTyping(root, recording, store, description, reader);
});
