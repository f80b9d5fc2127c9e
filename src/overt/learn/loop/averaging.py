"""The mean of the weights of several checkpoints: the noise of the last updates, averaged out."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from overt.errors import InputError
from overt.learn.run import checkpoint


def averaged(paths: Sequence[Path]) -> dict[str, Tensor]:
    """w = (w₁ + … + w_n) / n, summed in float64; whole numbers, such as counters, are those of the last checkpoint.

    Vaswani et al. 2017, section 6.1, average the last 5 or 20. Raises InputError for no checkpoints and for damaged ones.

    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> held = [checkpoint.Checkpoint({"weight": torch.tensor([value])}, {}, {}) for value in (1.0, 2.0)]
    >>> averaged([checkpoint.write(folder, update, each) for update, each in enumerate(held)])
    {'weight': tensor([1.5000])}
    """
    if not paths:
        raise InputError("an average is of one checkpoint or more", got="none", fix="train for an update first")
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
