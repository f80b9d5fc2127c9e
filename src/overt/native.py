"""The native core, `overt._native`: C++ kernels for the CPU. Whether it is there, and additive attention on NumPy arrays; no torch.

The compiled module holds each kernel once for every SIMD level, and takes the best that the processor runs. The environment variable
OVERT_SIMD names another: `avx2`, `baseline`.
"""

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overt.errors import InputError, KindError, OvertError

ACTIVATIONS = ("tanh", "sigmoid", "relu", "leaky_relu")
RANGES, DENSE, BOTH = 0, 1, 3  # steps of a mask's program, see native/kernels.hpp

_CURE = "install g++ and run: pip install --force-reinstall --no-deps --no-cache-dir --no-binary overt overt"
_FLOATS = ("float16", "float32", "float64")
_PROCESS = os.getpid()
_thread = threading.local()


class NativeMissing(OvertError, ImportError):
    """The native core was asked for, and is not there."""


class SlowerWithoutNative(UserWarning):
    """The native core is missing, so that slower paths compute the same numbers."""


class Loaded(NamedTuple):
    """The compiled module, or why it is missing; `broken` where it is there and does not load."""

    module: Any
    why_not: str | None = None
    broken: bool = False


def available() -> bool:
    """Whether the native core is there.

    >>> available()
    True
    """
    return load().module is not None


def why_not() -> str | None:
    """What is missing and the fix, in a sentence; None where the native core is there."""
    return load().why_not


def level() -> str:
    """The SIMD level in use: `avx512`, `avx2` or `baseline`.

    >>> level() in module().levels()
    True
    """
    return module().level()


@functools.cache
def module() -> Any:
    """The compiled module, at the level that OVERT_SIMD names or else the best; an error where either is missing."""
    native, reason, _ = load()
    if native is None:
        raise NativeMissing(f"the native core is not available: {reason}")
    asked = os.environ.get("OVERT_SIMD")
    if asked and asked not in native.levels():
        raise InputError(
            f"OVERT_SIMD names a SIMD level that this machine has: {', '.join(native.levels())}",
            got=f"OVERT_SIMD={asked}",
            fix="name one of them, or unset it to have the best",
        )
    if asked:
        native.use(asked)
    return native


@functools.cache
def warn_if_missing() -> None:
    """Say, once in a process, that the native core is missing: for the first call that it would have served."""
    if not available():
        message = f"overt computes this without its native core, slower: {why_not()}"
        warnings.warn(message, SlowerWithoutNative, stacklevel=2)


@functools.cache
def load() -> Loaded:
    """Import the compiled module, whatever OVERT_SIMD says."""
    try:
        return Loaded(_import())
    except ModuleNotFoundError:
        return Loaded(None, _not_built())
    except ImportError as error:
        if "libgomp" in str(error):
            rule = "libgomp.so.1, the OpenMP runtime that it runs on, is not found"
            return Loaded(None, f"{rule}. Fix: install it (on Debian: apt install libgomp1), or torch, which brings its own")
        return Loaded(None, f"it is installed but does not load ({error}). Fix: {_CURE}", broken=True)


def _import() -> Any:
    try:
        return importlib.import_module("overt._native")
    except ImportError as error:
        # A machine without OpenMP's runtime may have torch, which brings one; once it is loaded, the module finds it by its name.
        runtime = _runtime_of_torch() if "libgomp" in str(error) else None
        if runtime is None:
            raise
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        return importlib.import_module("overt._native")


def _runtime_of_torch() -> Path | None:
    torch = None if "torch" in sys.modules else importlib.util.find_spec("torch")  # where it is loaded, so is its runtime
    runtime = Path(torch.origin).parent / "lib" / "libgomp.so.1" if torch and torch.origin else None
    return runtime if runtime and runtime.exists() else None


def _not_built() -> str:
    """Why installing overt built no module, as the build itself left word."""
    try:
        return f"{importlib.import_module('overt._without_native').REASON}. Fix: {_CURE}"
    except ModuleNotFoundError:
        return "its C++ has not been compiled here. Fix: run in the sources of overt: pip install --editable ."


def threads() -> int:
    """How many threads a call runs on: as many as torch's own where torch is loaded, else OMP_NUM_THREADS, else all processors.

    One in a process that was forked from this one, as torch's data loaders fork: GCC's OpenMP has the parent's threads on its
    books there, and would wait for them without end. And one in a thread that is itself one of several (`alone`).
    """
    if os.getpid() != _PROCESS or getattr(_thread, "alone", False):
        return 1
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.get_num_threads()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdigit() and int(asked) else processors


def alone() -> None:
    """From here on the calls of this thread run on it alone: the work is divided among threads already."""
    _thread.alone = True


