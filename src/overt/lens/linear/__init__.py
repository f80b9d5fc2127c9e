"""Linear token mixers: each recurrence as a plain formula with its source, and its weights, which exist and are signed."""

from overt.lens.linear.recurrence import Recurrence

__all__ = ["Recurrence"]
