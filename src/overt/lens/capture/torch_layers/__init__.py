"""The computations of torch's own multi-head layers, on and off their fast path."""
