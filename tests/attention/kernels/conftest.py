"""Memory that shows what nobody has written; each SIMD level in turn; and the watched build of `make sanitize` in the place of the installed core."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

import pytest
import torch

from overt import native

if "OVERT_NATIVE" in os.environ:
    _result = PathFinder.find_spec("overt._native", [os.environ["OVERT_NATIVE"]])
    assert _result is not None, f"no native core in OVERT_NATIVE={os.environ['OVERT_NATIVE']}"
    sys.modules["overt._native"] = importlib.util.module_from_spec(_result)
    _result.loader.exec_module(sys.modules["overt._native"])


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LEVELS = ["interpreted"] if INTERPRETED else native.module().levels()
# Triton reads its environment when it is imported: its kernels are tested by runs of their own, see the Makefile.
collect_ignore = [] if INTERPRETED else ["gpu/test_triton.py", *([] if torch.cuda.is_available() else ["gpu/test_gpu.py"])]


if INTERPRETED:
    from triton.runtime import interpreter

    _launch, _patch, _patched = interpreter.GridExecutor.__call__, interpreter._patch_lang, set()

    def _launch_and_patch_anew(self, *arguments, **options):
        _patched.clear()
        return _launch(self, *arguments, **options)

    def _patch_once(function):
        """Replace the language's functions once a launch, as a module sees them, and not at each call within: a third of the time."""
        if id(function.__globals__) in _patched:
            return interpreter._LangPatchScope()
        _patched.add(id(function.__globals__))
        return _patch(function)

    interpreter.GridExecutor.__call__, interpreter._patch_lang = _launch_and_patch_anew, _patch_once


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """The levels of one case follow each other, so that what compare.py keeps of the oracle serves all of them."""
    if "level" in metafunc.fixturenames:
        metafunc.parametrize("level", LEVELS, indirect=True)


@pytest.fixture
def level(request):
    """A level of the machine, and the best again afterwards."""
    if INTERPRETED:
        yield request.param
        return
    native.module().use(request.param)
    yield request.param
    native.module().use(LEVELS[0])


@pytest.fixture(autouse=True)
def poisoned():
    """Memory that nothing has been written to holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
