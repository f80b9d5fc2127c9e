// Numbers as people read them: fixed decimals and a real minus sign, as in drawing/numbers.py. Data holds "NaN" and "Infinity" as text.

export function number(value, digits = 2) {
  value = Number(value);
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2).replace("+", "") : value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replaceAll("-", "−");
}

export function scientific(value, digits = 1) {
  if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : number(value);
  return value.toExponential(digits).replace("+", "").replaceAll("-", "−");
}

// The number of decimals that shows the largest value with two significant digits, within limits.
export function decimals(values, min = 2, max = 4) {
  let largest = 0;
  for (const value of values) if (Number.isFinite(Number(value))) largest = Math.max(largest, Math.abs(value));
  return largest === 0 ? min : Math.min(max, Math.max(min, 1 - Math.floor(Math.log10(largest))));
}

// A vector's first entries and its length, with the decimals that these entries need.
export function vectorText(values, shown = 3, digits = undefined) {
  const first = Array.from(values.length <= shown + 1 ? values : values.slice(0, shown));
  const entries = first.map((value) => number(value, digits ?? decimals(first))).join("  ");
  return values.length <= shown + 1 ? `[${entries}]` : `[${entries} … ${values.length}]`;
}

// A number that follows a multiplication sign.
export const bracketed = (value) => (Number(value) < 0 ? `(${number(value)})` : number(value));
