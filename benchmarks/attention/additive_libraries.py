"""Contenders for additive attention from other libraries, where they are installed."""

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
from overt.bench.contenders.contender import Contender, Run, Unable, differentiated, memory_shortage

# How many tensors of B · Q · K · D numbers the Keras layer has in memory, forward only and with its backward pass.
_TENSORS, _TENSORS_BACKWARD = 3, 5


def keops() -> Contender:
    """KeOps: formulas on pairs, compiled and reduced without storing the pairs (Charlier et al. 2021)."""
    return Contender("KeOps", _keops)


def keras() -> Contender:
    """The layer AdditiveAttention of Keras, on its torch backend."""
    return Contender("Keras", _keras)


def _keops(inputs: Inputs) -> tuple[Run, str]:
    _installed("pykeops")
    symbols = _keops_symbols()

    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        queries, keys = symbols(query[:, :, None]), symbols(key[:, None])  # (B, Q, 1, D), (B, 1, K, D)
        tanh = 1 - 2 / (1 + (2 * (queries + keys)).exp())  # KeOps has no tanh
        scores = (symbols(weight[None, None, None]) * tanh).sum(-1)
        return scores.sumsoftmaxweight(symbols(value[:, None]), axis=2)  # (B, Q, E)

    return differentiated(attention, inputs.tensors), ""


def _keops_symbols() -> Any:
    """KeOps's symbolic tensors; its messages while loading go to stderr, those about compiling are switched off."""
    with redirect_stdout(sys.stderr):
        importlib.import_module("pykeops").set_verbose(False)
        return importlib.import_module("pykeops.torch").LazyTensor


def _keras(inputs: Inputs) -> tuple[Run, str]:
    _installed("keras")
    if inputs.query.dtype != torch.float32:
        raise Unable("it computes its softmax in float32, whatever the number type")
    shortage = memory_shortage(inputs, _TENSORS if inputs.upstream is None else _TENSORS_BACKWARD)
    if shortage is not None:
        raise Unable(shortage)
    library = _keras_on_torch()
    layer = library.layers.AdditiveAttention(use_scale=True)
    layer.build([inputs.query.shape, inputs.value.shape, inputs.key.shape])

    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        with library.device("cpu"):
            return layer.stateless_call([weight], [], [query, value, key])[0]

    return differentiated(attention, inputs.tensors), ""


def _keras_on_torch() -> Any:
    """Keras on torch. It reads KERAS_BACKEND when it is imported; the environment is restored after that."""
    with mock.patch.dict(os.environ, KERAS_BACKEND="torch"):
        library = importlib.import_module("keras")
    if library.config.backend() != "torch":
        raise Unable(f"Keras was imported with its {library.config.backend()} backend before")
    return library


def _installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise Unable(f"not installed: pip install {package}")
