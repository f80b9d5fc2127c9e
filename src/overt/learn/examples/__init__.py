"""Small training tasks, each of which demonstrates one property of attention."""
