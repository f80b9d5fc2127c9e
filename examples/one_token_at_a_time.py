"""Multi-head attention at inference: tokens come one at a time, and the keys and values of earlier ones are kept.

Run it: python examples/one_token_at_a_time.py
"""

import time

import torch

from overt.layers import KVCache, MultiHeadAttention

torch.manual_seed(0)
torch.set_grad_enabled(False)
layer = MultiHeadAttention(256, heads=8, kv_heads=2, positions="rotary", causal=True).eval()
x = torch.randn(1, 512, 256)  # one sequence of 512 tokens

# All at once: causal, so no token sees what comes after it.
whole = layer(x)

# A prompt of 500 tokens, then one at a time; each new query asks the keys that are kept, and its own.
cache = KVCache()
parts = [layer(x[:, :500], cache=cache)]
parts += [layer(x[:, i : i + 1], cache=cache) for i in range(500, 512)]
print(f"cached equals uncached: {torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-5)}")
print(f"kept: {cache}, with 2 heads of keys for 8 of queries")

# What a step saves: without the cache every step computes all the tokens again.
start = time.perf_counter()
for i in range(500, 512):
    layer(x[:, : i + 1])
anew = time.perf_counter() - start
cache.rewind(12)
start = time.perf_counter()
for i in range(500, 512):
    layer(x[:, i : i + 1], cache=cache)
print(f"12 tokens anew {anew * 1e3:.0f} ms, with the cache {(time.perf_counter() - start) * 1e3:.0f} ms")

# Two sequences of different lengths, padded to 6; then each goes on with a token of its own, at its own place.
pair, lengths, more = torch.randn(2, 6, 256), torch.tensor([6, 3]), torch.randn(2, 1, 256)
cache = KVCache()
layer(pair, lengths=lengths, cache=cache)
step = layer(more, cache=cache)
alone = layer(torch.cat([pair[1:, :3], more[1:]], dim=1))  # the shorter one by itself
print(f"padding reaches nobody: {torch.allclose(step[1, -1], alone[0, -1], atol=1e-5)}")

# Beam search: both rows go on from what was the second.
cache.reorder([1, 1])
print(f"after reordering: {cache}")
