"""Contenders side by side: the same inputs, their results compared first, then timed in turns and compared with the machine's limits."""
