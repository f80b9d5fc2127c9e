// Arcs between tokens of running text: bows over one line; curves between near edges of tokens on neighbouring lines; longer ones
// through the margin, so that they cross no word.
import { hitOf, shape, watchHits } from "./hits.js";

const [MARGIN, CORNER, SAME] = [7, 6, 8]; // pixels: MARGIN from the edge, radius of a CORNER, and the most that tops of the SAME line differ

// Draws `links`, each { node, share, negative, cut, name, click }, into `svg`, which covers the tokens' container. A bow rises by at most
// `room` pixels and avoids `tokens`. A link with `click` is a button.
export function arcsOf(svg, from, links, room, tokens) {
  svg.replaceChildren();
  svg.setAttribute("height", "0"); // so that the container is as high as its text, not as the last picture
  if (!from) return;
  const container = svg.parentNode;
  svg.setAttribute("width", String(container.clientWidth));
  svg.setAttribute("height", String(container.scrollHeight));
  const origin = svg.getBoundingClientRect();
  const boxOf = (node) => {
    const { left, width, top, bottom } = node.getClientRects()[0] ?? node.getBoundingClientRect();
    return { x: left + width / 2 - origin.left, half: width / 2, top: top - origin.top - 1, bottom: bottom - origin.top + 1 };
  };
  const start = boxOf(from);
  const ends = links.map((link) => ({ ...link, box: boxOf(link.node) }));
  const boxes = tokens.map(boxOf);
  const span = Math.max(280, ...ends.map(({ box }) => Math.abs(box.x - start.x)));
  const hits = ends.reverse().map(({ node, share, negative, cut, name, click, box }, n) => {
    const line = pathOf(start, box, room * (0.2 + 0.8 * Math.sqrt(Math.abs(box.x - start.x) / span)), boxes, container.clientWidth, n);
    const path = shape({ d: line, class: `${negative ? "negative " : ""}${cut ? "cut" : ""}`, "stroke-width": (0.75 + 5 * share).toFixed(2), opacity: cut ? 1 : (0.25 + 0.7 * Math.sqrt(share)).toFixed(2) });
    path.dataset.to = node.dataset.token;
    svg.append(path);
    return click ? hitOf(line, node, name, click) : null;
  });
  watchHits(svg, hits.filter(Boolean));
}

// A bow rises to three quarters of the height of its control points.
function pathOf(a, b, room, boxes, width, lane) {
  const same = Math.abs(a.top - b.top) < SAME;
  const down = b.top > a.top;
  const [high, low] = down ? [a, b] : [b, a];
  const [left, right] = [Math.min(a.x, b.x) - SAME, Math.max(a.x, b.x) + SAME];
  const crossed = ({ x, half, top }) => top > high.top + SAME && top < low.top - SAME && x + half > left && x - half < right;
  if (!same && boxes.some(crossed)) return aroundOf(a, b, down, width, lane);
  const [y1, y2] = same ? [a.top, b.top] : down ? [a.bottom, b.top] : [a.top, b.bottom];
  const lift = same ? -room / 0.75 : (down ? 1 : -1) * Math.max(SAME, Math.abs(y2 - y1) / 2);
  const [x1, x2, first, last] = [a.x, b.x, y1 + lift, same ? y2 + lift : y2 - lift].map((value) => Math.round(value * 10) / 10);
  return `M${x1},${y1.toFixed(1)} C${x1},${first} ${x2},${last} ${x2},${y2.toFixed(1)}`;
}

// Through the nearer margin, along the spaces between lines.
function aroundOf(a, b, down, width, lane) {
  const [y1, y2, way] = down ? [a.bottom, b.top, 1] : [a.top, b.bottom, -1];
  const away = SAME + 2 * (lane % 3);
  const x = a.x + b.x < width ? MARGIN - (lane % 3) * 2 : width - MARGIN + (lane % 3) * 2;
  const points = [[a.x, y1], [a.x, y1 + way * away], [x, y1 + way * away], [x, y2 - way * away], [b.x, y2 - way * away], [b.x, y2]];
  const near = ([px, py], [qx, qy]) => {
    const length = Math.hypot(qx - px, qy - py) || 1;
    const part = Math.min(CORNER, length / 2) / length;
    return `${(px + (qx - px) * part).toFixed(1)},${(py + (qy - py) * part).toFixed(1)}`;
  };
  const corners = points.slice(1, -1).map((point, i) => `L${near(point, points[i])} Q${point[0].toFixed(1)},${point[1].toFixed(1)} ${near(point, points[i + 2])}`);
  return `M${points[0].map((value) => value.toFixed(1))} ${corners.join(" ")} L${points.at(-1).map((value) => value.toFixed(1))}`;
}
