"""Smoothers compared: their errors on the same noisy signals, and their times."""
