// A model that runs in a Worker of the page. A reader is { ready, read(text) }: `ready` promises a sentence where there is no model to come, and
// nothing otherwise; `read` promises { header, … } or a sentence; `changed` asks a changed model, as worker/changed.js has it. `progress` is called with the share of the model that is
// there, `stepped` with what the Worker says on its way to an answer.

const OFF = "This browser runs no WebAssembly here, so the sentence cannot be changed. Everything else on this page works.";
const ALONE = "This browser starts no Worker for a page like this, so the sentence cannot be changed. Everything else on this page works.";

const UNFETCHED = "The model could not be fetched, so the sentence cannot be changed. Load the page again once there is a network.";

export function createWorkerReader(page, blocks) {
  const reader = { progress: () => {}, stepped: () => {}, ready: null, read: null };
  const worker = typeof WebAssembly === "object" ? startedWorker() : null;
  if (!worker) {
    const sentence = typeof WebAssembly === "object" ? ALONE : OFF;
    const refused = () => Promise.resolve({ sentence });
    return { ...reader, ready: Promise.resolve(sentence), read: refused, changed: refused };
  }
  const waiting = [];
  const request = (message) => {
    worker.postMessage(message);
    return new Promise((done) => waiting.push(done));
  };
  // Answers come in the order of the questions.
  worker.onmessage = ({ data }) => (data.step ? reader.stepped(data.step) : waiting.shift()?.(data));
  worker.onerror = (event) => {
    event.preventDefault();
    while (waiting.length) waiting.shift()({ sentence: ALONE });
  };
  let number = 0;
  reader.ready = load(page, blocks, request, (share) => reader.progress(share));
  reader.read = (text) => request({ text, number: number++ });
  reader.changed = request;
  return reader;
}

// A file beside the page, as a site has the weights; null where there is none to be had.
const fetched = (name) => fetch(encodeURIComponent(name)).then((response) => (response.ok ? response.text() : null)).catch(() => null);

function startedWorker() {
  try {
    return new Worker(URL.createObjectURL(new Blob([WORKER_TEXT], { type: "text/javascript" })));
  } catch {
    return null;
  }
}

// Sends the core, what the model is, and then its weights block by block; the first sentence that comes back is what is wrong.
async function load(page, blocks, request, progress) {
  const letters = (id) => {
    const element = page.getElementById(id);
    const text = element?.textContent ?? "";
    element?.remove(); // it is not needed twice
    return text;
  };
  const begun = await request({ core: letters("core"), model: letters("model") });
  if (begun.sentence) return begun.sentence;
  for (let n = 0; n < blocks; n++) {
    const file = page.getElementById(`weights-${n}`)?.dataset.file;
    const block = file ? await fetched(file) : letters(`weights-${n}`);
    const { sentence } = block === null ? { sentence: UNFETCHED } : await request({ block });
    if (sentence) return sentence;
    progress((n + 1) / blocks);
  }
  return "";
}
