// A model's weights, from the page's blocks into the core's memory: tables unchanged, linear maps and vectors as float32.

const BYTES = { int8: 1, int16: 2, float32: 4 };

// `tensors` are { name, block, kind, type, rows, columns, offset, scales }: the offsets in the block of the tensor and of its scales.
// Memory for all of them is allocated first, so that a block's base64 can be released after decoding.
export function createWeights(core, { tensors, blocks }) {
  const placed = new Map();
  for (const tensor of tensors) {
    const table = tensor.kind === "table";
    const address = core.allocate(tensor.rows * tensor.columns * (table ? BYTES[tensor.type] : 4)) >>> 0;
    placed.set(tensor.name, { ...tensor, address, scaling: table ? core.room(tensor.rows) : 0 });
  }
  let next = 0;
  return {
    // The address of a tensor; 0 if the model has none.
    at: (name) => placed.get(name)?.address ?? 0,
    tensor: (name) => placed.get(name),
    complete: () => next === blocks.length,
    // Decodes the next block. Returns a sentence if it is damaged, otherwise nothing.
    add(text) {
      const [number, expected] = [next++, blocks[next - 1]];
      const before = core.allocate(0);
      const decoded = core.decoded(text);
      const whole = decoded && decoded.count === expected.bytes && core.checksum(decoded.address, decoded.count / 4) >>> 0 === expected.sum;
      if (whole) for (const tensor of placed.values()) if (tensor.block === number) unpack(core, tensor, decoded.address);
      core.release(before);
      const wrong = decoded && decoded.count === expected.bytes ? "has other bytes than were written" : "is cut short";
      return whole ? "" : `The file's model is damaged: part ${number + 1} of ${blocks.length} ${wrong}. Write the page again with overt play.`;
    },
  };
}

function unpack(core, { kind, type, rows, columns, offset, scales, address, scaling }, start) {
  const from = start + offset;
  const bytes = rows * columns * BYTES[type];
  if (kind === "linear") core[`panels_from_${type}`](from, start + scales, rows, columns, address);
  else core.bytes(address, bytes).set(core.bytes(from, bytes));
  if (scaling) core.floats(scaling, rows).set(core.floats(start + scales, rows));
}

// Copies rows of a table as float32 vectors to `to`, or adds them there.
export function lookUp(core, { type, address, scaling, columns }, numbers, count, to, add = false) {
  core[`rows_from_${type}`](address, scaling, numbers, count, columns, Number(add), to);
}
