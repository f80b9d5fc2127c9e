"""Hidden states that attend to each other: h_1 … h_n, f(h_i, h_j), the softmax, c_i, [h_i, c_i], by hand and by one line.

Run it: python examples/hidden_states.py
"""

import torch
from torch import nn

from overt.layers import Contextual

torch.manual_seed(0)
words = ["sky", "is", "clear", "today"]
vectors = torch.randn(1, 4, 6)  # (batch, words, features)

# The layer reads the words in order and gives one hidden state a word.
gru = nn.GRU(6, 3, batch_first=True)
layer = Contextual(gru, "additive")
hidden, _ = gru(vectors)
h = hidden[0]  # (4, 3)

# f(h_i, h_j) = v · tanh(W h_i + U h_j): a small fully connected layer scores each state against each other.
W, U = layer.attention.scoring.queries, layer.attention.scoring.keys
f = layer.attention.scoring.score()
contexts = []
for i, word in enumerate(words):
    scores = torch.stack([f(W(h[i : i + 1]), U(h[j : j + 1])).squeeze() for j in range(4)])  # e_i1 … e_i4
    weights = torch.softmax(scores, dim=0)  # a_i1 … a_i4, which sum to 1
    contexts.append(sum(weights[j] * h[j] for j in range(4)))  # c_i, a mixture of all states
    listed = "  ".join(f"{other} {weight:.2f}" for other, weight in zip(words, weights.tolist(), strict=True))
    print(f"{word:<6} attends to  {listed}")

by_hand = torch.cat([h, torch.stack(contexts)], dim=-1)  # [h_i, c_i]: (4, 6)

# The same in one line: the call and the return are the GRU's own, twice as wide.
joined, last = layer(vectors)
print(f"\n[h_1, c_1] by hand {[round(number, 3) for number in by_hand[0].tolist()]}")
print(f"[h_1, c_1] by layer {[round(number, 3) for number in joined[0, 0].tolist()]}")
print(f"equal: {torch.allclose(by_hand, joined[0], atol=1e-6)}, {tuple(hidden.shape)} became {tuple(joined.shape)}")

# The next layer reads [h, c]: stacked, each reads the other's states and contexts.
stacked = Contextual(nn.LSTM(layer.features, 3, batch_first=True), "dot")
print(f"stacked: {tuple(joined.shape)} became {tuple(stacked(joined)[0].shape)}")
