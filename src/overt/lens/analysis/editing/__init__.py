"""Edits of a model's attention while it runs: arcs blocked, rows set, heads scaled, parts of another run put in, and their effects."""
