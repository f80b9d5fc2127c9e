import { colourAt, colourOf, shareOf } from "./colour_scale.js";
import { weightText } from "../data/labels.js";
import { make } from "../../../../drawing/web/elements.js";
import { css } from "../../../../drawing/web/theme.js";

// The colour scale as a bar with its numbers, the value of equal weights, and the colours of NaN and masked weights.
export function legend(scale, head) {
  const bar = make("canvas", { className: "ramp", attributes: { width: "256", height: "1", "aria-hidden": "true" } });
  const pen = bar.getContext("2d");
  for (let i = 0; i < 256; i++) {
    pen.fillStyle = css(colourAt(scale.signed ? (2 * i) / 255 - 1 : i / 255, scale));
    pen.fillRect(i, 0, 1, 1);
  }
  const nan = make("span", { className: "swatch nan", text: "NaN" });
  nan.style.setProperty("--swatch", css(colourOf(NaN, scale)));
  const clear = scale.signed ? "later position" : "masked";
  const ticks = scale.signed ? signedTicks(scale) : ticksOf(scale).map(([weight, text]) => tickAt(shareOf(weight, scale), text));
  const description = `colours from ${ticks[0].textContent} to ${ticks.at(-1).textContent}, ${scale.signed ? "signed weights, around zero, " : ""}${scale.colour}${scale.signed ? "" : `, ${scale.palette}`}`;
  if (!scale.signed) {
    const equal = 1 / Math.max(1, head.keyCount);
    ticks.push(tickAt(shareOf(equal, scale), "1/K", "equal"));
    ticks.at(-1).title = `equal weights: 1/${head.keyCount} = ${weightText(equal)}`;
  }
  return make("div", { className: "legend", attributes: { role: "img", "aria-label": description } }, make("div", { className: "ramp-box" }, bar, ...ticks), make("span", { className: "swatch clear", text: head.exact ? clear : `${clear} or zero` }), nan);
}

function signedTicks(scale) {
  const end = shortWeight(scale.maximum);
  return [tickAt(0, `−${end}`, "first"), tickAt(0.5, scale.colour === "log" ? `±${shortWeight(scale.minimum)}` : "0"), tickAt(1, end, "last")];
}

function tickAt(share, text, more = "") {
  const tick = make("span", { className: `tick ${more}`, text });
  tick.style.left = `${100 * share}%`;
  return tick;
}

function ticksOf(scale) {
  if (scale.colour === "linear") return [0, 0.5, 1].map((share) => [share * scale.maximum, shortWeight(share * scale.maximum)]);
  const result = [];
  for (let power = Math.ceil(Math.log10(scale.minimum)); power <= Math.floor(Math.log10(scale.maximum) + 1e-9); power++) {
    result.push([10 ** power, power >= -2 ? String(Number((10 ** power).toFixed(2))) : `10${raised(power)}`]);
  }
  return result.length ? result : [[scale.maximum, shortWeight(scale.maximum)]];
}

const shortWeight = (weight) => String(Number(weight.toPrecision(2)));
const raised = (power) => String(power).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
