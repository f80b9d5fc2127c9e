// Chromium starts no worker from a page that is opened as a file; from text it does. `worker-text.js` holds that of the search.
if (location.protocol === "file:") {
  const Started = window.Worker
  window.Worker = class extends Started {
    constructor(address) {
      super(URL.createObjectURL(new Blob([window.searchWorker ?? `importScripts(${JSON.stringify(String(address))})`])))
    }
  }
}
