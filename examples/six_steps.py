"""The six steps of Transformer self-attention, written out, and the same in one call.

Run it: python examples/six_steps.py
"""

import torch

import overt

torch.manual_seed(0)
words = ["thinking", "machines", "dream"]
embeddings = torch.randn(3, 512)  # one row a word

# 1  Multiply each embedding by three learned matrices: a query, a key and a value, 64 wide for a 512-wide embedding.
query_matrix, key_matrix, value_matrix = (torch.randn(512, 64) / 512**0.5 for _ in range(3))
query, key, value = embeddings @ query_matrix, embeddings @ key_matrix, embeddings @ value_matrix  # (3, 64) each

# 2  Score: the dot product of each query with every key.
scores = query @ key.T  # (3, 3)

# 3  Divide by the square root of the key's width, here 8.
scaled = scores / 64**0.5

# 4  Softmax: positive weights that sum to 1 for each word.
weights = scaled.softmax(dim=-1)

# 5  Weight each value by its softmax score.
weighted = weights[:, :, None] * value[None, :, :]  # (3, 3, 64)

# 6  Sum: what each word takes from all the others.
output = weighted.sum(dim=1)  # (3, 64)

for word, row in zip(words, weights, strict=True):
    print(f"{word:10}", "  ".join(f"{other} {weight:.2f}" for other, weight in zip(words, row.tolist(), strict=True)))

# The same in one call; `steps` keeps what is on the way, `attend` only the output.
steps = overt.steps(query, key, value)
assert torch.allclose(steps.scores, scaled, atol=1e-6)
assert torch.allclose(steps.weights, weights, atol=1e-6)
assert torch.allclose(overt.attend(query, key, value), output, atol=1e-5)

# Any model does the same inside, and can be asked for it while it runs.
model = torch.nn.MultiheadAttention(512, 8, batch_first=True)
with overt.lens.record(model) as recording:
    model(embeddings[None], embeddings[None], embeddings[None])
print(recording[0, 3].steps(row=2))
print(f"recomputed vs. model: {recording.verify().difference:.1e}")
