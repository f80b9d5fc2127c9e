"""Contenders side by side: the same inputs, their results compared first, then timed in turns, and held against the machine."""
