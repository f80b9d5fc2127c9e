// The visible rows and keys of a map, and the pixels of a weight.
//
// { left, top } are the key and the row at the upper left corner, { wide, high } the pixels of one weight along keys and rows.

const CLOSEST = 72; // CLOSEST: the most pixels of a weight

export function createCamera(head) {
  const square = head.queryCount <= 3 * head.keyCount && head.keyCount <= 3 * head.queryCount;
  let [width, height, left, top, wide, high] = [1, 1, 0, 0, 1, 1];

  const fitted = () => {
    const [x, y] = [width / Math.max(1, head.keyCount), height / Math.max(1, head.queryCount)];
    return square ? [Math.min(x, y, CLOSEST), Math.min(x, y, CLOSEST)] : [Math.min(x, CLOSEST), Math.min(y, CLOSEST)];
  };

  // A map smaller than its area is centred; a larger one leaves none of it empty.
  const within = (start, shown, all) => (shown >= all ? (all - shown) / 2 : Math.max(0, Math.min(all - shown, start)));
  const clamp = () => {
    const minimum = fitted();
    const factor = Math.max(Math.min(1, CLOSEST / Math.max(wide, high)), 1e-9);
    [wide, high] = [Math.max(wide * factor, minimum[0]), Math.max(high * factor, minimum[1])];
    if (square) wide = high = Math.max(minimum[0], Math.min(wide, high));
    [left, top] = [within(left, width / wide, head.keyCount), within(top, height / high, head.queryCount)];
  };

  const camera = {
    get size() { return [wide, high]; },
    get left() { return left; },
    get top() { return top; },
    get whole() { return wide <= fitted()[0] * 1.001 && high <= fitted()[1] * 1.001; },
    // [r0, r1, k0, k1] in sight, within the map.
    get view() {
      return [Math.max(0, top), Math.min(head.queryCount, top + height / high), Math.max(0, left), Math.min(head.keyCount, left + width / wide)];
    },
    setSize(w, h) {
      const visibleRange = camera.whole ? null : camera.view;
      [width, height] = [w, h];
      camera.show(visibleRange);
    },
    // Shows these rows and keys, or all.
    show(view) {
      if (!view) [wide, high] = fitted();
      else {
        const [r0, r1, k0, k1] = view;
        [wide, high] = [width / Math.max(1e-6, k1 - k0), height / Math.max(1e-6, r1 - r0)];
        if (square) wide = high = Math.min(wide, high);
        [left, top] = [(k0 + k1) / 2 - width / wide / 2, (r0 + r1) / 2 - height / high / 2];
      }
      clamp();
    },
    pan(x, y) {
      [left, top] = [left - x / wide, top - y / high];
      clamp();
    },
    // Zooms by a factor around pixel x, y.
    zoom(factor, x = width / 2, y = height / 2) {
      const [key, row] = [left + x / wide, top + y / high];
      const maximum = CLOSEST / Math.max(wide, high);
      const by = Math.min(factor, maximum);
      [wide, high] = [wide * by, high * by];
      const minimum = fitted();
      [wide, high] = [Math.max(wide, minimum[0]), Math.max(high, minimum[1])];
      [left, top] = [key - x / wide, row - y / high];
      clamp();
    },
    // The pixel at a weight's centre.
    place: (row, key) => [(key + 0.5 - left) * wide, (row + 0.5 - top) * high],
    // Moves a weight into sight by the shortest way.
    reach(row, key) {
      const [shownRows, shownKeys] = [height / high, width / wide];
      if (row < top) top = row;
      if (row + 1 > top + shownRows) top = row + 1 - shownRows;
      if (key < left) left = key;
      if (key + 1 > left + shownKeys) left = key + 1 - shownKeys;
      clamp();
    },
    // Row and key at a pixel; null outside the map.
    at(x, y) {
      const [key, row] = [Math.floor(left + x / wide), Math.floor(top + y / high)];
      return row >= 0 && row < head.queryCount && key >= 0 && key < head.keyCount ? [row, key] : null;
    },
  };
  return camera;
}
