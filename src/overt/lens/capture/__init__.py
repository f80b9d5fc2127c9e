"""Where a model's attention is caught while the model runs."""
