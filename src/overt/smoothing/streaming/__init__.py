"""The causal smoother, one point at a time."""
