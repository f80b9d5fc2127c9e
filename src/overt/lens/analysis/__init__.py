"""Analyses of a recording, each with what it leaves out: `overt.lens` exports them, and docs/reading.md tries them on a small model."""
