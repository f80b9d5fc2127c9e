// The compiled core, and its memory. Arrays in it are addresses; a view of one holds only until more memory is allocated.

export async function startCore(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  return createCore(instance.exports);
}

export function createCore(functions) {
  const { memory } = functions;
  const floats = (address, count) => new Float32Array(memory.buffer, address, count);
  const integers = (address, count) => new Int32Array(memory.buffer, address, count);
  const letters = new TextEncoder();
  return {
    ...functions,
    floats,
    integers,
    bytes: (address, count) => new Uint8Array(memory.buffer, address, count),
    // A text terminated by 0.
    text: (address) => new TextDecoder().decode(new Uint8Array(memory.buffer, address, new Uint8Array(memory.buffer, address).indexOf(0))),
    // Memory for this many 4-byte numbers.
    room: (count) => functions.allocate(4 * count) >>> 0,
    put(numbers) {
      const address = functions.allocate(numbers.byteLength) >>> 0;
      new numbers.constructor(memory.buffer, address, numbers.length).set(numbers);
      return address;
    },
    // Decodes base64 to bytes: { address, count }; null if it is invalid.
    decoded(text) {
      const address = functions.allocate(text.length) >>> 0;
      letters.encodeInto(text, new Uint8Array(memory.buffer, address, text.length));
      const count = functions.decode_base64(address, text.length);
      return count < 0 ? null : { address, count };
    },
  };
}
