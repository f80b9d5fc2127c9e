"""Additive attention of NumPy arrays by the native core: `overt.attend`, with no other path permitted."""

import numpy as np
import torch

import overt


def additive(query, key, value, weight, *, activation="tanh", first=0, stop=None, allowed=None, bias=None, sink=None):
    """Query i may attend to the keys first_i <= j < stop_i, and of these to those that `allowed` says."""
    mask = allowed
    if stop is not None:
        low, high = (torch.tensor(edge) for edge in np.broadcast_arrays(first, np.atleast_1d(stop)))
        mask = overt.masks.Ranges(low, high)
        mask = mask if allowed is None else mask & torch.tensor(allowed)
    score = overt.Additive(torch.tensor(weight), activation)
    normalizer = None if sink is None else overt.Softmax(sink=torch.tensor(sink, dtype=torch.float64))
    with overt.use_path("native"):
        return overt.attend(query, key, value, score=score, mask=mask, bias=bias, normalizer=normalizer)
