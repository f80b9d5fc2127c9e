// The page in a notebook: an anywidget module. The page has its own frame, so that its style, keys and tokens cannot affect the notebook;
// the frame may run scripts and save files, and reaches nothing outside of itself.

function frameOf(model, el) {
  const frame = el.ownerDocument.createElement("iframe");
  frame.title = model.get("title");
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.setAttribute("allow", "clipboard-write; fullscreen");
  Object.assign(frame.style, { width: "100%", border: "0", borderRadius: "10px", display: "block" });
  return frame;
}

function render({ model, el }) {
  const frame = frameOf(model, el);
  const fill = () => (frame.srcdoc = model.get("page"));
  const grow = () => (frame.style.height = `${model.get("height")}px`);
  fill();
  grow();
  model.on("change:page", fill);
  model.on("change:height", grow);
  el.append(frame);
  return () => {
    model.off("change:page", fill);
    model.off("change:height", grow);
    frame.remove();
  };
}

export default { render };
