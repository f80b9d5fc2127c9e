"""A call of attention as plain tensors and numbers: the form that the native core and the GPU kernels take."""
