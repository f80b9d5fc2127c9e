"""Contenders for additive attention from other libraries, each where it is installed."""

import importlib
import importlib.util
import os
import sys
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from overt.bench.cases import Inputs
from overt.bench.contenders.contender import Contender, Run, Unable, differentiated, too_much

# How many tensors of B · Q · K · D numbers the Keras layer holds at once, forward alone and with its backward pass.
_HELD, _HELD_BACKWARD = 3, 5


def keops() -> Contender:
    """KeOps: formulas on pairs, compiled, reduced without being held (Charlier et al. 2021)."""
    return Contender("KeOps", _keops)


def keras() -> Contender:
    """The layer AdditiveAttention of Keras, on its torch backend."""
    return Contender("Keras", _keras)


def _keops(inputs: Inputs) -> tuple[Run, str]:
    _installed("pykeops")
    symbols = _keops_symbols()

    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        queries, keys = symbols(query[:, :, None]), symbols(key[:, None])  # (B, Q, 1, D), (B, 1, K, D)
        tanh = 1 - 2 / (1 + (2 * (queries + keys)).exp())  # KeOps has none of its own
        scores = (symbols(weight[None, None, None]) * tanh).sum(-1)
        return scores.sumsoftmaxweight(symbols(value[:, None]), axis=2)  # (B, Q, E)

    return differentiated(attention, inputs.tensors), ""


def _keops_symbols() -> Any:
    """KeOps's tensors of symbols; what it tells while it loads goes to stderr, and of compiling it tells nothing."""
    with redirect_stdout(sys.stderr):
        importlib.import_module("pykeops").set_verbose(False)
        return importlib.import_module("pykeops.torch").LazyTensor


def _keras(inputs: Inputs) -> tuple[Run, str]:
    _installed("keras")
    if inputs.query.dtype != torch.float32:
        raise Unable("its scores are made in the number type asked for, its softmax in float32")
    short = too_much(inputs, _HELD if inputs.upstream is None else _HELD_BACKWARD)
    if short is not None:
        raise Unable(short)
    library = _keras_on_torch()
    layer = library.layers.AdditiveAttention(use_scale=True)
    layer.build([inputs.query.shape, inputs.value.shape, inputs.key.shape])

    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        with library.device("cpu"):
            return layer.stateless_call([weight], [], [query, value, key])[0]

    return differentiated(attention, inputs.tensors), ""


def _keras_on_torch() -> Any:
    """Keras, which reads its backend once, when it is imported; what the environment said before holds again after it."""
    with mock.patch.dict(os.environ, KERAS_BACKEND="torch"):
        library = importlib.import_module("keras")
    if library.config.backend() != "torch":
        raise Unable(f"Keras was imported with its {library.config.backend()} backend before")
    return library


def _installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise Unable(f"not installed: pip install {package}")
