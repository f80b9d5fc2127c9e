import { mount } from "../../../lens/viewer/web/main.js";
import { REWEIGHT, reweightPanel } from "../lessons/reweight.js";
import { STATES, statesPanel, trainedLayers } from "../lessons/states.js";
import { startLive } from "../live.js";
import { SENTENCE, startTyping } from "../typing.js";
import { createWorkerReader } from "../worker_reader.js";
import { bottleneckPanel } from "./bottleneck.js";
import { MOVED, movedPanel } from "./moved.js";
import { SEARCH, startOutput, writtenPanel } from "./written.js";

// The page of a translator: what it writes follows the sentence, and the recording is its decoder's attention to it.
startLive(({ root, recording, description }) => {
  const reader = createWorkerReader(document, description.blocks);
  const listeners = [];
  reader.stepped = (step) => listeners.forEach((listener) => listener(step));
  const lesson = Object.keys(description.curves).length ? [bottleneckPanel(reader, description.curves, listeners)] : [];
  const panels = [writtenPanel(listeners), statesPanel(trainedLayers(document)), ...lesson, movedPanel(reader, description.shape), reweightPanel(null)];
  const store = mount(root, recording, { fields: [SENTENCE, SEARCH, ...STATES, ...MOVED, ...REWEIGHT], panels });
  let number = 0;
  reader.read = (text) => reader.changed({ text, number: number++, beam: store.get().search === "beam" ? 5 : 1 });
  const typing = startTyping(root, recording, store, description, reader);
  startOutput(root, recording, listeners);
  store.subscribe((state, changed) => changed.has("search") && !changed.has("recording") && state.text !== null && typing.again());
});
