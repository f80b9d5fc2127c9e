import { mount } from "../../lens/viewer/web/main.js";
import { STATES, statesPanel, trainedLayers } from "./lessons/states.js";
import { REWEIGHT, reweightPanel } from "./lessons/reweight.js";
import { startLive, tellStory } from "./live.js";
import { EXAMPLES } from "./typing/examples.js";
import { createServedReader } from "./served_reader.js";
import { SENTENCE, startTyping } from "./typing/typing.js";

// The page whose model runs in Python on this machine.
startLive(({ root, recording, description }) => {
  const store = mount(root, recording, { titled: false, fields: [SENTENCE, ...STATES, ...REWEIGHT], panels: [statesPanel(trainedLayers(document)), reweightPanel(null)] });
  startTyping(root, recording, store, description, createServedReader(), EXAMPLES);
  tellStory(store);
});
