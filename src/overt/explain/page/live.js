// What is chosen, how it is drawn, and the keys.
function choose(v, j) {
  v.row = j;
  const line = v.ranked.find((each) => Number(each.dataset.row) === j);
  if (line.classList.contains("rest") && !v.whole && v.others) v.others.querySelector("button").click();
  views.forEach((each) => each !== v && j < each.e.tokens.length && each.e.tokens[j] === v.e.tokens[j] && ((each.row = j), draw(each)));
  draw(v);
}

function chooseHead(v, layer, head) {
  for (const each of views) {
    if (!each.e.rows[layer]?.[head]) continue;
    [each.layer, each.head] = [layer, head];
    draw(each);
  }
}

function draw(v) {
  const weights = v.e.rows[v.layer][v.head];
  drawSentence(v, weights);
  drawHeads(v, weights);
  drawSteps(v);
  drawStrips(v);
  drawBoard(v);
}

// The matrix is large: it is drawn again only where its room or the theme has changed.
function drawBoard(v) {
  const room = v.matrixBox.clientWidth - 38;
  const key = `${room} ${theme()} ${window.devicePixelRatio}`;
  if (v.drawn !== key) v.layout = board(v.canvas, v.e, room);
  v.drawn = key;
  mark(v, v.mark);
}

function drawSentence(v, weights) {
  const most = Math.max(STRONG, largest([weights]));
  v.tokens.forEach((token, j) => {
    const colour = shade(Number(weights[j]) / most);
    token.style.backgroundColor = css(colour);
    token.style.color = inkOn(colour);
    token.classList.toggle("chosen", j === v.row);
    token.tabIndex = j === v.row ? 0 : -1;
    token.setAttribute("aria-pressed", String(j === v.row));
    token.setAttribute("aria-label", `${v.e.labels[j]}, weight ${number(weights[j], 3)}`);
    token.title = number(weights[j], 3);
  });
  arcs(v.sentence, weights, v.e.own, most);
}

