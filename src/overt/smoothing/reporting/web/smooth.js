import { button, make } from "../../../drawing/web/elements.js";
import { mainChart, partChart } from "./chart.js";
import { columnsOf } from "./columns.js";
import { anomalies, distance, number, table, timeIn, verdict } from "./words.js";

const page = JSON.parse(document.getElementById("data").textContent);
const state = { index: 0, columns: null, charts: [] };
const parts = {};
const series = () => page.series[state.index];
// Rows of the table of anomalies; the others are counted.
const LISTED = 100;

function download(name, content) {
  const address = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
  make("a", { attributes: { href: address, download: name } }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function hover(row) {
  const { columns } = state;
  if (row === null || row === undefined || !columns) return;
  const value = columns.data[row], band = columns.lower && columns.lower[row] !== null ? ` (95% band ${number(columns.lower[row])} to ${number(columns.upper[row])})` : "";
  parts.readout.replaceChildren(
    make("b", { text: timeIn(series(), columns.times[row]) }), ` value ${value === null ? "–" : number(value)} · curve ${number(columns.curve[row])}${band} · `,
    make("span", { className: columns.outliers[row] ? "differs" : "", text: verdict(series(), columns, row) }),
  );
}

// The range of times in view, moved or made wider by a factor, about its middle.
function view(shift, factor) {
  const [plot] = state.charts, times = state.columns.times, [first, last] = [times[0], times[times.length - 1]];
  const { min, max } = plot.scales.x, half = Math.min(((max - min) / 2) * factor, (last - first) / 2);
  const middle = Math.min(Math.max((min + max) / 2 + shift * (max - min), first + half), last - half);
  plot.setScale("x", { min: middle - half, max: middle + half });
}

function whole() {
  const { times } = state.columns;
  state.charts[0].setScale("x", { min: times[0], max: times[times.length - 1] });
}

function moved({ min, max }) {
  for (const chart of state.charts.slice(1)) if (chart.scales.x.min !== min || chart.scales.x.max !== max) chart.setScale("x", { min, max });
}

function drawCharts() {
  const { columns } = state, width = parts.chart.clientWidth;
  for (const chart of state.charts) chart.destroy();
  parts.chart.replaceChildren();
  const height = width < 600 ? 280 : 400;
  const main = parts.chart.appendChild(make("div", { attributes: { role: "img", "aria-label": `Values, curve and band of ${series().name || "the series"}` } }));
  const charts = [mainChart(series(), columns, main, { width, height, hover, moved })];
  for (const name of ["trend", "seasonal"]) {
    if (!columns[name]) continue;
    const part = parts.chart.appendChild(make("div", {}, make("p", { className: "quiet", text: name })));
    charts.push(partChart(series(), columns, name, part, { width, height: 130 }));
  }
  state.charts = charts;
}

function drawLegend() {
  const { columns } = state;
  const entry = (className, text) => make("span", {}, make("i", { className }), text);
  parts.legend.replaceChildren(
    entry("dot", "value"), entry("line", "curve"), ...(columns.lower ? [entry("band", "95% band of the mean")] : []),
    ...(columns.outliers.some(Boolean) ? [entry("cross", "outlier, ▲▼ beyond the picture")] : []), ...(series().changes.length ? [entry("change", "change")] : []), ...(series().gaps.length ? [entry("gap", "gap: drawn by the model")] : []),
  );
  parts.note.textContent = [series().note, series().thinned, series().x].filter(Boolean).join(" · ");
}

function drawReport() {
  const rows = Object.entries(series().report).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })]);
  const how = make("details", {}, make("summary", { text: "How the curve was computed" }), make("p", { className: "quiet", text: series().explanation }));
  parts.report.replaceChildren(make("h2", { text: series().name || "Report" }), make("dl", {}, ...rows), ...(series().explanation ? [how] : []));
}

