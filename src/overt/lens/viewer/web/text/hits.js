// The area of an arc for clicks and focus, wider than the visible arc. A click chooses the nearest of several arcs, so that a weak arc
// below strong ones can be chosen; a token under the pointer gets the click if the arc is farther than NEAR.
const SVG_NAME = "http://www.w3.org/2000/svg";
const [WIDTH, NEAR, STEP] = [24, 5, 3]; // pixels: WIDTH of an arc's area; NEAR: the largest distance for a click; STEP between points of the path

export const shape = (attributes, kind = "path") => {
  const node = document.createElementNS(SVG_NAME, kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// The button of one arc: Enter or Delete acts, arrow keys go to the others.
export function hitOf(line, node, name, click) {
  const hit = shape({ d: line, class: "hit", "stroke-width": WIDTH, role: "button", tabindex: "-1", "aria-label": name });
  hit.dataset.arc = node.dataset.token;
  hit.act = click;
  hit.addEventListener("click", (event) => {
    if (!event.detail) return click(); // from a screen reader or a script, for this arc
    const { nearest, token } = meant(hit.parentNode, event);
    if (token) token.click();
    else nearest.act();
  });
  hit.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1 }[event.key];
    if (by) {
      const all = hitsOf(hit.parentNode);
      all.at((all.indexOf(hit) + by) % all.length).focus();
    } else if (["Enter", " ", "Delete", "Backspace"].includes(event.key)) click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return hit;
}

// Puts buttons over the arcs: Tab reaches the strongest one; the arc that a click would choose is marked and named.
export function watchHits(svg, hits) {
  const title = shape({}, "title");
  svg.append(title, ...hits);
  hits.at(-1)?.setAttribute("tabindex", "0");
  svg.onpointermove = (event) => {
    const { nearest, token } = meant(svg, event);
    for (const hit of hits) hit.classList.toggle("meant", hit === nearest && !token);
    title.textContent = token ? token.title : nearest.getAttribute("aria-label");
    token?.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  };
  svg.onpointerleave = () => hits.forEach((hit) => hit.classList.remove("meant"));
}

const hitsOf = (svg) => [...svg.querySelectorAll(".hit")];

function meant(svg, { clientX, clientY }) {
  const { left, top } = svg.getBoundingClientRect();
  const away = ({ x, y }) => Math.hypot(x - clientX + left, y - clientY + top);
  const [[distance, nearest]] = hitsOf(svg).map((hit) => [Math.min(...pointsOf(hit).map(away)), hit]).sort(([a], [b]) => a - b);
  return { nearest, token: distance > NEAR ? document.elementsFromPoint(clientX, clientY).find((node) => node.dataset.token && node.title !== undefined) : undefined };
}

function pointsOf(hit) {
  const count = Math.ceil(hit.getTotalLength() / STEP) + 1;
  return (hit.points ??= Array.from({ length: count }, (_, i) => hit.getPointAtLength(i * STEP)));
}
