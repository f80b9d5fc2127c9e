"""The contenders: overt, PyTorch and other libraries."""