def additive(
    query: Any,
    key: Any,
    value: Any,
    weight: Any,
    *,
    activation: str = "tanh",
    first: Any = None,
    stop: Any = None,
    allowed: Any = None,
    bias: Any = None,
    sink: Any = None,
) -> np.ndarray:
    """Additive attention on NumPy arrays, in memory linear in the lengths.

    output_i = Σ_j softmax_j( Σ_d w_d · act(q_id + k_jd) + bias_ij ) · v_j, with q and k already projected (Bahdanau et al. 2015,
    appendix A.1.2). Query (..., Q, D), key (..., K, D), value (..., K, E), of one of the dtypes float16, float32, float64, and
    weight (D,) or (..., D) give (..., Q, E) of the same dtype. Leading dimensions are equal or 1.

    Query i may attend to the keys first_i <= j < stop_i, integers (..., Q) or one for all; to those that the booleans `allowed`,
    broadcast against (..., Q, K), say; where both are given, to those in both. One that may attend to nothing gets zeros.
    `bias` broadcasts against (..., Q, K), and `sink`, a logit that takes weight and gives nothing, against the leading dimensions.

    InputError says which shape does not fit, KindError which dtype; NativeMissing why the native core is not there.

    >>> additive(np.zeros((1, 2)), np.zeros((3, 2)), np.array([[3.0], [5.0], [7.0]]), np.ones(2), stop=2)
    array([[4.]])
    """
    native = module()
    if activation not in ACTIVATIONS:
        raise InputError("activation is one of " + ", ".join(ACTIVATIONS), got=repr(activation), fix="choose one of them")
    query, key, value = _inputs(query, key, value)
    batch = _batch(query, key, value)
    lengths = query.shape[-2], key.shape[-2]
    number = np.float64 if query.dtype == np.float64 else np.float32
    weight = _fitting("weight", weight, (*batch, query.shape[-1]), number)
    steps, arrays = _mask(first, stop, allowed, (*batch, *lengths))
    bias = None if bias is None else _pair_by_pair("bias", bias, (*batch, *lengths), number)
    sink = None if sink is None else _fitting("sink", sink, batch, number)
    output = np.empty((*batch, lengths[0], value.shape[-1]), number)
    lse = np.empty((*batch, lengths[0]), number)
    native.additive(
        *(query, key, value, weight, ACTIVATIONS.index(activation), steps, arrays, bias, False, sink),
        *(None, 0.0, 0, threads(), output, lse),
    )
    return output.astype(query.dtype, copy=False)


def _inputs(query: Any, key: Any, value: Any) -> list[np.ndarray]:
    """Three arrays of floating-point numbers of one dtype, whose features stand next to each other in memory."""
    named = {"query": np.asarray(query), "key": np.asarray(key), "value": np.asarray(value)}
    dtypes = ", ".join(f"{name} {array.dtype}" for name, array in named.items())
    if len({array.dtype for array in named.values()}) > 1 or named["query"].dtype not in _FLOATS:
        rule = f"query, key and value are arrays of one dtype, one of {', '.join(_FLOATS)}"
        raise KindError(rule, got=dtypes, fix="convert them with .astype(numpy.float32)")
    shapes = ", ".join(f"{name} {array.shape}" for name, array in named.items())
    if any(array.ndim < 2 for array in named.values()):
        raise InputError("query, key and value end in two dimensions, (length, features)", got=shapes, fix="give each a length")
    query, key, value = named.values()
    if query.shape[-1] != key.shape[-1]:
        rule = "additive attention adds query and key feature by feature, so their last dimension D is the same"
        raise InputError(rule, got=shapes, fix="project one of them")
    if key.shape[-2] != value.shape[-2]:
        raise InputError("key and value have the same length K (dimension -2)", got=shapes, fix="pass one value for each key")
    return [array if array.strides[-1] == array.itemsize else np.ascontiguousarray(array) for array in named.values()]


def _batch(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except ValueError:
        got = f"query {query.shape}, key {key.shape}, value {value.shape}"
        raise InputError("leading dimensions are equal or 1", got=got, fix="make the sizes equal, or 1") from None


def _mask(first: Any, stop: Any, allowed: Any, shape: tuple[int, ...]) -> tuple[list[int], list[np.ndarray]]:
    """The program of the mask, and the arrays that its steps read."""
    steps, arrays = [], []
    if first is not None or stop is not None:
        ends = {"first": 0 if first is None else first, "stop": shape[-1] if stop is None else stop}
        steps.append(RANGES)
        arrays += [_row_by_row(name, end, shape[:-1]) for name, end in ends.items()]
    if allowed is not None:
        allowed = np.asarray(allowed)
        if allowed.dtype != bool:
            fix = "compare, as in mask > 0, or pass numbers to be added to the scores as bias="
            raise KindError("allowed holds booleans, True where a query may attend", got=str(allowed.dtype), fix=fix)
        steps.append(DENSE)
        arrays.append(_pair_by_pair("allowed", allowed, shape, bool))
    return [*steps, BOTH] if len(steps) == 2 else steps, arrays


def _row_by_row(name: str, ends: Any, shape: tuple[int, ...]) -> np.ndarray:
    ends = np.asarray(ends)
    if ends.dtype.kind not in "iu":
        raise KindError(f"{name} holds integers, places of keys", got=str(ends.dtype), fix="convert it with .astype(int)")
    ends = _fitting(name, ends, shape, np.int64)
    return np.broadcast_to(ends, np.broadcast_shapes(ends.shape, shape[-1:]))


def _pair_by_pair(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    array = _fitting(name, array, shape, dtype)
    return array.reshape((1,) * (2 - array.ndim) + array.shape)


def _fitting(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The array, if it broadcasts, aligned right, against this shape and not beyond it."""
    array = np.asarray(array, dtype)
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    if array.ndim > len(shape) or any(own not in (1, size) for own, size in zip(padded, shape, strict=True)):
        fix = "insert dimensions of size 1 where one serves all"
        raise InputError(f"{name} broadcasts, aligned right, against {shape}", got=f"{name} {array.shape}", fix=fix)
    return array
