// Colours from numbers: blue above zero and vermillion below, on cream or on night. Every ramp changes its lightness monotonically, so it
// is readable without its hue; the two hues are distinct with every common colour blindness (Okabe and Ito).
import { theme } from "./theme.js";

const RAMPS = {
  light: { plus: "f3f1ea c4dceb 6aaed6 0072b2 00355c", minus: "f3f1ea f9d9bd ee9a55 d55e00 6e2f00" },
  dark: { plus: "1d222b 1d4258 2a7bab 56b4e9 dff2ff", minus: "1d222b 5a3a10 a86b00 e69f00 ffe6b0" },
};

export const channelsOf = (ramp) => ramp.split(" ").map((hex) => [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16)));

// The colour of a share from 0 to 1 between the colours of a ramp, as red, green, blue.
export function between(colours, share) {
  const position = Math.max(0, Math.min(share, 1)) * (colours.length - 1);
  const low = Math.min(Math.floor(position), colours.length - 2);
  return colours[low].map((value, c) => Math.round(value + (colours[low + 1][c] - value) * (position - low)));
}

const ramps = Object.fromEntries(Object.entries(RAMPS).map(([name, { plus, minus }]) => [name, { plus: channelsOf(plus), minus: channelsOf(minus) }]));

// The colour of a share from −1 to 1.
export function shade(share) {
  if (!Number.isFinite(share)) return [128, 128, 128];
  return between(ramps[theme()][share < 0 ? "minus" : "plus"], Math.abs(share));
}
