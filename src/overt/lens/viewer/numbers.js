// Numbers as people read them: fixed decimals and a real minus sign, as in every other picture of overt.

export function number(value, places = 2) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2).replace("+", "") : value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replaceAll("-", "−");
}

export function scientific(value, places = 1) {
  if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : number(value);
  return value.toExponential(places).replace("+", "").replaceAll("-", "−");
}

// How many decimals show the largest of the values with two digits that count, within limits.
export function decimals(values, least = 2, most = 4) {
  let largest = 0;
  for (const value of values) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value));
  return largest === 0 ? least : Math.min(most, Math.max(least, 1 - Math.floor(Math.log10(largest))));
}

// A vector's first entries, then how many there are.
export function vectorText(values, shown = 3) {
  const some = Array.from(values.length <= shown + 1 ? values : values.slice(0, shown));
  const told = some.map((value) => number(value, decimals(some))).join("  ");
  return values.length <= shown + 1 ? `[${told}]` : `[${told} … ${values.length}]`;
}
