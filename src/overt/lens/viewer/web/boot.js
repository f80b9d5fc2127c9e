import { open, embedded } from "./data/data.js";
import { mount } from "./main.js";

// The page itself: the recording stands in it, and goes where the still picture was.
open(embedded(document)).then((recording) => {
  document.documentElement.className = "live";
  document.getElementById("still").remove();
  mount(document.getElementById("viewer"), recording);
});
