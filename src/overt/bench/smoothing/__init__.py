"""Smoothers side by side: the same noisy signals, the error each leaves, and the time each takes."""
