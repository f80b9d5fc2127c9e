// Colours from numbers. Every ramp rises in lightness all the way, so it reads without its hue; the two hues for the
// two signs are Okabe and Ito's blue and vermillion, which no common colour blindness confuses.
import { theme } from "../../../drawing/web/theme.js";

const RAMPS = {
  light: { plus: ["#f3f1ea", "#c4dceb", "#6aaed6", "#0072b2", "#00355c"], minus: ["#f3f1ea", "#f9d9bd", "#ee9a55", "#d55e00", "#6e2f00"] },
  dark: { plus: ["#1d222b", "#1d4258", "#2a7bab", "#56b4e9", "#dff2ff"], minus: ["#1d222b", "#5a3a10", "#a86b00", "#e69f00", "#ffe6b0"] },
};

const channels = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));

// The colour of a share from -1 to 1, as red, green, blue.
export function shade(share) {
  if (!Number.isFinite(share)) return [128, 128, 128];
  const ramp = RAMPS[theme()][share < 0 ? "minus" : "plus"];
  const position = Math.min(Math.abs(share), 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(position), ramp.length - 2);
  const [from, to] = [channels(ramp[low]), channels(ramp[low + 1])];
  return from.map((value, i) => Math.round(value + (to[i] - value) * (position - low)));
}
