"""Attention and self-attention: a decoder asks an encoder at each step; then a sequence asks itself.

Run it: python examples/attention_and_self_attention.py
"""

import torch
from torch import nn

import overt
from overt.layers import CrossAttention, SelfAttention

torch.manual_seed(0)
source, target = ["the", "cat", "sleeps"], ["le", "chat", "dort"]
encoder, decoder = nn.GRU(8, 5, batch_first=True), nn.GRUCell(8 + 5, 5)
states, last = encoder(torch.randn(1, 3, 8))  # one state a word of the source: (1, 3, 5)

# Without attention the decoder gets one vector for the whole source, however long it is: the bottleneck.
print(f"without attention: {tuple(last[0].shape)} for every step, whatever the length of the source\n")

# With it a small layer scores the previous decoder state against each encoder state, and each step has its own context.
attention = CrossAttention(5, 5, "additive")
prepared = attention.prepare(states)  # the states are projected once, not once a step
s = torch.zeros(1, 5)
for word in target:
    weights, context = attention.weights(s, prepared)[0], attention(s, prepared)
    listed = "  ".join(f"{other} {weight:.2f}" for other, weight in zip(source, weights.tolist(), strict=True))
    print(f"{word:<5} context from  {listed}   (untrained)")
    s = decoder(torch.cat([torch.randn(1, 8), context], dim=-1), s)

# Self-attention is the same call: now the queries come from the same sequence as the keys and values.
x = torch.randn(1, 3, 5)
itself = SelfAttention(5, "dot")
print(f"\nself-attention: {tuple(x.shape)} → {tuple(itself(x).shape)}, weights {tuple(itself.weights(x).shape)}")

# It does not see order: a sequence in another order gives the same contexts in that order. Positions have to be added.
order = torch.tensor([2, 0, 1])
print(f"order changes nothing: {torch.allclose(itself(x[:, order]), itself(x)[:, order], atol=1e-6)}")

# A mask makes it causal, for a decoder that must not see what it has yet to say. Row i holds what word i attends to.
print("\ncausal weights")
for row in overt.steps(x[0], x[0], x[0], mask=overt.Causal()).weights.tolist():
    print("  " + "  ".join(f"{weight:.2f}" for weight in row))
