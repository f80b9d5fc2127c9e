"""Analyses of a recording, each with its limits: `overt.lens` exports them, and docs/reading.md tries them on a small model."""
