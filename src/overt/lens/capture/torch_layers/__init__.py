"""What torch's own multi-head layers compute: off their fast path, and on it."""