function drawHeads(v, weights) {
  v.cells.forEach((layer, l) => layer.forEach((button, h) => {
    const chosen = l === v.layer && h === v.head;
    button.setAttribute("aria-pressed", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    if (button.isConnected) stripes(button.firstChild, v.e.rows[l][h]);
  }));
  const order = weights.map((_, j) => j).sort((a, b) => Math.abs(Number(weights[b])) - Math.abs(Number(weights[a])));
  const top = order.slice(0, order.length <= 8 ? 8 : 6);
  const most = Math.max(1, largest([weights]));
  v.rowBox.replaceChildren(...top.flatMap((j) => [make("bdi", { text: v.e.labels[j] }), make("span", { className: "number", text: number(weights[j], 3) }), bar(weights[j], most)]));
  const rest = order.slice(top.length);
  if (rest.length) {
    const total = rest.reduce((sum, j) => sum + Number(weights[j]), 0);
    v.rowBox.append(make("span", { className: "quiet", text: `the other ${rest.length}` }), make("span", { className: "number quiet", text: number(total, 3) }));
  }
  drawHeadName(v);
}

function drawHeadName(v) {
  if (!v.e.name) return v.chosenHead.replaceChildren();
  const own = v.layer === v.shown.layer && v.head === v.shown.head;
  const told = own ? `: ${v.e.why}. The steps and the matrix show it.` : `. The steps and the matrix show ${v.e.name}. `;
  v.chosenHead.replaceChildren(make("b", { text: `L${v.layer}H${v.head}` }), told);
  if (own) return undefined;
  const back = make("button", { className: "cell-button", text: `back to ${v.e.name}`, attributes: { type: "button" } });
  back.addEventListener("click", () => chooseHead(v, v.shown.layer, v.shown.head));
  v.chosenHead.append(back);
  return undefined;
}

const stepOf = (v) => v.e.stages[Math.min(state.step, v.e.stages.length - 1)];

function drawSteps(v) {
  const stage = stepOf(v);
  const keys = v.e.stages.map((each) => each.key);
  const now = keys.indexOf(stage.key);
  v.root.classList.toggle("playing", state.playing);
  const kept = columnsKept(v, stage.key);
  for (const cell of v.root.querySelectorAll(".steps [data-column]")) {
    const place = keys.indexOf(cell.dataset.column);
    cell.classList.toggle("now", place === now);
    cell.classList.toggle("later", place > now);
    cell.classList.toggle("away", cell.matches("th, td") && !kept.has(cell.dataset.column));
  }
  // A foot's first cell reaches over the columns that are in sight before the weights.
  const seen = [...v.root.querySelectorAll(".steps thead th:not(.away)")].map((head) => head.dataset.column);
  const ahead = seen.filter((column) => column !== "normalize" && column !== "weigh").length;
  for (const line of v.root.querySelectorAll(".steps tfoot tr")) {
    line.children[0].colSpan = ahead;
    line.children[1].classList.toggle("away", !kept.has("normalize"));
    line.children[2].classList.toggle("away", !kept.has("weigh"));
  }
  for (const line of v.ranked) {
    line.hidden = line.classList.contains("rest") && !v.whole && Boolean(v.others);
    line.classList.toggle("chosen", Number(line.dataset.row) === v.row);
    line.setAttribute("aria-current", String(Number(line.dataset.row) === v.row));
  }
  if (v.others) {
    v.others.hidden = false;
    for (const cell of v.others.querySelectorAll("td")) cell.hidden = v.whole;
  }
  tell(v, stage);
}

// The columns that the width has room for: all of them, all but the vectors, or the present step's beside the weights.
function columnsKept(v, key) {
  const [width, ends] = [v.root.clientWidth, ["weigh", "sum", "join"]];
  v.root.classList.toggle("narrow", width < 720);
  if (width >= 720) return new Set(["vectors", "score", "scale", "normalize", ...ends]);
  if (key === "vectors") return new Set(["vectors"]);
  if (width >= 480) return new Set(["score", "scale", "normalize", ...ends]);
  return new Set(["normalize", key, ...(ends.includes(key) ? ends : [])]);
}

function tell(v, stage) {
  const told = `${stage.key} ${v.row}`;
  if (v.told === told) return;
  v.told = told;
  const says = make("p", { className: "says" }, make("b", {}, `${stage.number} · `, formula(stage.formula)), formula(stage.sentence));
  const line = make("p", { className: "working" }, make("b", {}, make("bdi", { text: v.e.labels[v.row] })), "  ", formula(working(v.e, stage, v.e.steps[v.row])));
  v.caption.replaceChildren(says, line);
}

function drawStrips(v) {
  for (const { canvas, values, most } of v.strips) if (canvas.offsetParent) strip(canvas, values, most);
}

// The sum as it comes about: token after token, the strongest first.
function addUp(v, start) {
  const lines = v.ranked.map((line) => v.e.steps[Number(line.dataset.row)]);
  const count = Math.min(lines.length, Math.floor(((performance.now() - start) / 1800) * Math.min(lines.length, 10)));
  const part = count >= Math.min(lines.length, 10) ? v.e.output : v.e.output.map((_, d) => lines.slice(0, count).reduce((sum, row) => sum + Number(row.weighted[d]), 0));
  strip(v.output.canvas, part, v.output.most);
  if (part !== v.e.output && state.playing && stepOf(v).key === "sum") requestAnimationFrame(() => addUp(v, start));
  else strip(v.output.canvas, v.e.output, v.output.most);
}

function go(step) {
  state.step = Math.min(Math.max(step, 0), stages.length - 1);
  drawPlayer();
  for (const v of views) {
    drawSteps(v);
    drawStrips(v);
    if (!state.playing || calm.matches) continue;
    if (stepOf(v).key === "normalize") grow(v);
    if (stepOf(v).key === "sum") addUp(v, performance.now());
  }
}

// The bars grow from nothing to their weights.
function grow(v) {
  const bars = v.root.querySelectorAll(".steps tbody .bar b");
  for (const fill of bars) fill.style.width = "0";
  requestAnimationFrame(() => requestAnimationFrame(() => bars.forEach((fill) => (fill.style.width = `${100 * Number(fill.dataset.share)}%`))));
}

function play() {
  if (state.playing) return stop();
  state.playing = true;
  go(state.step >= stages.length - 1 ? 0 : state.step + 1);
  state.timer = setTimeout(next, HOLD[stages[state.step].key]);
  return undefined;
}

function next() {
  if (state.step >= stages.length - 1) return stop();
  go(state.step + 1);
  state.timer = setTimeout(next, HOLD[stages[state.step].key]);
  return undefined;
}

function stop() {
  clearTimeout(state.timer);
  state.playing = false;
  go(state.step);
}

const PLAY = "M1 0l11 6-11 6z";
const PAUSE = "M1 0h3.6v12H1zM7.4 0H11v12H7.4z";

function preparePlayer() {
  const player = document.getElementById("player");
  const icon = document.createElementNS(SVG, "svg");
  icon.setAttribute("viewBox", "0 0 12 12");
  icon.setAttribute("aria-hidden", "true");
  icon.append(document.createElementNS(SVG, "path"));
  const button = make("button", { className: "play", attributes: { type: "button", id: "play" }, on: { click: play } }, icon, make("span", { text: "Play" }));
  const list = make("ol", { className: "stages" });
  stages.forEach((stage, i) => {
    const step = make("button", { attributes: { type: "button", "aria-label": `step ${stage.number}: ${stage.title}`, title: stage.title }, on: { click: () => pick(i) } });
    step.append(make("i", { text: String(stage.number) }), make("span", { text: stage.title }));
    list.append(make("li", {}, step));
  });
  player.append(button, list);
}

function pick(step) {
  if (state.playing) stop();
  go(step);
}

function drawPlayer() {
  const button = document.getElementById("play");
  button.querySelector("path").setAttribute("d", state.playing ? PAUSE : PLAY);
  button.querySelector("span").textContent = state.playing ? "Pause" : "Play";
  document.querySelectorAll(".stages button").forEach((each, i) => {
    each.className = i === state.step ? "now" : i < state.step ? "past" : "";
    if (i === state.step) each.setAttribute("aria-current", "step");
    else each.removeAttribute("aria-current");
  });
}

// From row to row as the table shows them.
function moveRow(v, by) {
  const lines = v.ranked.filter((line) => !line.hidden);
  const at = lines.findIndex((line) => Number(line.dataset.row) === v.row);
  choose(v, Number(lines[Math.min(Math.max(at + by, 0), lines.length - 1)].dataset.row));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const from = event.target;
  const v = views.find((each) => each.root.contains(from)) || views.find((each) => !each.root.hidden);
  if (event.key === "ArrowRight") pick(state.step + 1);
  else if (event.key === "ArrowLeft") pick(state.step - 1);
  else if (event.key === "ArrowDown") moveRow(v, 1);
  else if (event.key === "ArrowUp") moveRow(v, -1);
  // On a button the space bar is the button's.
  else if (event.key === " " && !(from instanceof HTMLButtonElement)) play();
  else return;
  event.preventDefault();
}

function prepareTheme() {
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = theme() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `use the ${button.textContent} theme`);
  };
  const redraw = () => {
    name();
    views.forEach(draw);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  name();
}

// Where every word of a text asks, one explanation is shown at a time, and the asking words lead to the others.
function ask(i) {
  views.forEach((v, k) => (v.root.hidden = k !== i));
}

function prepareAskers() {
  if (!document.querySelector("main.askers")) return;
  for (const v of views) {
    const asking = [...v.root.querySelectorAll(".asks")];
    asking.forEach((token, i) => {
      const button = { role: "button", tabindex: i === v.e.word ? "0" : "-1", "aria-pressed": String(i === v.e.word) };
      for (const [name, value] of Object.entries(button)) token.setAttribute(name, value);
      token.addEventListener("click", () => ask(i));
      token.addEventListener("keydown", (event) => {
        const to = { Enter: i, ArrowDown: Math.min(i + 1, asking.length - 1), ArrowUp: Math.max(i - 1, 0) }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        ask(to);
        views[to].root.querySelectorAll(".asks")[to].focus();
      });
    });
  }
  ask(0);
}

document.documentElement.className = "live";
preparePlayer();
document.querySelectorAll("article[data-explanation]").forEach((root, i) => views.push(view(explanations[i], root)));
prepareAskers();
prepareTheme();
drawPlayer();
views.forEach(draw);
document.addEventListener("keydown", keys);
