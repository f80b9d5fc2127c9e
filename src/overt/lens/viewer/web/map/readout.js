import { tile, weightOf } from "../data/exact.js";
import { grouped, label, titleOf, weightText } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

// The weight under the pointer, as nodes: the exact weight if it can be distinguished from its neighbours, else the cell's largest
// and mean, from exact weights if they are available.
export function readoutOf(self, position) {
  const { head } = self;
  const what = head.exact ? "weight" : "cell";
  if (!position) return [make("span", { className: "quiet", text: `Point at a ${what}, or move with the arrow keys.` })];
  const [row, key] = position;
  const near = Math.min(...self.camera.size) >= 1 || self.cursor === position;
  if (head.exact && near) return one(head, row, key);
  return cell(self, row, key);
}

const token = (tokens, i) => make("bdi", { className: "word", text: `“${label(tokens[i], 18)}”`, attributes: { title: titleOf(tokens, i) } });
const at = (position) => make("span", { className: "quiet", text: ` ${grouped(position)}` });

function pair(head, row, key) {
  return [token(head.queries, row), ...(head.known ? [at(row)] : []), " → ", token(head.keys, key), ...(head.known ? [at(key)] : [])];
}

function one(head, row, key) {
  const weight = head.weight(row, key);
  const said = head.allowed(row, key) ? weightText(weight) : "0, masked";
  return [make("b", { className: "value", text: said, attributes: { "data-row": row, "data-key": key, "data-weight": weight } }), " ", ...pair(head, row, key)];
}

// The largest and the mean of a weight's cell in the map.
function cell(self, row, key) {
  const { head, pyramid } = self;
  const size = self.camera.size.map((each) => each * self.ratio);
  const [level, means] = [pyramid.level("max", size), pyramid.level("mean", size)];
  if (!level) return [];
  const { edges, position } = pyramid.cell(level, row, key);
  const [r0, r1, k0, k1] = edges;
  const where = `strongest of ${grouped(r0)}–${grouped(r1 - 1)} × ${grouped(k0)}–${grouped(k1 - 1)}`;
  const quiet = (text) => make("span", { className: "quiet", text });
  if (head.exact && (r1 - r0) * (k1 - k0) <= 2 ** 17) {
    const weights = tile(head.terms, ...edges);
    const nan = weights.findIndex((weight) => weight !== weight);
    const best = nan >= 0 ? nan : weights.reduce((maximum, weight, i) => ((head.signed ? Math.abs(weight) > Math.abs(weights[maximum]) : weight > weights[maximum]) ? i : maximum), 0);
    const mean = weights.reduce((sum, weight) => sum + weight, 0) / weights.length;
    const link = pair(head, r0 + Math.floor(best / (k1 - k0)), k0 + (best % (k1 - k0)));
    return [make("b", { className: "value", text: weightText(weights[best]) }), " ", ...link, quiet(`  ${where}, mean ${weightText(mean)}`)];
  }
  const [maximum, middle] = [weightOf(level.codes[position], head.signed), weightOf(means.codes[position], head.signed)];
  return [make("b", { className: "value", text: about(maximum) }), quiet(`  ${where}, mean ${about(middle)}`)];
}

// A weight stored as a byte is known to a few percent.
const about = (weight) => (Number.isNaN(weight) || weight === 0 ? weightText(weight) : `≈ ${Number(weight.toPrecision(2))}`);
