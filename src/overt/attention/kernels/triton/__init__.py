"""Kernels for NVIDIA GPUs, written in Triton, and their launches."""
