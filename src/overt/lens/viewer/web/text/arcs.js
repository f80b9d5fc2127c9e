// Arcs between tokens of running text: over one line as bows; between lines as curves from the edge of one token to the near edge of the
// other.
const SVG_NAME = "http://www.w3.org/2000/svg";

// `links` are { node, share }; drawn into `svg`, which covers what the tokens stand in. A bow rises by at most `room` pixels.
export function arcsOf(svg, from, links, room) {
  svg.replaceChildren();
  svg.setAttribute("height", "0"); // the container is as high as its text then, and not as the last picture
  if (!from) return;
  const container = svg.parentNode;
  svg.setAttribute("width", String(container.clientWidth));
  svg.setAttribute("height", String(container.scrollHeight));
  const origin = svg.getBoundingClientRect();
  const boxOf = (node) => {
    const { left, width, top, bottom } = node.getClientRects()[0] ?? node.getBoundingClientRect();
    return { x: left + width / 2 - origin.left, top: top - origin.top - 1, bottom: bottom - origin.top + 1 };
  };
  const start = boxOf(from);
  const ends = links.map((link) => ({ ...link, box: boxOf(link.node) }));
  const span = Math.max(280, ...ends.map(({ box }) => Math.abs(box.x - start.x)));
  for (const { node, share, negative, box } of ends.reverse()) {
    const path = document.createElementNS(SVG_NAME, "path");
    path.setAttribute("d", curve(start, box, room * (0.2 + 0.8 * Math.sqrt(Math.abs(box.x - start.x) / span))));
    path.setAttribute("stroke-width", (0.75 + 5 * share).toFixed(2));
    path.setAttribute("opacity", (0.25 + 0.7 * Math.sqrt(share)).toFixed(2));
    path.dataset.to = node.dataset.token;
    if (negative) path.classList.add("negative");
    svg.append(path);
  }
}

// A bow's top is at three quarters of the way to its control points.
function curve(a, b, room) {
  const same = Math.abs(a.top - b.top) < 8;
  const down = b.top > a.top;
  const [y1, y2] = same ? [a.top, b.top] : down ? [a.bottom, b.top] : [a.top, b.bottom];
  const lift = same ? -room / 0.75 : (down ? 1 : -1) * Math.max(12, Math.abs(y2 - y1) / 2);
  const [x1, x2, low, high] = [a.x, b.x, y1 + lift, same ? y2 + lift : y2 - lift].map((value) => Math.round(value * 10) / 10);
  return `M${x1},${y1.toFixed(1)} C${x1},${low} ${x2},${high} ${x2},${y2.toFixed(1)}`;
}
