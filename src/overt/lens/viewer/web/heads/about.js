import { label } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

// What a head does, in words.
export const headText = (head) => (head.role === "content" ? "follows no simple pattern" : head.role === "NaN" ? "has weights that are not numbers" : `mostly: ${label(head.role, 20)}`);

// What the chosen head does, in a few lines: the share of its weight that each plain pattern takes, and how far it is spread out.
export function aboutHead(head) {
  const shares = Object.entries(head.roleScores).map(([name, share]) => [name, Number(share)]).filter(([name]) => name !== "uniform");
  const even = Math.log(Math.max(2, head.keyCount));
  const lines = shares.sort((a, b) => b[1] - a[1]).map(([name, share]) => line(name, share, share.toFixed(2), name === head.role));
  const spread = line(head.signed ? "entropy of |W|" : "entropy", head.entropy / even, Number.isNaN(head.entropy) ? "NaN" : `${head.entropy.toFixed(2)} of ${even.toFixed(2)}`, head.role === "uniform");
  const list = make("dl", { attributes: { "aria-label": head.signed ? `how much of Σ |W| of ${head.name} follows each pattern` : `shares of the weight of ${head.name}` } }, ...lines.flat(), ...spread);
  return [make("p", {}, make("b", { text: head.name }), ` ${headText(head)}`), list];
}

function line(name, share, text, deciding) {
  const bar = make("span", { className: `share ${deciding ? "deciding" : ""}` });
  bar.style.setProperty("--share", `${100 * Math.max(0, Math.min(1, share || 0))}%`);
  return [make("dt", { text: name }), make("dd", {}, bar, make("span", { text }))];
}
