// Measured numbers as text.
import { decimals, number } from "../../../../drawing/web/numbers.js";

export const shown = (value, digits) => (value === null ? "—" : number(value, digits));

export function interval([values, low, high], index) {
  const digits = decimals([values[index]]);
  return low[index] === null ? shown(values[index], digits) : `${shown(values[index], digits)} [${shown(low[index], digits)}, ${shown(high[index], digits)}]`;
}
