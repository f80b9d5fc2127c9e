import { codeOf, weightOf, ZERO } from "./exact.js";
import { pixelsOf } from "../map/colour_scale.js";

// The maps of one head as pictures ready to draw: the base map, coarser levels of it, and finer exact tiles.

const SIDE = 128; // SIDE: cells of a tile along each side
const STEPS = [1, 2, 4, 8]; // STEPS: weights along each side of a tile's cell
const CACHED = 360; // CACHED: the most stored tiles

// The next coarser level: pairs of cells joined by their largest or their mean. NaN stays NaN, the strongest stays visible. `span`
// is the number of base cells of one cell along each side.
export function coarser({ rows, columns, codes, span = 1 }, pool, signed = false) {
  const values = signed ? SIGNED_VALUES : VALUES;
  const [high, wide] = [Math.ceil(rows / 2), Math.ceil(columns / 2)];
  const result = new Uint8Array(high * wide);
  for (let r = 0; r < high; r++) {
    for (let c = 0; c < wide; c++) {
      const right = 2 * c + 1 < columns;
      const first = 2 * r * columns + 2 * c;
      const four = [codes[first], right ? codes[first + 1] : codes[first]];
      if (2 * r + 1 < rows) four.push(codes[first + columns], right ? codes[first + columns + 1] : codes[first + columns]);
      if (four.includes(255)) result[r * wide + c] = 255;
      else if (pool === "max") result[r * wide + c] = signed ? strongest(four) : Math.max(...four);
      else result[r * wide + c] = four.every((code) => code === 0) ? 0 : codeOf(four.reduce((sum, code) => sum + values[code], 0) / four.length, signed);
    }
  }
  return { rows: high, columns: wide, codes: result, span: 2 * span };
}

const [VALUES, SIGNED_VALUES] = [false, true].map((signed) => Float64Array.from({ length: 256 }, (_, code) => weightOf(code, signed)));

// The code of the largest size; 0 is masked.
const strongest = (codes) => codes.reduce((best, code) => (code !== 0 && (best === 0 || Math.abs(code - ZERO) > Math.abs(best - ZERO)) ? code : best), 0);

// The base map with masked zeros separated from weights that are too small for a float32.
function withoutMasked(head, pool) {
  const { rows, columns, rowEdges, keyEdges, [pool]: codes } = head.base;
  if (!head.exact || head.signed || !codes.includes(0)) return codes;
  const result = codes.slice();
  for (let r = 0; r < rows; r++) {
    const run = head.runOfRows(rowEdges[r], rowEdges[r + 1]);
    if (!run) return codes;
    for (let c = 0; c < columns; c++) if (result[r * columns + c] === 0 && keyEdges[c + 1] > run[0] && keyEdges[c] < run[1]) result[r * columns + c] = 1;
  }
  return result;
}

// Levels of a head's base map, finest first, down to a few cells.
export function levelsOf(head, pool) {
  const { base } = head;
  const levels = [{ rows: base.rows, columns: base.columns, codes: withoutMasked(head, pool), span: 1 }];
  while (Math.max(levels.at(-1).rows, levels.at(-1).columns) > 8) levels.push(coarser(levels.at(-1), pool, head.signed));
  return levels;
}

// Codes as a picture.
export function painted({ rows, columns, codes }, pixels, canvas = document.createElement("canvas")) {
  [canvas.width, canvas.height] = [Math.max(1, columns), Math.max(1, rows)];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const out = new Uint32Array(image.data.buffer);
  for (let i = 0; i < codes.length; i++) out[i] = pixels[codes[i]];
  pen.putImageData(image, 0, 0);
  return canvas;
}

