import { open, embedded } from "./data/data.js";
import { mount } from "./main.js";

// The page itself: it holds the recording, which replaces the still picture.
open(embedded(document)).then((recording) => {
  document.documentElement.className = "live";
  document.getElementById("still").remove();
  mount(document.getElementById("viewer"), recording);
});
