"""Calls whose tensors are torch's DTensors: each process computes its share, and keys go round where the sequence is divided."""
