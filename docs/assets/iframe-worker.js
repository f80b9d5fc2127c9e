// Chromium starts no worker from a page that is opened as a file, but does from text: `worker-text.js`, which the build writes, holds that
// of the search. Over http nothing of this happens.
if (location.protocol === "file:") {
  document.write(`<script src="${document.currentScript.src.replace("iframe-worker", "worker-text")}"><\/script>`)
  const Started = window.Worker
  window.Worker = class extends Started {
    constructor() {
      super(URL.createObjectURL(new Blob([window.searchWorker], { type: "text/javascript" })))
    }
  }
}
