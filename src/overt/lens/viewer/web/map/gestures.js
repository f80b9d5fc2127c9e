// Translates mouse, touch and keys on a map to pan, zoom, point at a cell and choose a cell.

const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function gestures(canvas, { pan, zoom, point, choose, step, whole }) {
  const down = new Map();
  let [moved, apart] = [0, 0];
  const position = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...down.values()];
    return { distance: Math.hypot(ax - bx, ay - by), middle: [(ax + bx) / 2, (ay + by) / 2] };
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture?.(event.pointerId);
    down.set(event.pointerId, position(event));
    if (down.size === 1) moved = 0;
    if (down.size === 2) apart = spread().distance;
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = position(event);
    const before = down.get(event.pointerId);
    if (!before) return point(now);
    down.set(event.pointerId, now);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (down.size === 1 && moved > 4) pan(now[0] - before[0], now[1] - before[1]);
    if (down.size === 2) {
      const { distance, middle } = spread();
      pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
      if (apart > 0) zoom(distance / apart, ...middle);
      apart = distance;
    }
  });
  const up = (event) => {
    const last = down.get(event.pointerId);
    if (last && down.size === 1 && moved <= 4 && event.type === "pointerup") choose(last);
    down.delete(event.pointerId);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoom(Math.exp((-event.deltaY * lines) / (event.ctrlKey ? 120 : 480)), ...position(event));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(4, ...position(event)));

  canvas.addEventListener("keydown", (event) => {
    if (event.metaKey || event.altKey || event.ctrlKey) return;
    const far = event.shiftKey ? 10 : 1;
    if (KEYS[event.key]) step(KEYS[event.key].map((by) => by * far));
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-" || event.key === "_") zoom(1 / 1.5);
    else if (event.key === "0" || event.key === "Home") whole();
    else if (event.key === "Enter" || event.key === " ") choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
