"""Figures for print: every head at a glance, one head, arcs over a sentence, entropy by layer; vector graphics with embedded fonts."""

from overt.lens.figures.links import arcs
from overt.lens.figures.maps import heads_grid, one_head
from overt.lens.figures.paper import save
from overt.lens.figures.spread import entropy_by_layer

__all__ = ["arcs", "entropy_by_layer", "heads_grid", "one_head", "save"]
