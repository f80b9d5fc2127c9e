"""Calls with torch's DTensors: each process computes its share, and keys circulate if the sequence is divided."""