// The pictures of one head. `notify` is called when a tile is ready.
export function createPyramid(head, computer, notify) {
  const levels = {};
  const tiles = new Map();
  let [busy, wanted, scale, pixels] = [0, [], null, null];
  const base = head.base;
  const coarsest = base ? Math.max(head.queryCount / base.rows, head.keyCount / base.columns) : Infinity;

  const next = () => {
    while (busy < 2 && wanted.length) {
      const position = wanted.shift();
      if (tiles.has(position.id)) continue;
      tiles.set(position.id, { ...position, ready: false });
      busy++;
      computer.pooled(head, position.r0, position.k0, position.rows, position.columns, position.step).then((result) => {
        busy--;
        tiles.set(position.id, { ...position, ...result, ready: true, pictures: {} });
        next();
        notify();
      });
    }
  };

  const forget = () => {
    for (const [id, tile] of tiles) {
      if (tiles.size <= CACHED) return;
      if (tile.ready) tiles.delete(id);
    }
  };

  return {
    head,
    coarsest,
    // Sets another colour scale; pictures are painted again at the next drawing.
    colour(source) {
      [scale, pixels] = [JSON.stringify(source), pixelsOf(source)];
    },
    // The level whose cells are at least one pixel wide, at `size` pixels per weight: { canvas, rows, columns }.
    level(pool, size) {
      if (!base) return null;
      levels[pool] ??= levelsOf(head, pool);
      const minimum = Math.min((head.keyCount / base.columns) * size[0], (head.queryCount / base.rows) * size[1]);
      const result = levels[pool].find((each) => each.span * minimum >= 0.999) ?? levels[pool].at(-1);
      if (result.scale !== scale) [result.canvas, result.scale] = [painted(result, pixels, result.canvas), scale];
      return result;
    },
    // The total weights in a level's pictures: [rows, keys].
    spanned: (level) => [(level.rows * level.span * head.queryCount) / base.rows, (level.columns * level.span * head.keyCount) / base.columns],
    // The edges of a level's cell with a weight: [r0, r1, k0, k1], and its index in the level's codes.
    cell(level, row, key) {
      const within = (position, cells, all) => Math.floor((Math.ceil(((position + 1) * cells) / all) - 1) / level.span);
      const [line, column] = [within(row, base.rows, head.queryCount), within(key, base.columns, head.keyCount)];
      const edge = (edges, cell) => edges[Math.min(edges.length - 1, cell * level.span)];
      const { rowEdges, keyEdges } = base;
      return { edges: [edge(rowEdges, line), edge(rowEdges, line + 1), edge(keyEdges, column), edge(keyEdges, column + 1)], position: line * level.columns + column };
    },
    // The step of tiles for a view with `size` pixels per weight; null if the base map is fine enough.
    step(size) {
      const needed = 1 / Math.min(...size);
      const step = STEPS.find((each) => each >= needed * 0.999);
      return head.exact && step !== undefined && (step < coarsest || !base) ? step : null;
    },
    // Requests the tiles of a view, nearest to its centre first, and drops earlier requests that have not begun.
    want(step, [r0, r1, k0, k1]) {
      const span = SIDE * step;
      const [middleRow, middleKey] = [(r0 + r1) / 2, (k0 + k1) / 2];
      wanted = [];
      for (let row = Math.max(0, Math.floor(r0 / span) * span); row < Math.min(r1, head.queryCount); row += span) {
        for (let key = Math.max(0, Math.floor(k0 / span) * span); key < Math.min(k1, head.keyCount); key += span) {
          const id = `${step}/${row}/${key}`;
          const [rows, columns] = [Math.min(SIDE, Math.ceil((head.queryCount - row) / step)), Math.min(SIDE, Math.ceil((head.keyCount - key) / step))];
          const away = Math.hypot(row + span / 2 - middleRow, key + span / 2 - middleKey);
          if (!tiles.has(id)) wanted.push({ id, step, r0: row, k0: key, rows, columns, away });
        }
      }
      wanted.sort((a, b) => a.away - b.away);
      forget();
      next();
    },
    // Ready tiles of a view, coarse before fine, none finer than `step`.
    ready(step, pool, [r0, r1, k0, k1]) {
      const result = [];
      for (const [id, tile] of [...tiles]) {
        const span = tile.step;
        if (!tile.ready || span < step || span > 4 * step) continue;
        if (tile.r0 >= r1 || tile.k0 >= k1 || tile.r0 + tile.rows * span <= r0 || tile.k0 + tile.columns * span <= k0) continue;
        if (span === step) {
          tiles.delete(id); // used, so it moves to the end of the cache
          tiles.set(id, tile);
        }
        const picture = (tile.pictures[pool] ??= {});
        if (picture.scale !== scale) {
          const codes = tile[`${pool}Codes`];
          [picture.canvas, picture.scale] = [painted({ ...tile, codes }, pixels, picture.canvas), scale];
        }
        result.push({ ...tile, canvas: picture.canvas });
        if (result.length > 200) break;
      }
      return result.sort((a, b) => b.step - a.step);
    },
    get waiting() { return busy + wanted.length; },
  };
}
