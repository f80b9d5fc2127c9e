"""Reports of a smoothing: sentences, a curve to store and send, a picture, a page."""
