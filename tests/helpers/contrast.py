"""How well every text of a page reads, from what the browser says it draws: WCAG's contrast of each text with what stands behind it."""

import json

# Colours are painted on a canvas, which knows every way of writing them; backgrounds are blended from the page's on down.
_SCRIPT = """(() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parse = (text) => {
    if (!known.has(text)) { pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1); known.set(text, Array.from(pen.getImageData(0, 0, 1, 1).data)); }
    return known.get(text);
  };
  const over = (below, [r, g, b, a]) => below.map((channel, c) => channel + (a / 255) * ([r, g, b][c] - channel));
  const light = (rgb) => rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4)).reduce((sum, each, c) => sum + each * [0.2126, 0.7152, 0.0722][c], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const faint = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.closest("svg, option")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const above = [];
    for (let each = element; each; each = each.parentElement) above.unshift(each);
    let opacity = 1;
    let behind = [255, 255, 255];
    for (const each of above) { const style = getComputedStyle(each); opacity *= Number(style.opacity); behind = over(behind, parse(style.backgroundColor)); }
    const [r, g, b, a] = parse(getComputedStyle(element).color);
    const found = ratio(over(behind, [r, g, b, a * opacity]), behind);
    if (found < LEAST) faint.push([node.textContent.trim().slice(0, 40), element.className || element.tagName, Number(found.toFixed(2))]);
  }
  return JSON.stringify(faint);
})()"""


def faint_texts(page, least=4.5):
    """The texts in sight whose contrast is below `least`, each with its element and its contrast."""
    return json.loads(page.ask(_SCRIPT.replace("LEAST", str(least))))
