// Words as vectors, from the rows of a linear map, stored in panels of eight for the core's product.

// Writes √width times the rows of these tokens to `to`.
export function embedded(core, weights, name, tokens, width, to) {
  const [scale, panels, rows] = [Math.sqrt(width), core.floats(weights.at(`${name}.weight`), weights.tensor(`${name}.weight`).rows * weights.tensor(`${name}.weight`).columns), core.floats(to, tokens.length * width)];
  tokens.forEach((token, i) => {
    const first = Math.floor(token / 8) * 8 * width + (token % 8);
    for (let k = 0; k < width; k++) rows[i * width + k] = scale * panels[first + 8 * k];
  });
}

// sin(p / 10000^(2i / width)) at even features, the cosine at odd ones (Vaswani et al. 2017, section 3.5), added to the rows at these positions.
export function addSinusoids(core, positions, width, to) {
  const rows = core.floats(to, positions.length * width);
  positions.forEach((p, i) => {
    for (let k = 0; k < width; k++) {
      const angle = p * 10000 ** (-(k - (k % 2)) / width);
      rows[i * width + k] += k % 2 ? Math.cos(angle) : Math.sin(angle);
    }
  });
}
