import { heads } from "./heads.js";
import { map } from "./map.js";
import { textPanel } from "./text.js";
import { stepsPanel } from "./steps.js";
import { linksPanel } from "./links.js";
import { honestyPanel } from "./honesty.js";
import { savePanel } from "./export.js";

// The panels, in the order in which they stand. Each is { name, title, place, mount(root, recording, store) }, where `place` is
// "left", "centre" or "right"; those on the right are tabs, of which state.panel names the one in sight.
export const PANELS = [heads, map, textPanel, stepsPanel, linksPanel, honestyPanel, savePanel];
