"""Who takes part: overt, PyTorch and other libraries."""