// A table whose first cell zooms to a range of times, or a word that there is none; rows beyond LISTED are counted.
function listed(title, heads, rows, total = rows.length) {
  const cells = heads.map((text) => make("th", { text, attributes: { scope: "col" } }));
  const body = rows.slice(0, LISTED).map(({ label, range, values }) => {
    const go = button(label, () => state.charts[0].setScale("x", range), { title: "zoom to it" });
    return make("tr", {}, make("th", { attributes: { scope: "row" } }, go), ...values.map((text) => make("td", { text: String(text) })));
  });
  const more = total > LISTED ? [make("p", { className: "quiet", text: `… and ${total - LISTED} more.` })] : [];
  const whole = make("div", { className: "scrolls" }, make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...body)));
  return [make("h2", { text: title }), ...(total ? [whole, ...more] : [make("p", { className: "quiet", text: "None." })])];
}

function drawAnomalies() {
  const { columns } = state, found = anomalies(series(), columns);
  const rows = found.slice(0, LISTED).map(({ kind, first, last, points, furthest }) => {
    const away = distance(series(), columns, furthest), times = columns.times;
    const values = [kind, points, number(columns.data[furthest]), number(columns.curve[furthest]), away === null ? "" : number(Number(away.toPrecision(2)))];
    return { label: between(times[first], times[last]), range: around(times[first], times[last]), values };
  });
  const tables = listed("Outliers and missing values", ["time", "kind", "points", "value", "expected", "× noise"], rows, found.length);
  const { changes, stuck } = series().tables;
  const held = stuck.map(([first, last, points, value]) => ({ label: between(Number(first), Number(last)), range: around(Number(first), Number(last)), values: [points, number(value)] }));
  const changed = changes.map(([time, lower, upper, kind, size, probability]) => {
    const [at, first, last] = [time, lower, upper].map(Number);
    return { label: timeIn(series(), at), range: around(first, last), values: [between(first, last), kind, number(size), probability.toFixed(2)] };
  });
  if (held.length) tables.push(...listed("Stuck values", ["time", "points", "value"], held));
  if (changed.length) tables.push(...listed("Changes", ["time", "95% interval", "kind", "size", "probability"], changed));
  parts.anomalies.replaceChildren(...tables);
}

const between = (first, last) => timeIn(series(), first) + (last > first ? ` to ${timeIn(series(), last)}` : "");

function around(first, last) {
  const { times } = state.columns, margin = Math.max((times[times.length - 1] - times[0]) / 20, last - first);
  return { min: Math.max(first - margin, times[0]), max: Math.min(last + margin, times[times.length - 1]) };
}

async function choose(index) {
  const columns = await columnsOf(page.series[index]);
  Object.assign(state, { index, columns });
  parts.readout.textContent = "Move over the chart to read values; drag to zoom, double-click to see the whole.";
  drawCharts(), drawLegend(), drawReport(), drawAnomalies();
}

function build() {
  const root = document.getElementById("smooth");
  const options = page.series.map(({ name }, index) => make("option", { text: name, attributes: { value: index } }));
  const select = make("select", { attributes: { "aria-label": "series" }, on: { change: () => choose(Number(select.value)) } }, ...options);
  const file = () => download(`${(series().name || page.title).replace(/[^\p{L}\p{N}.-]+/gu, "-")}.csv`, table(series(), state.columns));
  const zoom = [button("+", () => view(0, 0.5), { title: "zoom in" }), button("−", () => view(0, 2), { title: "zoom out" }), button("←", () => view(-0.5, 1), { title: "earlier" }), button("→", () => view(0.5, 1), { title: "later" }), button("whole", whole)];
  for (const name of ["chart", "legend", "note", "readout", "report", "anomalies"]) parts[name] = make("div", { className: name });
  parts.report.classList.add("card"), parts.anomalies.classList.add("card"), parts.note.classList.add("quiet");
  const controls = make("div", { className: "saves" }, ...(page.series.length > 1 ? [select] : []), ...zoom, button("Download CSV", file));
  const card = make("div", { className: "card" }, controls, parts.readout, parts.chart, parts.legend, parts.note);
  root.append(make("h1", { text: page.title }), make("div", { className: "columns" }, make("div", {}, card, parts.anomalies), parts.report));
  document.getElementById("still").remove();
  document.documentElement.className = "live";
  new ResizeObserver(() => state.charts.length && parts.chart.clientWidth !== state.charts[0].width && drawCharts()).observe(parts.chart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
}

build();
choose(0);
