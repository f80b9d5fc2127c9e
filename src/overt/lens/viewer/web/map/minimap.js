// The whole map in a corner with a frame around the visible part, and a hint at the nearest strong weight if only weak ones are visible.
import { tile, weightOf } from "../data/exact.js";
import { label, weightText } from "../data/labels.js";
import { button, make } from "../../../../drawing/web/elements.js";

const [LONG, SHORT] = [128, 24]; // LONG: pixels of the longer side; SHORT: the least pixels of the shorter side
const FLAT = 0.25; // FLAT: a window looks flat if all weights are below this share of the largest weight
const EXACT = 2 ** 17; // EXACT: the most weights that are read one by one

export function createMinimap(self) {
  const canvas = make("canvas", { className: "mini", attributes: { "aria-hidden": "true", title: "the whole map: click to go there" } });
  const go = (event) => {
    const [key, row] = [(event.offsetX / canvas.clientWidth) * self.head.keyCount, (event.offsetY / canvas.clientHeight) * self.head.queryCount];
    self.lookAt(row, key);
  };
  canvas.addEventListener("pointerdown", (event) => (canvas.setPointerCapture?.(event.pointerId), go(event)));
  canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
  self.area.append(canvas);
  let hint = null;
  return {
    draw(pool) {
      const { head, camera, pyramid } = self;
      const level = camera.whole ? null : pyramid.level(pool, [LONG / head.keyCount, LONG / head.keyCount]);
      canvas.hidden = !level;
      if (!level) return;
      const factor = LONG / Math.max(head.keyCount, head.queryCount);
      const [wide, high] = [head.keyCount, head.queryCount].map((count) => Math.max(SHORT, Math.round(count * factor)));
      [canvas.width, canvas.height] = [wide, high];
      const pen = canvas.getContext("2d");
      pen.imageSmoothingEnabled = false;
      pen.drawImage(level.canvas, 0, 0, (wide * pyramid.spanned(level)[1]) / head.keyCount, (high * pyramid.spanned(level)[0]) / head.queryCount);
      const [r0, r1, k0, k1] = camera.view;
      pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--fire");
      pen.lineWidth = 2;
      pen.strokeRect((k0 / head.keyCount) * wide, (r0 / head.queryCount) * high, Math.max(4, ((k1 - k0) / head.keyCount) * wide), Math.max(4, ((r1 - r0) / head.queryCount) * high));
    },
    hint() {
      hint?.remove();
      const found = hintOf(self);
      if (!found) return;
      const { arrow, row, key, weight } = found;
      const text = `${weightText(Number(weight.toPrecision(3)))} lies there: “${label(self.head.queries[row], 12)}” → “${label(self.head.keys[key], 12)}”`;
      hint = button("", () => self.lookAt(row, key, true));
      hint.className = "hint";
      hint.append(make("b", { text: arrow }), make("bdi", { text }));
      self.area.append(hint);
    },
  };
}

// The nearest strong link of a window in which all weights are weak: { arrow, row, key, weight }; null without a hint.
function hintOf({ camera, head }) {
  const { weights, rows, keys } = head.links;
  if (camera.whole || !weights.length || strongestIn(head, camera.view) >= FLAT * Math.abs(weights[0])) return null;
  const [r0, r1, k0, k1] = camera.view;
  const away = (i) => Math.hypot(rows[i] - (r0 + r1) / 2, keys[i] - (k0 + k1) / 2);
  const strong = Array.from(weights.keys()).filter((i) => Math.abs(weights[i]) >= 2 * FLAT * Math.abs(weights[0]));
  const i = strong.reduce((best, each) => (away(each) < away(best) ? each : best));
  const turn = Math.round(Math.atan2(rows[i] - (r0 + r1) / 2, keys[i] - (k0 + k1) / 2) / (Math.PI / 4));
  return { arrow: "→↘↓↙←↖↑↗"[(turn + 8) % 8], row: rows[i], key: keys[i], weight: weights[i] };
}

function strongestIn(head, [top, bottom, left, right]) {
  const [r0, r1, k0, k1] = [Math.floor(top), Math.ceil(bottom), Math.floor(left), Math.ceil(right)];
  if (head.exact && (r1 - r0) * (k1 - k0) <= EXACT) return tile(head.terms, r0, r1, k0, k1).reduce((best, weight) => Math.max(best, Math.abs(weight) || 0), 0);
  const { base } = head;
  let best = 0;
  for (let r = 0; r < (base?.rows ?? 0); r++) {
    if (base.rowEdges[r + 1] <= r0 || base.rowEdges[r] >= r1) continue;
    for (let c = 0; c < base.columns; c++) {
      if (base.keyEdges[c + 1] > k0 && base.keyEdges[c] < k1) best = Math.max(best, Math.abs(weightOf(base.max[r * base.columns + c], head.signed)) || 0);
    }
  }
  return best;
}
