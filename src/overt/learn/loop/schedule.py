"""The learning rate of each update: a warmup, while AdamW's averages are still inexact, and then a decay."""

import math

from overt.learn.config.settings import Training


def learning_rate(update: int, settings: Training) -> float:
    """The learning rate of an update, counted from 1.

    Up to `warmup`: highest · update / warmup. After it, with left = (updates + 1 − update) / (updates + 1 − warmup):

    - inverse_sqrt: highest · √(warmup / update)   (Vaswani et al. 2017, section 5.3)
    - cosine: highest · (1 − cos(π · left)) / 2   (Loshchilov and Hutter 2017, equation 5)
    - linear: highest · left
    - constant: highest
    - trapezoid: highest, decreasing linearly to zero over the last fifth of the updates; the length of a run can be decided late
      (Hägele et al. 2024, section 3)

    >>> settings = Training(updates=100, warmup=4, learning_rate=0.01)
    >>> [learning_rate(update, settings) for update in (1, 4, 16)]
    [0.0025, 0.01, 0.005]
    """
    highest, warmup = settings.learning_rate, max(settings.warmup, 1)
    if update <= warmup:
        return highest * update / warmup
    left = (settings.updates + 1 - update) / (settings.updates + 1 - warmup) if update <= settings.updates else 0.0
    match settings.schedule:
        case "inverse_sqrt":
            return highest * math.sqrt(warmup / update)
        case "cosine":
            return highest * (1 - math.cos(math.pi * left)) / 2
        case "linear":
            return highest * left
        case "trapezoid":
            decay = max(1, settings.updates // 5)
            return highest * min(1.0, max(0, settings.updates + 1 - update) / decay)
        case _:
            return highest
