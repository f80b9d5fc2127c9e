"""What tests of the smoothers' kernels share."""

import pytest

from overt import native


@pytest.fixture(params=["numpy", *(native.module().levels() if native.available() else [])])
def form(request, monkeypatch):
    """NumPy's form, and the native one at each SIMD level."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "available", lambda: False)
        yield request.param
        return
    native.module().use(request.param)
    yield request.param
    native.module().use(native.module().levels()[0])


@pytest.fixture
def level(request):
    """The native core at the SIMD level of the parameter."""
    native.module().use(request.param)
    yield request.param
    native.module().use(native.module().levels()[0])
