"""torch's own attention layer: its masks, its weights, its place in a model."""
