"""How many files a call goes through: each file entered, and each return to a file that it has left, is one more place to read."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

import overt

PACKAGE = os.path.dirname(overt.__file__)


class Way(NamedTuple):
    """A file is entered whenever a function of another file of the package is called from it."""

    stays: int
    files: int
    returns: int


def way_of(function: Callable[[], object]) -> Way:
    """The way of a second call, after what is computed once."""
    entered: list[str] = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.append(frame.f_code.co_filename)

    function()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    stays = [name for name, before in zip(entered, [None, *entered], strict=False) if name != before]
    return Way(len(stays), len(set(stays)), len(stays) - len(set(stays)))


def smoothing():
    x = np.sin(np.arange(200) / 20) + 0.1 * np.random.default_rng(0).normal(size=200)
    return lambda: overt.smooth(x)


def recording():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(1, 6, 16)

    def record():
        with torch.no_grad(), overt.lens.record(layer):
            layer(x)

    return record


# Measured, as limits: a change that needs more places to read has to say why. Possible codes withhold the band: one file more. The tails of
# 200 points count: two stays more.
LIMITS = {smoothing: Way(590, 52, 538), recording: Way(805, 39, 765)}


@pytest.mark.parametrize("call", LIMITS, ids=lambda call: call.__name__)
def test_a_call_goes_through_at_most_so_many_files_and_returns_at_most_so_often(call):
    actual = way_of(call())
    assert all(count <= limit for count, limit in zip(actual, LIMITS[call], strict=True)), actual
