// A chart of one series by uPlot: the band and the curve; under them gaps and points, above them outliers, those far out at the edge.

import { timeIn } from "./words.js";

// At most so many points are drawn: of more, the first, the least and the largest of each run.
const DRAWN = 30000;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function visibleRows(plot) {
  const [first, last] = plot.series[0].idxs ?? [0, plot.data[0].length - 1];
  return [first, last];
}

// The range of the curve, its band and the usual points that are in view; of the whole series that of the picture on paper.
function rangeOf(series, columns, plot) {
  const { min, max } = plot.scales.x, times = columns.times;
  let [low, high] = series.limits;
  if (min > times[0] || max < times[times.length - 1]) {
    let [least, largest] = [Infinity, -Infinity];
    const add = (value) => {
      if (value !== null && value >= series.limits[0] && value <= series.limits[1]) [least, largest] = [Math.min(least, value), Math.max(largest, value)];
    };
    for (let row = 0; row < times.length; row++) {
      if (times[row] < min || times[row] > max) continue;
      add(columns.curve[row]);
      add(columns.data[row]);
      if (columns.lower) add(columns.lower[row]), add(columns.upper[row]);
    }
    if (largest >= least) [low, high] = [least, largest];
  }
  const margin = 0.06 * (high - low) || 0.5;
  return [low - margin, high + margin];
}

function drawGaps(series, plot) {
  const { ctx, bbox } = plot;
  ctx.fillStyle = colour("--gap");
  for (const [start, end] of series.gaps.map((pair) => pair.map(Number))) {
    const left = Math.max(plot.valToPos(start, "x", true), bbox.left), right = Math.min(plot.valToPos(end, "x", true), bbox.left + bbox.width);
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
}

function drawPoints(columns, plot) {
  const { ctx, bbox } = plot, [first, last] = visibleRows(plot), scale = devicePixelRatio;
  const run = last - first < DRAWN ? 1 : Math.max(1, Math.ceil((3 * (last - first + 1)) / DRAWN)), size = (last - first > 2000 ? 1.5 : last - first > 300 ? 2.5 : 4) * scale;
  ctx.fillStyle = colour("--point");
  const dot = (row) => {
    const y = plot.valToPos(columns.data[row], "y", true);
    if (y >= bbox.top && y <= bbox.top + bbox.height) ctx.fillRect(plot.valToPos(columns.times[row], "x", true) - size / 2, y - size / 2, size, size);
  };
  for (let start = first; start <= last; start += run) {
    let least = -1, largest = -1;
    for (let row = start; row < Math.min(start + run, last + 1); row++) {
      if (columns.data[row] === null || columns.outliers[row]) continue;
      if (least < 0 || columns.data[row] < columns.data[least]) least = row;
      if (largest < 0 || columns.data[row] > columns.data[largest]) largest = row;
    }
    if (least >= 0) dot(least);
    if (largest >= 0 && largest !== least) dot(largest);
    if (run > 1 && columns.data[start] !== null && !columns.outliers[start]) dot(start);
  }
}

function drawChanges(series, plot) {
  const { ctx, bbox } = plot;
  ctx.strokeStyle = colour("--fire");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const time of series.changes) {
    const x = plot.valToPos(Number(time), "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top), ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

function drawMarks(columns, plot) {
  const { ctx, bbox } = plot, [first, last] = visibleRows(plot), scale = devicePixelRatio, size = 4 * scale;
  const [top, bottom] = [bbox.top + 2 * scale, bbox.top + bbox.height - 2 * scale];
  ctx.strokeStyle = ctx.fillStyle = colour("--fire");
  ctx.lineWidth = 1.6 * scale;
  for (let row = first; row <= last; row++) {
    if (columns.data[row] === null) continue;
    const x = plot.valToPos(columns.times[row], "x", true), y = plot.valToPos(columns.data[row], "y", true);
    ctx.beginPath();
    if (y < bbox.top || y > bbox.top + bbox.height) {
      const [edge, inwards] = y < bbox.top ? [top, 1] : [bottom, -1];
      ctx.moveTo(x, edge);
      ctx.lineTo(x - size, edge + 1.8 * inwards * size);
      ctx.lineTo(x + size, edge + 1.8 * inwards * size);
      ctx.fill();
    } else if (columns.outliers[row]) {
      ctx.moveTo(x - size, y - size), ctx.lineTo(x + size, y + size), ctx.moveTo(x - size, y + size), ctx.lineTo(x + size, y - size);
      ctx.stroke();
    }
  }
}

const DAY = 86400;

// The labels of dates on the axis of times, with what they share, the year or the day, below the first.
export function dateLabels(series, times, step) {
  return times.map((time, index) => {
    const [day, clock = "00:00"] = timeIn(series, time).split(" ");
    if (step >= 360 * DAY) return day.slice(0, 4);
    if (step >= 28 * DAY) return day.slice(0, 7);
    if (step >= DAY) return day.slice(5) + (index ? "" : `\n${day.slice(0, 4)}`);
    return clock + (index && clock !== "00:00" ? "" : `\n${day}`);
  });
}

function options(series, height, width, { range, hooks, drawn }) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width, height, hooks, series: [{}, ...drawn],
    tzDate: series.dates ? (time) => uPlot.tzDate(new Date(time * 1000), series.zone) : undefined,
    scales: { x: { time: series.dates }, y: { range } },
    axes: [{ ...axis, space: width < 600 ? 70 : 60, ...(series.dates ? { values: (_, times, __, ___, step) => dateLabels(series, times, step) } : {}) }, { ...axis, size: 58 }],
    legend: { show: false },
    cursor: { drag: { x: true, y: false }, points: { size: 8, fill: colour("--blue"), stroke: colour("--paper") }, sync: { key: "smooth", setSeries: false } },
  };
}

// The curve with its band; `hover` is called with a row.
export function mainChart(series, columns, element, { width, height, hover, moved }) {
  const line = { stroke: colour("--blue"), width: 1.8, points: { show: false } }, edge = { width: 0, points: { show: false } };
  const band = columns.lower ? [{ series: [1, 2], fill: colour("--band") }] : [];
  const drawn = columns.lower ? [edge, edge, line] : [line];
  const data = columns.lower ? [columns.times, columns.upper, columns.lower, columns.curve] : [columns.times, columns.curve];
  const hooks = {
    drawClear: [(plot) => (drawGaps(series, plot), drawPoints(columns, plot))],
    draw: [(plot) => (drawChanges(series, plot), drawMarks(columns, plot))],
    setCursor: [(plot) => hover(plot.cursor.idx)],
    setScale: [(plot, name) => name === "x" && moved(plot.scales.x)],
  };
  return new uPlot({ ...options(series, height, width, { range: (plot) => rangeOf(series, columns, plot), hooks, drawn }), bands: band }, data, element);
}

// One column alone, as the trend.
export function partChart(series, columns, name, element, { width, height }) {
  const drawn = [{ stroke: colour("--blue"), width: 1.4, points: { show: false } }];
  return new uPlot(options(series, height, width, { hooks: {}, drawn }), [columns.times, columns[name]], element);
}
