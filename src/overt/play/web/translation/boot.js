import { mount } from "../../../lens/viewer/web/main.js";
import { REWEIGHT, reweightPanel } from "../lessons/reweight.js";
import { STATES, statesPanel, trainedLayers } from "../lessons/states.js";
import { CUTS, cutting, editOf, startCutting } from "../cut/cutting.js";
import { startLive, tellStory } from "../live.js";
import { SENTENCE, startTyping } from "../typing/typing.js";
import { TRANSLATED } from "../typing/examples.js";
import { startWhere } from "../where.js";
import { createWorkerReader } from "../worker_reader.js";
import { bottleneckPanel } from "./bottleneck.js";
import { MOVED, movedPanel } from "./moved.js";
import { SEARCH, startOutput, writtenPanel } from "./written.js";

// The page of a translator: its translation follows the sentence; the recording is its decoder's attention to the source.
startLive(({ root, recording, description }) => {
  const reader = createWorkerReader(document, description.blocks);
  const listeners = [];
  reader.stepped = (step) => listeners.forEach((listener) => listener(step));
  const lesson = Object.keys(description.curves).length ? [bottleneckPanel(reader, description.curves, listeners)] : [];
  const panels = [writtenPanel(listeners), statesPanel(trainedLayers(document)), ...lesson, reweightPanel(null), movedPanel(reader, description.shape)];
  const store = mount(root, recording, { titled: false, cutting, fields: [SENTENCE, ...CUTS, SEARCH, ...STATES, ...MOVED, ...REWEIGHT], panels });
  let number = 0;
  const beam = () => (store.get().search === "beam" ? 5 : 1);
  reader.read = (text, edit) => reader.changed({ text, edit, number: number++, beam: beam() });
  recording.why = (why) => reader.changed({ text: store.get().text, edit: editOf(store.get()), beam: beam(), why });
  const typing = startTyping(root, recording, store, description, reader, TRANSLATED);
  startOutput(root, recording, listeners);
  startCutting(root, recording, store);
  startWhere(root, recording, store, { first: ["source", `encoder, ${description.shape.layers} layers`, "what is written"], last: "next word" });
  tellStory(store);
  store.subscribe((state, changed) => changed.has("search") && !changed.has("recording") && state.text !== null && typing.again());
});
