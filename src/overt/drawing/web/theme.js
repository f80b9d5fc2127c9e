// Light or dark theme, and colours that are readable on both.

const dark = matchMedia("(prefers-color-scheme: dark)");

export const theme = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// Black or white, whichever has more contrast with the colour, at least 4.5 (relative luminance of WCAG 2.2).
export function inkOn(rgb) {
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

// A drawing context of a canvas of this size in CSS pixels, at the screen's resolution.
export function contextOf(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}
