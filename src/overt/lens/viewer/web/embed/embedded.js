// A page in a frame of another page: the text and one panel, a link to the whole page, and its height for the outer page.
import { make } from "../../../../drawing/web/elements.js";

export function startEmbedded(root, store) {
  if (!store.get().embed) return;
  root.classList.add("embedded");
  const whole = make("a", { className: "whole", text: "open the whole page", attributes: { target: "_blank", rel: "noopener" } });
  const follow = () => (whole.href = store.link().replace(/&embed=1(?=&|$)/, ""));
  root.querySelector(".bar").append(whole);
  store.subscribe(follow);
  follow();
  if (window.parent === window) return;
  // Only a number is sent, so any page may read it.
  new ResizeObserver(() => window.parent.postMessage({ overt: "height", height: Math.ceil(root.getBoundingClientRect().height) }, "*")).observe(root);
}
