import { weightOf } from "../data/exact.js";
import { between, channelsOf, shade } from "../../../../drawing/web/colours.js";
import { theme } from "../../../../drawing/web/theme.js";

// Colours from weights. Maps are bytes on a logarithmic scale, and a colour scale is a table from such bytes to colours: another
// palette or scale needs no new data.

// The page's own blue fits its background, light or dark. The other palettes increase in lightness and are readable without hue;
// cividis, viridis and magma are public-domain tables.
const RAMPS = {
  cividis: "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838",
  viridis: "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  magma: "000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 d0416f e75263 f56b5c fc8961 fea772 fec488 fde2a3 fcfdbf",
  greys: "111417 1c1f23 282b30 34373c 404449 4d5156 5a5e63 676b70 75797e 83878b 919598 a0a3a6 afb2b4 bec1c2 cdcfd0 dcdedf f4f5f5",
};
export const PALETTES = ["blue", ...Object.keys(RAMPS)];
const NOT_A_NUMBER = { magma: [0, 200, 170] };

const tables = new Map();

// The 256 colours of a palette.
function tableOf(palette) {
  const name = RAMPS[palette] ? palette : theme();
  if (!tables.has(name)) {
    const ramp = RAMPS[palette] && channelsOf(RAMPS[palette]);
    tables.set(name, Array.from({ length: 256 }, (_, i) => (ramp ? between(ramp, i / 255) : shade(i / 255))));
  }
  return tables.get(name);
}

// The colour at a share of a scale: from 0 to 1, or of signed weights from −1 to 1.
export const colourAt = (share, scale) => (scale.signed ? shade(share) : tableOf(scale.palette)[Math.round(255 * Math.max(0, Math.min(1, share)))]);

// The position of a weight between the ends of a scale, 0 to 1. The logarithmic scale begins an octave or so below equal weights.
export function shareOf(weight, { colour, minimum, maximum }) {
  if (colour === "linear") return Math.max(0, Math.min(1, weight / maximum));
  return Math.max(0, Math.min(1, Math.log(weight / minimum) / Math.log(maximum / minimum)));
}

export const weightAt = (share, { colour, minimum, maximum }) => (colour === "linear" ? share * maximum : minimum * (maximum / minimum) ** share);

const LARGEST = new WeakMap(); // LARGEST: each head's largest weight, cached because a map has a million cells

function largestOf(head) {
  if (!LARGEST.has(head)) LARGEST.set(head, head.base ? Math.max(0, ...Array.from(new Set(head.base.max), (code) => Math.abs(weightOf(code, head.signed))).filter((each) => each === each)) : Math.abs(head.links.weights[0] ?? 1));
  return LARGEST.get(head);
}

// The scale for a head: from an eighth of equal weights, or linearly from zero, to its largest weight.
export function scaleOf(head, { colour, palette }) {
  const largest = largestOf(head);
  if (head.signed) return { colour, palette, signed: true, maximum: Math.max(largest, 1e-6), minimum: Math.max(largest, 1e-6) / 1024 };
  const maximum = Math.min(1, Math.max(largest, 1e-6));
  return { colour, palette, maximum, minimum: Math.min(1 / Math.max(1, head.keyCount) / 8, maximum / 64) };
}

export function colourOf(weight, scale) {
  if (weight !== weight) return NOT_A_NUMBER[scale.palette] ?? [232, 32, 84];
  return colourAt((scale.signed ? Math.sign(weight) : 1) * shareOf(Math.abs(weight), scale) || 0, scale);
}

// The colours of all 256 bytes as 32-bit pixels. Zero is transparent, so masked weights show the background.
export function pixelsOf(scale) {
  const pixels = new Uint32Array(256);
  for (let code = 1; code < 256; code++) {
    const [r, g, b] = colourOf(weightOf(code, scale.signed), scale);
    pixels[code] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return pixels;
}
