import { weightOf } from "../data/exact.js";

// Colours from weights. Maps are bytes on a logarithmic scale, and a colour scale is a table from such bytes to colours: another
// palette or scale needs no new data.

// Every palette rises in lightness all the way and reads without its hue; cividis, viridis and magma are public-domain tables.
const ANCHORS = {
  cividis: "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838",
  viridis: "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  magma: "000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 d0416f e75263 f56b5c fc8961 fea772 fec488 fde2a3 fcfdbf",
  greys: "111417 1c1f23 282b30 34373c 404449 4d5156 5a5e63 676b70 75797e 83878b 919598 a0a3a6 afb2b4 bec1c2 cdcfd0 dcdedf f4f5f5",
};
export const PALETTES = Object.keys(ANCHORS);
const NOT_A_NUMBER = { cividis: [232, 32, 84], viridis: [232, 32, 84], magma: [0, 200, 170], greys: [232, 32, 84] };

const tables = new Map();

// The 256 colours of a palette, three bytes each.
export function tableOf(palette) {
  const name = ANCHORS[palette] ? palette : "cividis";
  if (!tables.has(name)) {
    const anchors = ANCHORS[name].split(" ").map((hex) => [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16)));
    const table = new Uint8Array(768);
    for (let i = 0; i < 256; i++) {
      const position = (i / 255) * (anchors.length - 1);
      const low = Math.min(anchors.length - 2, Math.floor(position));
      for (let c = 0; c < 3; c++) table[3 * i + c] = Math.round(anchors[low][c] + (anchors[low + 1][c] - anchors[low][c]) * (position - low));
    }
    tables.set(name, table);
  }
  return tables.get(name);
}

// Signed weights have colours that diverge around zero: vermillion for negative ones, blue for positive ones, neutral between.
const DIVERGING = "7f2704 b84f0c e07527 f2a766 f7d5b5 f4f3ef bfd8ec 7fb2dc 3f7fbd 1d5496 08306b".split(" ").map((hex) => [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16)));

// The colour of a signed share, from −1 to 1.
export function divergingColour(share) {
  const position = ((share + 1) / 2) * (DIVERGING.length - 1);
  const low = Math.max(0, Math.min(DIVERGING.length - 2, Math.floor(position)));
  return DIVERGING[low].map((value, c) => Math.round(value + (DIVERGING[low + 1][c] - value) * (position - low)));
}

// Where a weight stands between the ends of a scale, 0 to 1. The logarithmic scale begins an octave or so below equal weights.
export function shareOf(weight, { colour, minimum, maximum }) {
  if (colour === "linear") return Math.max(0, Math.min(1, weight / maximum));
  return Math.max(0, Math.min(1, Math.log(weight / minimum) / Math.log(maximum / minimum)));
}

export const weightAt = (share, { colour, minimum, maximum }) => (colour === "linear" ? share * maximum : minimum * (maximum / minimum) ** share);

const LARGEST = new WeakMap(); // of each head: a map has a million cells, and every panel reads it

function largestOf(head) {
  if (!LARGEST.has(head)) LARGEST.set(head, head.base ? Math.max(0, ...Array.from(new Set(head.base.max), (code) => Math.abs(weightOf(code, head.signed))).filter((each) => each === each)) : Math.abs(head.links.weights[0] ?? 1));
  return LARGEST.get(head);
}

// The scale for a head: from an eighth of what equal weights would be, or linearly from zero, to its largest weight.
export function scaleOf(head, { colour, palette }) {
  const largest = largestOf(head);
  if (head.signed) return { colour, palette, signed: true, maximum: Math.max(largest, 1e-6), minimum: Math.max(largest, 1e-6) / 1024 };
  const maximum = Math.min(1, Math.max(largest, 1e-6));
  return { colour, palette, maximum, minimum: Math.min(1 / Math.max(1, head.keyCount) / 8, maximum / 64) };
}

export function colourOf(weight, scale) {
  if (weight !== weight) return NOT_A_NUMBER[scale.palette] ?? NOT_A_NUMBER.cividis;
  if (scale.signed) return weight === 0 ? divergingColour(0) : divergingColour(Math.sign(weight) * shareOf(Math.abs(weight), scale));
  const position = 3 * Math.round(255 * shareOf(Math.abs(weight), scale));
  return [...tableOf(scale.palette).subarray(position, position + 3)];
}

// The colours of all 256 bytes as 32-bit pixels. Zero is left clear: masked weights show the background.
export function pixelsOf(scale) {
  const pixels = new Uint32Array(256);
  for (let code = 1; code < 256; code++) {
    const [r, g, b] = colourOf(weightOf(code, scale.signed), scale);
    pixels[code] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return pixels;
}
