// A model that runs in a Worker of the page. A reader is { ready, read(text) }: `ready` promises a sentence where there is no model to come, and
// nothing otherwise; `read` promises { header, … } or a sentence; `changed` asks a changed model, as worker/changed.js has it. `progress` is called with the share of the model that is
// loaded, `stepped` with the Worker's messages before an answer.

import { bytesOf } from "../../lens/viewer/web/data/data.js";
import { DAMAGED } from "./damaged.js";

const OFF = "This browser runs no WebAssembly here, so the sentence cannot be changed. Everything else on this page works.";
const ALONE = "This browser starts no Worker for a page like this, so the sentence cannot be changed. Everything else on this page works.";

const UNFETCHED = "The model could not be fetched, so the sentence cannot be changed. Load the page again once there is a network.";

export function createWorkerReader(page, blocks) {
  const reader = { progress: () => {}, stepped: () => {}, ready: null, read: null };
  const waiting = [];
  const starting = startedWorker(page).then((worker) => {
    // Answers come in the order of the questions.
    worker.onmessage = ({ data }) => (data.step ? reader.stepped(data.step) : waiting.shift()?.(data));
    worker.onerror = (event) => {
      event.preventDefault();
      while (waiting.length) waiting.shift()({ sentence: ALONE });
    };
    return worker;
  });
  const request = (message) => starting.then((worker) => {
    worker.postMessage(message);
    return new Promise((done) => waiting.push(done));
  }, (sentence) => ({ sentence }));
  let number = 0;
  reader.ready = load(page, blocks, request, (share) => reader.progress(share));
  reader.read = (text, edit) => request({ text, number: number++, edit });
  reader.changed = request;
  return reader;
}

// A file in the page's folder, where a website stores the weights; null if it cannot be fetched.
const fetched = (name) => fetch(encodeURIComponent(name)).then((response) => (response.ok ? response.text() : null)).catch(() => null);

// The Worker's script is compressed in the page; throws a sentence if it cannot be started.
async function startedWorker(page) {
  if (typeof WebAssembly !== "object") throw OFF;
  const letters = await lettersOf(page, "worker");
  if (letters === null) throw UNFETCHED;
  const script = await bytesOf(letters, "gzip").catch(() => { throw DAMAGED; });
  try {
    return new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  } catch {
    throw ALONE;
  }
}

// The content of an element, or of the file that it names; null if that cannot be fetched.
async function lettersOf(page, id) {
  const element = page.getElementById(id);
  element?.remove(); // it is used only once
  return element?.dataset.file ? fetched(element.dataset.file) : (element?.textContent ?? "");
}

// Sends the core, the model's description, and then its weights block by block; the first sentence in return is the error.
async function load(page, blocks, request, progress) {
  const [core, model] = await Promise.all([lettersOf(page, "core"), lettersOf(page, "model")]);
  if (core === null || model === null) return UNFETCHED;
  const begun = await request({ core, model });
  if (begun.sentence) return begun.sentence;
  for (let n = 0; n < blocks; n++) {
    const block = await lettersOf(page, `weights-${n}`);
    const { sentence } = block === null ? { sentence: UNFETCHED } : await request({ block });
    if (sentence) return sentence;
    progress((n + 1) / blocks);
  }
  return "";
}
