"""An explanation as a PNG, SVG, PDF or GIF."""
