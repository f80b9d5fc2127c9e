"""A call of attention as plain tensors and numbers: what the native core and the GPU kernels are given."""
