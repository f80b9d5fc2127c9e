import { DAMAGED } from "../damaged.js";

// Common to all Workers of a page: decodes the embedded data, and answers each message, with a `sentence` in case of an error.

// The core's bytes and the model's description, from their letters, or a sentence.
export async function embeddedModel(letters) {
  const [bytes, description] = await Promise.all([inflated(letters.core), inflated(letters.model)]).catch(() => []);
  return bytes ? { bytes, model: JSON.parse(new TextDecoder().decode(description)) } : { sentence: DAMAGED };
}

async function inflated(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

export function answerMessages(answer) {
  onmessage = async ({ data }) => {
    try {
      postMessage(await answer(data));
    } catch (error) {
      postMessage({ sentence: wrong(error) });
    }
  };
}

function wrong(error) {
  const memory = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
  return `The model cannot run here: ${memory ? "the browser gives it too little memory" : error.message}.`;
}
