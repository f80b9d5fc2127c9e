"""The commands that measure every head of a model."""
