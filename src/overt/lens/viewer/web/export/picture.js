// The visible part of the map as one SVG: few cells as vectors, many as an image, with names, a legend and the facts.
import { colourAt, colourOf, scaleOf, weightAt } from "../map/colour_scale.js";
import { scientific } from "../../../../drawing/web/numbers.js";
import { visibleTiles } from "../data/visible_tiles.js";
import { grouped, label, visible, weightText } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";
import { css, theme } from "../../../../drawing/web/theme.js";

const SIDE = 640; // SIDE: the side of the map, in pixels
const VECTORS = 2500; // VECTORS: the most cells that are drawn as rectangles
const NAMED = 48; // NAMED: the most rows or keys with names

const INKS = { light: { paper: "#ffffff", ink: "#1b2027", quiet: "#59616d" }, dark: { paper: "#171b22", ink: "#e9e6de", quiet: "#9ba4b1" } };

// XML forbids most control characters, but tokens may contain any, so they are replaced as on the page.
const xmlText = (text) => visible(text).replace(/[<>&"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

// { text, width, height } of the state's map.
export function pictureOf({ recording, head, state }) {
  const tiles = visibleTiles(head, state.view, 512);
  tiles.values = state.pool === "mean" ? tiles.mean : tiles.max;
  const scale = scaleOf(head, state);
  const [rows, keys] = [tiles.rowEdges.length - 1, tiles.keyEdges.length - 1];
  const named = tiles.kind === "weights" && Math.max(rows, keys) <= NAMED;
  const size = SIDE / Math.max(tiles.rowEdges[rows] - tiles.rowEdges[0], tiles.keyEdges[keys] - tiles.keyEdges[0], 1);
  const position = { left: named ? 150 : 64, top: named ? 150 : 84, size, rows, keys, named };
  position.width = (tiles.keyEdges[keys] - tiles.keyEdges[0]) * size;
  position.height = (tiles.rowEdges[rows] - tiles.rowEdges[0]) * size;
  const [width, height] = [Math.ceil(Math.max(position.left + position.width + 24, 420)), Math.ceil(position.top + position.height + 84)];
  const ink = INKS[theme()];
  const cells = rows * keys <= VECTORS ? rectangles(tiles, scale, position) : embeddedImage(tiles, scale, position);
  const parts = [titles(recording, head, ink), cells, named ? tokenNames(head, tiles, position, ink) : edgeNames(tiles, position, ink), legend(scale, position, ink), footing(head, tiles, state, position, ink)];
  const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12"><rect width="${width}" height="${height}" fill="${ink.paper}"/>${parts.join("")}</svg>`;
  return { text, width, height };
}

function titles(recording, head, ink) {
  const under = `${head.layer}, head ${head.head}${head.role ? `: ${head.role}` : ""}`;
  return `<text x="24" y="32" font-size="17" font-weight="600" fill="${ink.ink}">${xmlText(head.name)} of ${xmlText(label(recording.title, 60))}</text><text x="24" y="52" fill="${ink.quiet}">${xmlText(under)}</text>`;
}

const rounded = (value) => Number(value.toFixed(2));

function rectangles({ rowEdges, keyEdges, values }, scale, { left, top, size, rows, keys }) {
  const result = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < keys; j++) {
      const weight = values[i * keys + j];
      if (weight === 0) continue;
      const [x, y] = [left + (keyEdges[j] - keyEdges[0]) * size, top + (rowEdges[i] - rowEdges[0]) * size];
      const [wide, high] = [(keyEdges[j + 1] - keyEdges[j]) * size, (rowEdges[i + 1] - rowEdges[i]) * size];
      result.push(`<rect x="${rounded(x)}" y="${rounded(y)}" width="${rounded(wide + 0.2)}" height="${rounded(high + 0.2)}" fill="${css(colourOf(weight, scale))}"/>`);
    }
  }
  return `<g>${result.join("")}</g>`;
}

