import { open, embedded } from "../../lens/viewer/web/data/data.js";

// Begins a page whose model runs, in the page or in Python: the recording that Python made is shown at once; `show` mounts it where the still picture was.
export function startLive(show) {
  open(embedded(document)).then((recording) => {
    document.documentElement.className = "live";
    document.getElementById("still").remove();
    show({ root: document.getElementById("viewer"), recording, description: JSON.parse(document.getElementById("live").textContent) });
  });
}

// Plays the steps once, from the first one, for a reader who did not come by a link; who wants less motion gets the first step and its button.
export function tellStory(store) {
  if (location.hash.length > 1) return;
  store.set(matchMedia("(prefers-reduced-motion: reduce)").matches ? { step: 0 } : { playing: true });
}
