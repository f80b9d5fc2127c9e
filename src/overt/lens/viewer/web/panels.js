import { heads } from "./heads/heads.js";
import { map } from "./map/map.js";
import { textPanel } from "./text/text.js";
import { stepsPanel } from "./steps/steps.js";
import { linksPanel } from "./tables/links.js";
import { checksPanel } from "./tables/checks.js";
import { savePanel } from "./export/export.js";

// The panels, in the order in which they stand. Each is { name, title, place, mount(root, recording, store) }, where `place` is
// "left", "centre" or "right"; those on the right are tabs, of which state.panel names the one in sight.
export const PANELS = [heads, map, textPanel, stepsPanel, linksPanel, checksPanel, savePanel];
