// Arcs between tokens of running text: over one line as bows; between lines as curves from the edge of one token to the near edge of the
// other.
const SVG_NAME = "http://www.w3.org/2000/svg";

// `links` are { node, share }; drawn into `svg`, which covers what the tokens stand in.
export function arcsOf(svg, from, links) {
  svg.replaceChildren();
  if (!from) return;
  const container = svg.parentNode;
  svg.setAttribute("width", String(container.clientWidth));
  svg.setAttribute("height", String(container.scrollHeight));
  const origin = svg.getBoundingClientRect();
  const boxOf = (node) => {
    const { left, width, top, bottom } = node.getClientRects()[0] ?? node.getBoundingClientRect();
    return { x: left + width / 2 - origin.left, top: top - origin.top + 2, bottom: bottom - origin.top - 2 };
  };
  const start = boxOf(from);
  for (const { node, share, negative } of [...links].reverse()) {
    const path = document.createElementNS(SVG_NAME, "path");
    path.setAttribute("d", curve(start, boxOf(node)));
    path.setAttribute("stroke-width", (0.8 + 3.4 * share).toFixed(2));
    path.setAttribute("opacity", (0.25 + 0.6 * Math.sqrt(share)).toFixed(2));
    path.dataset.to = node.dataset.token;
    if (negative) path.classList.add("negative");
    svg.append(path);
  }
}

function curve(a, b) {
  const same = Math.abs(a.top - b.top) < 8;
  const down = b.top > a.top;
  const [y1, y2] = same ? [a.top, b.top] : down ? [a.bottom, b.top] : [a.top, b.bottom];
  const lift = same ? -8 - Math.min(14, Math.abs(b.x - a.x) / 12) : (down ? 1 : -1) * Math.max(12, Math.abs(y2 - y1) / 2);
  const [x1, x2, low, high] = [a.x, b.x, y1 + lift, same ? y2 + lift : y2 - lift].map((value) => Math.round(value * 10) / 10);
  return `M${x1},${y1.toFixed(1)} C${x1},${low} ${x2},${high} ${x2},${y2.toFixed(1)}`;
}
