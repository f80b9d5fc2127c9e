// Elements of the page. What a reader typed reaches the page only through textContent.

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

// A formula as nodes: the indices of h_1, a_1j, a_ij, x_j are subscripts.
export function formulaNodes(text) {
  return text.split(/(?<=(?<!\w)[A-Za-z])_(\d+[ij]?|[ij]{1,2})(?!\w)/).map((part, i) => (i % 2 ? make("sub", { text: part }) : part)).filter(Boolean);
}

// The button of a step in the player.
export function stepButton(step, onClick) {
  const attributes = { type: "button", title: step.title, "aria-label": `step ${step.number}: ${step.title}` };
  return make("button", { attributes, on: { click: onClick } }, make("i", { text: String(step.number) }), make("span", { text: step.title }));
}

// Marks a step's button as the one that is shown, before it or after it.
export function markStep(button, i, current) {
  button.className = i === current ? "now" : i < current ? "past" : "";
  if (i === current) button.setAttribute("aria-current", "step");
  else button.removeAttribute("aria-current");
}
