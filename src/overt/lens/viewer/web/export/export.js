// Exports of the view: the visible map as SVG, PNG and CSV, the chosen token's weights as CSV, and a link that restores the view.
import { weightsOf } from "../data/rows.js";
import { pictureOf } from "./picture.js";
import { visibleTiles, viewOf } from "../data/visible_tiles.js";
import { addressed } from "../store.js";
import { grouped, visible } from "../data/labels.js";
import { button, download, make } from "../../../../drawing/web/elements.js";

export const savePanel = {
  name: "save",
  title: "Save",
  mount(root, recording, store) {
    root.classList.add("saving");
    const description = make("p", { className: "told", attributes: { "aria-live": "polite" } });
    const tiles = make("p", { className: "quiet" });
    const now = () => ({ state: store.get(), head: recording.heads[store.get().head], recording });
    const saver = (text, what, act) => button(text, () => saved(description, act), { "data-save": what });
    const group = (title, ...children) => make("section", {}, make("h2", { text: title }), ...children);
    const link = group("This view", make("p", { className: "quiet", text: `The address holds ${"text" in store.get() ? "the sentence, " : ""}the panel, the head, the token, the part of the map and the colours.` }),
      make("div", { className: "saves" }, saver("Copy link", "link", () => copied(root, store.link()))));
    root.append(
      group("The visible part of the map", tiles, make("div", { className: "saves" },
        saver("SVG", "svg", () => download(nameOf(now(), "svg"), "image/svg+xml", pictureOf(now()).text)),
        saver("PNG", "png", () => painted(pictureOf(now())).then((png) => download(nameOf(now(), "png"), "image/png", png))),
        saver("CSV", "csv", () => download(nameOf(now(), "csv"), "text/csv", mapText(now()))))),
      group("The chosen token's weights", make("div", { className: "saves" }, saver("CSV", "row", () => download(nameOf(now(), "csv", "token"), "text/csv", weightsText(now()))))),
      ...(addressed() ? [link] : []),
      description,
    );
    const draw = () => {
      const [r0, r1, k0, k1] = viewOf(now().head, store.get().view);
      tiles.textContent = `${now().head.name}: queries ${grouped(r0)} to ${grouped(r1 - 1)}, keys ${grouped(k0)} to ${grouped(k1 - 1)}`;
    };
    store.subscribe(draw);
    draw();
  },
};

async function saved(description, act) {
  description.textContent = "";
  description.textContent = await act();
}

const nameOf = ({ head, state }, ending, part = "") => `${head.name}${part ? `-${state.side}-${state.token}` : ""}.${ending}`;

// A text with commas, quotes and line breaks as one field. An apostrophe before =, +, − and @ at the start prevents a spreadsheet from
// reading the token as a formula.
export function fieldOf(text) {
  const description = visible(text);
  return `"${(/^[=+\-@\t\r]/.test(description) ? `'${description}` : description).replaceAll('"', '""')}"`;
}

const plainNumber = (weight) => (Number.isNaN(weight) ? "NaN" : String(Number(weight.toPrecision(9))));

// The visible part of the map: one line per weight, or per cell with the largest and the mean weight of its queries and keys.
export function mapText({ head, state }) {
  const { kind, rowEdges, keyEdges, max, mean } = visibleTiles(head, state.view);
  const [rows, keys] = [rowEdges.length - 1, keyEdges.length - 1];
  const single = kind === "weights";
  const lines = [single ? "query,key,weight,query_token,key_token" : "query_from,query_to,key_from,key_to,largest,mean"];
  const names = single ? { rows: rowEdges.slice(0, -1).map((i) => fieldOf(head.queries[i])), keys: keyEdges.slice(0, -1).map((j) => fieldOf(head.keys[j])) } : null;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < keys; j++) {
      const position = i * keys + j;
      if (single) lines.push(`${rowEdges[i]},${keyEdges[j]},${plainNumber(max[position])},${names.rows[i]},${names.keys[j]}`);
      else lines.push(`${rowEdges[i]},${rowEdges[i + 1] - 1},${keyEdges[j]},${keyEdges[j + 1] - 1},${plainNumber(max[position])},${plainNumber(mean[position])}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

// The chosen token's row or column: one line per key or query.
export function weightsText({ head, state }) {
  const { weights, side } = weightsOf(head, state.side, state.token);
  const names = side === "query" ? head.keys : head.queries;
  const lines = Array.from(weights, (weight, i) => `${i},${plainNumber(weight)},${fieldOf(names[i])}`);
  return `${[`${side === "query" ? "key" : "query"},weight,token`, ...lines].join("\n")}\n`;
}

// The picture as PNG, twice as large for print.
function painted({ text, width, height }) {
  const canvas = make("canvas", {});
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  const image = new Image();
  return new Promise((resolve, reject) => {
    image.onerror = () => reject(new Error("the picture could not be drawn"));
    image.onload = () => {
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(resolve, "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
}

// Copies the link to the clipboard, or shows it in a field if the browser refuses.
async function copied(root, link) {
  try {
    await navigator.clipboard.writeText(link);
    return "The link is copied";
  } catch {
    root.querySelector("input.link")?.remove();
    const field = make("input", { className: "link", attributes: { readonly: "", "aria-label": "Link to this view" } });
    field.value = link;
    root.append(field);
    field.select();
    return "Copy the link from the field below";
  }
}
