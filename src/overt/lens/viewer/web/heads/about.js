import { label } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";

// Each role of a head in words, the same as in lens/statistics/roles.py.
const ROLE_WORDS = {
  "first token": "usually the first token",
  "previous token": "usually the previous token",
  "next token": "usually the next token",
  "same token": "usually the same token",
  "separator": "usually a separator",
  "duplicate token": "usually another copy of the token",
  "induction": "usually the token after another copy",
  "uniform": "all tokens alike",
  "content": "no simple pattern",
  "NaN": "weights that are not numbers",
};

export function headText({ role }) {
  const words = ROLE_WORDS[role.replace(/^perhaps /, "")] ?? label(role, 20);
  return role.startsWith("perhaps ") ? words.replace("usually", "perhaps") : words;
}

// The role of the chosen head in a few lines: the share of its weight on each plain pattern, and its entropy.
export function aboutHead(head) {
  const shares = Object.entries(head.roleScores).map(([name, share]) => [name, Number(share)]).filter(([name]) => name !== "uniform");
  const even = Math.log(Math.max(2, head.keyCount));
  const lines = shares.sort((a, b) => b[1] - a[1]).map(([name, share]) => line(name, share, share.toFixed(2), name === head.role));
  const spread = line(head.signed ? "entropy of |W|" : "entropy", head.entropy / even, Number.isNaN(head.entropy) ? "NaN" : `${head.entropy.toFixed(2)} of ${even.toFixed(2)}`, head.role === "uniform");
  const list = make("dl", { attributes: { "aria-label": head.signed ? `how much of Σ |W| of ${head.name} follows each pattern` : `shares of the weight of ${head.name}` } }, ...lines.flat(), ...spread);
  return [make("p", {}, make("b", { text: head.name }), `: ${headText(head)}`), list];
}

function line(name, share, text, deciding) {
  const bar = make("span", { className: `share ${deciding ? "deciding" : ""}` });
  bar.style.setProperty("--share", `${100 * Math.max(0, Math.min(1, share || 0))}%`);
  return [make("dt", { text: name }), make("dd", {}, bar, make("span", { text }))];
}
