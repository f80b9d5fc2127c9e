// Times, numbers and verdicts in words.

export const number = (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(5))).replace("-", "−"));

export function timeIn(series, time) {
  if (!series.dates) return number(time);
  const utc = series.zone === "Etc/UTC";
  const text = utc ? new Date(time * 1000).toISOString().slice(0, 19).replace("T", " ") : new Date(time * 1000).toLocaleString("sv-SE", { timeZone: series.zone });
  return text.replace(/ 00:00:00$/, "").replace(/(\d\d:\d\d):00$/, "$1");
}

// How a point relates to the curve, in standard deviations of the noise.
export function distance(series, columns, row) {
  const value = columns.data[row], expected = columns.curve[row];
  return value === null || expected === null || !series.noise ? null : Math.abs(value - expected) / series.noise;
}

export function verdict(series, columns, row) {
  if (columns.inserted[row]) return "in a gap: drawn by the model";
  if (columns.data[row] === null) return "missing: drawn by the model";
  const away = distance(series, columns, row);
  const times = away === null ? "" : `, ${number(Number(away.toPrecision(2)))} × the noise from the curve`;
  if (columns.outliers[row]) return `outlier${times}`;
  return away !== null && away > 3 ? `unusual${times}` : "usual";
}

// Outliers and missing values, those that follow each other together.
export function anomalies(series, columns) {
  const found = [];
  const kindOf = (row) => (columns.inserted[row] ? "" : columns.data[row] === null ? "missing" : columns.outliers[row] ? "outlier" : "");
  for (let row = 0; row < columns.times.length; row++) {
    const kind = kindOf(row);
    if (!kind) continue;
    let last = row;
    while (last + 1 < columns.times.length && kindOf(last + 1) === kind) last++;
    let furthest = row;
    for (let other = row; other <= last; other++) if ((distance(series, columns, other) ?? 0) > (distance(series, columns, furthest) ?? 0)) furthest = other;
    found.push({ kind, first: row, last, points: last - row + 1, furthest });
    row = last;
  }
  return found;
}

const cell = (value) => (value === null || value === undefined ? "" : String(value));
const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

// The points as a table with commas, times as the page shows them.
export function table(series, columns) {
  const names = ["data", "curve", "lower", "upper", "trend", "seasonal"].filter((name) => columns[name]);
  const lines = [["time", ...names.map((name) => (name === "data" ? "value" : name === "curve" ? "smooth" : name)), "verdict"].join(",")];
  for (let row = 0; row < columns.times.length; row++) {
    if (columns.inserted[row]) continue;
    const time = series.dates ? timeIn(series, columns.times[row]) : cell(columns.times[row]);
    lines.push([time, ...names.map((name) => cell(columns[name][row])), quoted(verdict(series, columns, row))].join(","));
  }
  return lines.join("\n") + "\n";
}
