"""Small training tasks, each of which shows one property of attention."""
