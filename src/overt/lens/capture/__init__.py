"""Catches a model's attention while the model runs."""
