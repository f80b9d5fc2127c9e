"""The recipes of self-attention, each on real numbers: query, key and value; hidden states; no trained weights.

Each returns an `Explanation`. They are imported one by one, since `plain_vectors` and `vectors` need no torch.
"""
