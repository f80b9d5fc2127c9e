"""Edits of a model's attention while it runs: blocked arcs, set rows, scaled heads, parts of another run, and their effects."""
