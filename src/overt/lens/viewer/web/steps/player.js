// The steps as a row of buttons, with a button that plays them in order.
import { button, make } from "../../../../drawing/web/elements.js";
import { stagesOf } from "./step_text.js";

const HOLD_FOR = 3400; // HOLD_FOR: ms per step while the steps play

export function mountPlayer(root, recording, store) {
  const [icon, name, list] = [make("i", { attributes: { "aria-hidden": "true" } }), make("span"), make("ol", { className: "stages" })];
  const play = make("button", { className: "play", attributes: { type: "button" }, on: { click: () => store.set({ playing: !store.get().playing }) } }, icon, name);
  const skip = make("button", { className: "linklike", text: "skip to the picture", attributes: { type: "button" }, on: { click: () => store.set({ step: last(), playing: false }) } });
  let timer = 0;
  const stages = () => (recording.heads[store.get().head].exact ? stagesOf(recording.heads[store.get().head], 0) : []);
  const last = () => stages().length - 1;
  const next = () => (store.get().step >= last() ? store.set({ playing: false }) : store.set({ step: store.get().step + 1 }));
  const draw = () => {
    const { step, playing } = store.get();
    [icon.textContent, name.textContent] = playing ? ["❚❚", "Pause"] : ["▶", "Play"];
    root.hidden = last() < 0;
    skip.hidden = step >= last();
    const now = Math.min(step, last());
    list.replaceChildren(...stages().map((stage, i) => {
      const attributes = { title: stage.title, "aria-label": `step ${stage.number}: ${stage.title}`, ...(i === now ? { "aria-current": "step" } : {}) };
      const each = button("", () => store.set({ step: i, playing: false }), attributes);
      each.className = i === now ? "now" : i < now ? "past" : "";
      each.append(make("i", { text: String(stage.number) }), make("span", { text: stage.title }));
      return make("li", {}, each);
    }));
  };
  store.subscribe((state, changed) => {
    if (changed.has("playing") && state.playing !== Boolean(timer)) {
      clearInterval(timer);
      timer = state.playing ? setInterval(next, HOLD_FOR) : 0;
      if (state.playing) store.set({ step: state.step >= last() ? 0 : state.step + 1 });
    }
    if (!["head", "step", "playing", "batch"].some((each) => changed.has(each))) return;
    const focused = list.contains(document.activeElement);
    draw();
    if (focused) list.querySelector(".now")?.focus();
  });
  root.append(play, list, skip);
  draw();
}
