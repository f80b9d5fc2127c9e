"""The native core, `overt._native`: C++ kernels for the CPU. Whether it is there, its level and its threads; no torch.

The compiled module holds each kernel once for every SIMD level, and takes the best that the processor runs. Dot products of bfloat16 have
kernels for units that multiply pairs of them. The environment variable OVERT_SIMD names another level, without such a unit, or a unit:
`avx512`, `avx2`, `baseline`, `avx512_bf16`, `amx`, `amx-emulated`.
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

from overt.errors import InputError, OvertError, compile_command

ACTIVATIONS = ("tanh", "sigmoid", "relu", "leaky_relu")  # a kernel knows one by its number
# As `enum class Normalizer` of native/kernels.hpp, and how many numbers of a row it saves under entmax.
SOFTMAX, SIGMOID, SUM, ENTMAX, IDENTITY = range(5)
SPARSE_SUMS = 4

_forked = False  # whether this process was forked from one that had loaded this module
_thread = threading.local()


class NativeMissing(OvertError, ImportError):
    """The native core is needed, and is not there."""


class SlowerWithoutNative(UserWarning):
    """The native core is missing, so that slower paths compute the same numbers."""


class Loaded(NamedTuple):
    """The compiled module, or why it is missing; `broken` where it is there and does not load."""

    module: Any
    why_not: str | None = None
    broken: bool = False


@functools.cache  # each call of the smoother asks some eighty times
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


def unit() -> str | None:
    """The unit that multiplies pairs of bfloat16: `amx`, `avx512_bf16`, or None where the level's own kernels compute them in float32.

    >>> unit() is None or unit() in module().units()
    True
    """
    return module().unit()


@functools.cache
def module() -> Any:
    """The compiled module, at the level that OVERT_SIMD names or else the best; an error where either is missing."""
    native, reason, _ = load()
    if native is None:
        raise NativeMissing(f"the native core is not available: {reason}")
    setting = os.environ.get("OVERT_SIMD")
    if setting and setting not in [*native.levels(), *native.units()]:
        raise InputError(
            f"a SIMD level of this machine in OVERT_SIMD: {', '.join([*native.levels(), *native.units()])}",
            got=f"OVERT_SIMD={setting}",
            fix="name one of them, or unset it to use the best",
        )
    if setting in native.units():
        native.use_unit(setting)
    elif setting:
        native.use(setting)
        native.use_unit("none")
    return native


@functools.cache
def warn_if_missing() -> None:
    """Say, once in a process, that the native core is missing: for the first call that it would have served."""
    if reason := why_not():
        message = f"overt computes this without its native core, slower: {reason}"
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
        return Loaded(None, f"it is installed but does not load ({error}). Fix: {_fix()}", broken=True)


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


def _fix() -> str:
    """How to get the native core, from where overt was installed."""
    command = compile_command()
    return (
        f"install g++ and run: {command}" if command else "install the wheel of this system, or g++ and overt from its sources"
    )


def _not_built() -> str:
    """Why installing overt built no module, as the build itself left word."""
    try:
        return f"{importlib.import_module('overt._without_native').REASON}. Fix: {_fix()}"
    except ModuleNotFoundError:
        return "its C++ has not been compiled here. Fix: run in the sources of overt: pip install --editable ."


def threads() -> int:
    """How many threads a call runs on: as many as torch's own where torch is loaded, else OMP_NUM_THREADS, else all processors.

    One in a browser, which has no others, and in a process that was forked from this one, as torch's data loaders fork: GCC's OpenMP
    waits there without end for the parent's threads. And no more than `limit_threads` has said in this thread.
    Gradients have the same bits in every run on as many threads: each thread sums its share, and the shares are added in order.
    """
    if _forked or sys.platform == "emscripten":
        return 1
    limit = getattr(_thread, "limit", None)
    if limit is not None:
        return limit
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.get_num_threads()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(setting) if setting.isdigit() and int(setting) else processors


def limit_threads(limit: int) -> None:
    """From here on the calls of this thread run on so many: the work is divided among threads or processes already."""
    _thread.limit = limit


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
