"""Live pages: a model that runs in the browser, in the viewer of recordings."""
