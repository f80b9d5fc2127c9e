// The text and the tab in sight as one PNG: the elements themselves, drawn by the browser inside an SVG.
import { download, make } from "../../../../drawing/web/elements.js";
import { theme } from "../../../../drawing/web/theme.js";

const [SCALE, LARGEST] = [2, 16_000]; // SCALE: pixels per CSS pixel, for print; LARGEST: the largest side that browsers draw
const NOT_XML = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g;

// Saves the picture; the button reports if that is impossible.
export async function savePicture(root, button) {
  const text = button.textContent;
  button.disabled = true;
  try {
    download(`overt-${root.dataset.panel}.png`, "image/png", await pictureOf(root));
  } catch {
    button.textContent = "not in this browser";
    setTimeout(() => (button.textContent = text), 4000);
  }
  button.disabled = false;
}

// A PNG of the text and the panel in sight.
export async function pictureOf(root) {
  const parts = [...root.querySelectorAll(":scope > .texts-row, :scope > .panel")].filter((part) => part.getClientRects().length);
  const [width, height] = [root.clientWidth, parts.reduce((sum, part) => sum + part.offsetHeight, 0)];
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(root, parts, width, height))}`;
  await image.decode();
  const scale = Math.min(SCALE, LARGEST / height);
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be drawn"))), "image/png"));
}

function svgOf(root, parts, width, height) {
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = [...Array.from(document.querySelectorAll("style"), (each) => each.textContent), "* { scrollbar-width: none; }"].join("\n");
  const box = make("div", { className: "viewer" }, ...parts.map(copyOf));
  const { color, backgroundColor, font } = getComputedStyle(document.body);
  Object.assign(box.dataset, root.dataset);
  Object.assign(box.style, { color, backgroundColor, font, height: `${height}px`, minHeight: "0" });
  const inside = [style, box].map((each) => new XMLSerializer().serializeToString(each)).join("");
  const text = `<svg xmlns="http://www.w3.org/2000/svg" data-theme="${theme()}" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${inside}</foreignObject></svg>`;
  return text.replace(NOT_XML, "\ufffd");
}

// A copy of a part: canvases as images, fields with their values, boxes at their scroll positions.
function copyOf(part) {
  const copy = part.cloneNode(true);
  const copies = copy.querySelectorAll("*");
  part.querySelectorAll("*").forEach((element, i) => {
    if (!element.getClientRects().length) return; // hidden, as its copy is
    if (element.scrollTop && element.firstElementChild) copies[i].firstElementChild.style.marginTop = `${-element.scrollTop}px`;
    if (element.tagName === "CANVAS") copies[i].replaceWith(imageOf(element));
    else if (element.tagName === "TEXTAREA") copies[i].textContent = element.value;
    else if (element.tagName === "INPUT") [copies[i].setAttribute("value", element.value), copies[i].toggleAttribute("checked", element.checked)];
    else if (element.tagName === "OPTION") copies[i].toggleAttribute("selected", element.selected);
  });
  return copy;
}

function imageOf(canvas) {
  const { width, height, position, inset } = getComputedStyle(canvas);
  const image = make("img", { className: canvas.className, attributes: { alt: "", src: canvas.width && canvas.height ? canvas.toDataURL() : "data:," } });
  Object.assign(image.style, { display: "block", width, height, ...(position === "absolute" ? { position, inset } : {}) });
  return image;
}
