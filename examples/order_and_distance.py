"""What order and distance do to attention: a Transformer with and without positions, and a token recalled from far back.

Run it: python examples/order_and_distance.py (half a minute on one core)
"""

import torch

from overt.learn.examples.order import recall, rewriting
from overt.models import Transformer

LENGTH, SYMBOLS = 4, 6  # 24 orders of four symbols: guessing is right once in 24 times


def transformer(positions):
    torch.manual_seed(0)
    words = SYMBOLS + 4  # beside the special tokens
    return Transformer(
        words, words, 32, heads=4, encoder_layers=1, decoder_layers=1, feed_forward=64, dropout=0.0, positions=positions
    )


# Attention sums over a set: without positions, a sequence and its permutation are the same to it.
model = transformer(None).eval()
sequence, permuted, begun = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[6, 4, 7, 5]]), torch.tensor([[1, 6]])
same = torch.allclose(model(sequence, begun), model(permuted, begun), atol=1e-5)
print(f"without positions, a sequence and its permutation are one: {same}\n")

# So it can learn what depends on the set alone, sorting, and not what depends on order.
print(f"{'written without a mistake':28}{'no positions':>14}{'sinusoidal':>14}")
for task in ("copy", "reverse", "sort"):
    shares = [rewriting(transformer(kind), task, length=LENGTH, symbols=SYMBOLS, updates=200) for kind in (None, "sinusoidal")]
    print(f"{task:28}" + "".join(f"{share:>14.0%}" for share in shares))

# A recurrent layer hands a token on from step to step; attention reaches every place in one.
print(f"\n{'recalled':28}{'4 tokens back':>14}{'32 tokens back':>16}   (guessing: 12%)")
for layer in ("rnn", "gru", "lstm", "attention"):
    near, far = recall(layer, 4), recall(layer, 32)
    print(f"{layer:28}{near:>14.0%}{far:>16.0%}")
