"""Comparison of contenders: same inputs, results compared first, then timed in alternation and compared with the machine's limits."""
