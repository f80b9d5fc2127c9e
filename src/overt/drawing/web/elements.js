// Elements of the page. Text typed by a reader reaches the page only through textContent.

export function make(tag, options = {}, ...children) {
  const { className, text, attributes = {}, on = {} } = options;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const [name, handler] of Object.entries(on)) node.addEventListener(name, handler);
  node.append(...children);
  return node;
}

export const button = (text, click, attributes = {}) => make("button", { text, attributes: { type: "button", ...attributes }, on: { click } });

// A weight as a bar with `share` of the available width.
export function gauge(weight, largest) {
  const fill = make("b", { className: weight < 0 ? "negative" : "" });
  fill.style.width = `${100 * Math.min(1, Math.abs(weight) / largest || 0)}%`;
  return make("span", { className: "gauge", attributes: { "aria-hidden": "true" } }, fill);
}

// A formula as nodes: the indices of h_1, a_1j, a_ij, x_j, W_O are subscripts.
export function formulaNodes(text) {
  return text.split(/(?<=(?<!\w)[A-Za-z])_(\d+[ij]?|[ij]{1,2}|[OQKV])(?!\w)/).map((part, i) => (i % 2 ? make("sub", { text: part }) : part)).filter(Boolean);
}

// Lets the reader save a file, and reports it.
export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { attributes: { href: address, download: name } }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  return `${name} is saved`;
}
