"""Positions of tokens: added to the inputs, as rotations of queries and keys, or as a bias of the scores."""
