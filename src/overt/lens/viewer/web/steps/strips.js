// The legend of the strips' colours: a line with their scale and the number under the pointer or of the focused strip.
import { drawStrip } from "./bars.js";
import { number } from "../../../../drawing/web/numbers.js";
import { make } from "../../../../drawing/web/elements.js";

const STEPS = Array.from({ length: 41 }, (_, i) => i / 20 - 1);

// A legend's colour ramp from one number to another.
export function rampOf(low, high, shares = STEPS) {
  const canvas = make("canvas", { className: "key-ramp", attributes: { "aria-hidden": "true" } });
  return { nodes: [`${low} `, canvas, ` ${high}`], draw: () => drawStrip(canvas, shares, 1) };
}

// Describes the strips in `root`: canvases with a property `strip`, { values, name }.
export function stripReader(root) {
  const line = make("p", { className: "quiet strip-line" });
  const [scale, told] = [make("span"), make("span", { attributes: { "aria-live": "polite" } })];
  line.append(scale, told);
  let at = 0;
  const tell = (canvas, d) => {
    const { values, name } = canvas?.strip ?? {};
    if (!values) return void (told.textContent = " Point at a strip, or go to it with Tab and the arrow keys, for its numbers.");
    at = Math.max(0, Math.min(values.length - 1, d));
    told.textContent = ` ${name}, number ${at + 1} of ${values.length}: ${number(values[at], 3)}`;
  };
  const stripAt = (event) => event.target.closest?.("canvas.strip");
  root.addEventListener("pointermove", (event) => {
    const canvas = stripAt(event);
    if (canvas?.strip) tell(canvas, Math.floor((event.offsetX / canvas.clientWidth) * canvas.strip.values.length));
    else if (!stripAt({ target: document.activeElement })) tell(null);
  });
  root.addEventListener("focusin", (event) => tell(stripAt(event), 0));
  root.addEventListener("focusout", () => tell(null));
  root.addEventListener("keydown", (event) => {
    const [canvas, by] = [stripAt(event), { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key]];
    if (!canvas || !by) return;
    tell(canvas, at + by);
    event.preventDefault();
    event.stopPropagation();
  });
  tell(null);
  return {
    line,
    show(most, text) {
      const ramp = rampOf(`−${number(most)}`, number(most));
      scale.replaceChildren(...ramp.nodes, text);
      ramp.draw();
    },
  };
}
