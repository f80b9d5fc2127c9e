"""The mean of the weights of several checkpoints, which averages out the noise of the last updates."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from overt.errors import InputError
from overt.learn.run import checkpoint


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """w = (w₁ + … + w_n) / n, summed in float64; integers, such as counters, are the last checkpoint's.

    Vaswani et al. 2017, section 6.1, average the last 5 or 20. Raises InputError for no checkpoints and for damaged ones.

    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> checkpoints = [checkpoint.Checkpoint({"weight": torch.tensor([value])}, {}, {}) for value in (1.0, 2.0)]
    >>> average_checkpoints([checkpoint.write(folder, update, each) for update, each in enumerate(checkpoints)])
    {'weight': tensor([1.5000])}
    """
    if not paths:
        raise InputError("at least one checkpoint to average", got="none", fix="train for an update first")
    total: dict[str, Tensor] = {}
    latest: dict[str, Tensor] = {}
    for path in paths:
        latest = checkpoint.read(path).model
        for name, tensor in latest.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {
        name: (total[name] / len(paths)).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in latest.items()
    }


def interpolate(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 − share) · trained + share · start: a fine-tuned model forgets less of what it knew before.

    Wortsman et al. 2022, "Robust fine-tuning of zero-shot models", section 3. Integers are `trained`'s.

    >>> import torch
    >>> interpolate({"weight": torch.zeros(1)}, {"weight": torch.ones(1)}, 0.25)
    {'weight': tensor([0.7500])}
    """
    return {
        name: tensor.lerp(start[name].to(tensor), share) if tensor.is_floating_point() else tensor
        for name, tensor in trained.items()
    }
