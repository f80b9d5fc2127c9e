// Columns of numbers, as `page.pack` stores them: differences, folded to whole numbers of 0 or more, byte by byte, compressed.

async function whole(text) {
  const compressed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = bytes.length / 8, numbers = new Float64Array(count);
  let total = 0;
  for (let row = 0; row < count; row++) {
    let folded = 0;
    for (let plane = 7; plane >= 0; plane--) folded = folded * 256 + bytes[plane * count + row];
    total += folded % 2 ? -(folded + 1) / 2 : folded / 2;
    numbers[row] = total;
  }
  return numbers;
}

// The numbers of a column, null where one is missing.
async function unpack({ start: first, unit: step, bytes, empty }) {
  const start = Number(first), unit = Number(step);
  const [numbers, missing] = await Promise.all([whole(bytes), empty ? whole(empty) : null]);
  // A unit such as 0.01 is not exact: dividing by 100 gives the nearest number.
  const inverse = Math.round(1 / unit), decimal = unit < 1 && Math.abs(inverse * unit - 1) < 1e-9;
  return Array.from(numbers, (value, row) => (missing && missing[row] ? null : start + (decimal ? value / inverse : value * unit)));
}

export async function columnsOf(series) {
  const names = Object.keys(series.columns);
  const [times, ...columns] = await Promise.all([unpack(series.times), ...names.map((name) => unpack(series.columns[name]))]);
  return { times, ...Object.fromEntries(names.map((name, index) => [name, columns[index]])) };
}
