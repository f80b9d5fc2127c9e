"""Self-attention with nothing trained: a sequence's own numbers are its queries, keys and values.

Run it with `python examples/reweighting.py`. It needs NumPy only.
"""

import numpy as np

import overt
from overt.smoothing import analyze, demonstration, reweight

# 1. Word vectors. Each word's score with every word is the dot product of their vectors; softmax makes weights of a row of
#    scores; the output is the weighted mean. "bank" stands between money and rivers, and its sentence pulls it to one side.
words = ["bank", "of", "the", "river"]
vectors = np.array([[1.0, 1.0], [0.1, 0.1], [0.1, 0.0], [0.0, 2.0]])  # features: money, water
result = reweight(vectors)
for word, weights, before, after in zip(words, result.weights, vectors, result.output, strict=True):
    print(f"{word:<6} weights {np.round(weights, 2)}   {before} → {np.round(after, 2)}")

# 2. A noisy series. The same recipe on its raw values is no smoother: it moves with the zero of the scale, and its plainest
#    form, dividing by the plain sum, turns every series into a constant.
series = np.array([1.0, 2.0, 1.5, 3.0, 2.5])
print("\ndot product, softmax  ", overt.smooth(series, keys="value", score="dot").round(2))
print("the same, moved by 10 ", (overt.smooth(series + 10, keys="value", score="dot") - 10).round(2))
print("dot product, plain sum", overt.smooth(series, keys="value", score="dot", normalizer="sum").round(2))

# 3. What we do instead: many heads that compare times or surroundings, mixed point by point by how well each is estimated to do.
shown = demonstration()
print(f"\nrmse before {np.sqrt(np.mean((shown.noisy - shown.truth) ** 2)):.3f}, after", end=" ")
print(f"{np.sqrt(np.mean((shown.smoothed - shown.truth) ** 2)):.3f}: {shown.reduction:.0%} of the noise is gone")
print(analyze(shown.noisy).sentence)