function embeddedImage({ values }, scale, { left, top, width, height, rows, keys }) {
  const canvas = make("canvas", {});
  [canvas.width, canvas.height] = [keys, rows];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(keys, rows);
  for (let i = 0; i < values.length; i++) image.data.set(values[i] === 0 ? [0, 0, 0, 0] : [...colourOf(values[i], scale), 255], 4 * i);
  pen.putImageData(image, 0, 0);
  const at = `x="${left}" y="${top}" width="${rounded(width)}" height="${rounded(height)}"`;
  return `<image ${at} preserveAspectRatio="none" style="image-rendering:pixelated" href="${canvas.toDataURL()}"/>`;
}

function tokenNames(head, { rowEdges, keyEdges }, { left, top, size, rows, keys }, ink) {
  const font = Math.max(6, Math.min(13, size * 0.8));
  const rowNames = rowEdges.slice(0, rows).map((i, at) => `<text x="${left - 8}" y="${rounded(top + (at + 0.5) * size + font / 3)}" text-anchor="end">${xmlText(label(head.queries[i], 18))}</text>`);
  const keyNames = keyEdges.slice(0, keys).map((j, at) => {
    const x = rounded(left + (at + 0.5) * size + font / 3);
    return `<text transform="translate(${x} ${top - 8}) rotate(-90)">${xmlText(label(head.keys[j], 12))}</text>`;
  });
  return `<g font-size="${rounded(font)}" fill="${ink.ink}">${[...rowNames, ...keyNames].join("")}</g>`;
}

function edgeNames({ rowEdges, keyEdges }, { left, top, width, height, rows, keys }, ink) {
  const [r0, r1, k0, k1] = [rowEdges[0], rowEdges[rows] - 1, keyEdges[0], keyEdges[keys] - 1].map(grouped);
  return `<g fill="${ink.quiet}" font-size="11"><text x="${left}" y="${top - 8}">key ${k0}</text><text x="${rounded(left + width)}" y="${top - 8}" text-anchor="end">${k1}</text><text x="${left - 8}" y="${top + 10}" text-anchor="end">query ${r0}</text><text x="${left - 8}" y="${rounded(top + height)}" text-anchor="end">${r1}</text></g>`;
}

function legend(scale, { left, top, height }, ink) {
  const steps = Array.from({ length: 48 }, (_, i) => {
    const fill = css(colourAt(scale.signed ? (2 * i) / 47 - 1 : i / 47, scale));
    return `<rect x="${left + 4 * i}" y="${rounded(top + height + 22)}" width="4.3" height="9" fill="${fill}"/>`;
  });
  const y = rounded(top + height + 46);
  const ends = scale.signed ? [-scale.maximum, scale.maximum].map(weightText) : [0, 1].map((share) => weightText(weightAt(share, scale)));
  return `${steps.join("")}<g font-size="11" fill="${ink.quiet}"><text x="${left}" y="${y}">${ends[0]}</text><text x="${left + 192}" y="${y}" text-anchor="end">${ends[1]}</text><text x="${left + 204}" y="${rounded(top + height + 31)}">${scale.signed ? "signed weight" : "weight"}, ${scale.colour}</text></g>`;
}

function footing(head, { kind, rowEdges }, state, { left, top, height }, ink) {
  const cells = kind === "weights" ? "each cell is one weight" : `a cell is the ${state.pool === "mean" ? "mean" : "largest"} of up to ${grouped((rowEdges[1] - rowEdges[0]) ** 2)} weights`;
  const checked = Number.isNaN(head.residual) ? "" : `; recomputed vs. model ${scientific(head.residual)}, bound ${scientific(head.bound)}`;
  return `<text x="${left}" y="${rounded(top + height + 66)}" font-size="11" fill="${ink.quiet}">${xmlText(`rows are queries, columns are keys; ${cells}${checked}`)}</text>`;
}
