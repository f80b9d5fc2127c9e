"""The native core is loaded once, at the level that is asked for, and says why where it cannot be."""

import importlib
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from overt import native
from overt.errors import InputError, compile_command

CACHED = [native.load, native.available, native.module, native.warn_if_missing]
MAPPED = "print(len({line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}))"


@pytest.fixture
def afresh():
    """Forget what was loaded, before the test and after it."""
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()


def run(program, **environment):
    """What a new interpreter prints, with these environment variables beside our own."""
    known = {name: value for name, value in os.environ.items() if name != "OVERT_SIMD"}
    done = subprocess.run([sys.executable, "-c", program], env=known | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def importing(*outcomes):
    """A stand-in for `import_module` that raises or returns these one after another, whatever it is asked for."""
    left = list(outcomes)

    def import_module(name):
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return import_module


def test_the_native_core_is_built_and_loads():
    assert native.available(), native.why_not()
    assert native.why_not() is None


def test_the_levels_of_this_machine_end_with_the_baseline():
    assert native.module().levels()[-1] == "baseline"


def test_the_best_level_is_taken():
    assert run("from overt import native; print(native.level())") == native.module().levels()[0]


@pytest.mark.parametrize("named", ["avx512", "avx2", "baseline"])
def test_the_environment_names_another_level_or_is_told_what_there_is(named):
    program = (
        "from overt import native\nfrom overt.errors import InputError\n"
        "try:\n    print(native.level())\nexcept InputError as error:\n    print(error)"
    )
    levels = native.module().levels()
    refused = (
        f"Expected a SIMD level of this machine in OVERT_SIMD: {', '.join([*levels, *native.module().units()])}, got OVERT_SIMD={named}. "
        "Fix: name one of them, or unset it to use the best."
    )
    assert run(program, OVERT_SIMD=named) == (named if named in levels else refused)


def test_an_unknown_level_is_refused_each_time(monkeypatch, afresh):
    monkeypatch.setenv("OVERT_SIMD", "avx1024")
    for _ in range(2):
        with pytest.raises(
            InputError, match="a SIMD level of this machine in OVERT_SIMD: .*baseline.*, got OVERT_SIMD=avx1024"
        ):
            native.module()


def test_the_module_itself_refuses_a_level_that_the_machine_lacks():
    with pytest.raises(ValueError, match="avx1024"):
        native.module().use("avx1024")


def test_a_package_that_was_never_built_says_so(monkeypatch, afresh):
    monkeypatch.setattr(importlib, "import_module", importing(ModuleNotFoundError(), ModuleNotFoundError()))
    assert not native.available()
    assert native.why_not() == (
        "its C++ has not been compiled here. Fix: run in the sources of overt: pip install --editable ."
    )
    assert not native.load().broken


def test_the_reason_that_the_build_left_is_told(monkeypatch, afresh):
    left = SimpleNamespace(REASON="no C++ compiler was found")
    monkeypatch.setattr(importlib, "import_module", importing(ModuleNotFoundError(), left))
    assert native.why_not() == f"no C++ compiler was found. Fix: install g++ and run: {compile_command()}"


def test_a_wheel_has_no_sources_to_compile(monkeypatch, afresh):
    left = SimpleNamespace(
        REASON="the wheel for systems without one of their own, which is installed here, holds no native core"
    )
    monkeypatch.setattr(importlib, "import_module", importing(ModuleNotFoundError(), left))
    monkeypatch.setattr(native, "compile_command", lambda: None)
    assert native.why_not() == f"{left.REASON}. Fix: install the wheel of this system, or g++ and overt from its sources"


def test_a_module_that_does_not_load_is_broken_and_tells_the_loaders_words(monkeypatch, afresh):
    monkeypatch.setattr(importlib, "import_module", importing(ImportError("undefined symbol: cosine")))
    assert native.load().broken
    assert "it is installed but does not load (undefined symbol: cosine)" in native.why_not()


def test_without_the_openmp_runtime_that_is_the_reason(monkeypatch, afresh):
    monkeypatch.setattr(importlib, "import_module", importing(ImportError("libgomp.so.1: cannot open shared object file")))
    monkeypatch.setattr(native, "_runtime_of_torch", lambda: None)
    assert native.why_not() == (
        "libgomp.so.1, the OpenMP runtime that it runs on, is not found. "
        "Fix: install it (on Debian: apt install libgomp1), or torch, which brings its own"
    )


def test_where_only_torch_brings_the_openmp_runtime_that_one_is_loaded(monkeypatch, afresh, tmp_path):
    loaded, module = [], object()
    monkeypatch.setattr(
        importlib, "import_module", importing(ImportError("libgomp.so.1: cannot open shared object file"), module)
    )
    monkeypatch.setattr(native, "_runtime_of_torch", lambda: tmp_path / "libgomp.so.1")
    monkeypatch.setattr(native.ctypes, "CDLL", lambda path, mode: loaded.append(path))
    assert native.load().module is module
    assert loaded == [str(tmp_path / "libgomp.so.1")]


def test_a_missing_core_is_an_import_error_with_the_reason(monkeypatch, afresh):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "no compiler"))
    with pytest.raises(native.NativeMissing, match="the native core is not available: no compiler") as raised:
        native.module()
    assert isinstance(raised.value, ImportError)


def test_a_missing_core_is_warned_of_once(monkeypatch, afresh):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "no compiler"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        native.warn_if_missing()
        native.warn_if_missing()
    assert [str(warning.message) for warning in caught] == ["overt computes this without its native core, slower: no compiler"]
    assert caught[0].category is native.SlowerWithoutNative


def test_a_core_that_is_there_is_not_warned_of(afresh):
    native.warn_if_missing()  # warnings are errors in tests


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param("import torch; native.module()", marks=pytest.mark.slow),
        "native.module(); import torch; torch.ones(9).exp()",
    ],
)
def test_torch_and_the_native_core_share_one_openmp_runtime(order):
    pytest.importorskip("torch")
    assert run(f"from overt import native; {order}; {MAPPED}") == "1"


def test_loading_it_imports_no_torch():
    assert run("import sys; from overt import native; native.module(); print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize(("requested", "threads"), [("3", 3), ("2,4", 2)])
def test_without_torch_the_threads_are_those_of_openmp(requested, threads):
    assert run("from overt import native; print(native.threads())", OMP_NUM_THREADS=requested) == str(threads)


def test_with_torch_loaded_the_threads_are_torchs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 7))
    assert native.threads() == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
@pytest.mark.slow
def test_a_process_that_was_forked_does_not_wait_for_the_threads_of_its_parent():
    pytest.importorskip("torch")
    program = """
import os, signal, torch, overt
torch.set_num_threads(2)
x = torch.randn(2, 256, 32)
def answers():
    score = overt.Additive(torch.ones(32))
    return overt.attend(x, x, x, score=score), overt.summarize(x, x, score=score).lse
wanted = answers()
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs is ended
    same = all(torch.equal(found, known) for found, known in zip(answers(), wanted))
    os._exit(0 if same else 1)
print(os.waitpid(child, 0)[1])
"""
    assert run(program, OMP_NUM_THREADS="2") == "0"


WITHOUT = """
import sys, warnings
sys.modules["overt._native"] = None  # as where nothing was compiled
import torch, overt
from overt.native import SlowerWithoutNative
warnings.simplefilter("ignore", SlowerWithoutNative)
x = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
calls = [{}, {"mask": "causal"}, {"mask": overt.Lengths(torch.tensor([6, 4]))}, {"score": overt.Additive(torch.ones(8))}]
for call in calls:
    for dtype in (torch.float32, torch.float64):
        output = overt.attend(*[x.to(dtype)] * 3, **call)
        assert torch.allclose(output, overt.steps(*[x.to(dtype)] * 3, **call).output, atol=1e-5), call
        output.sum().backward()
overt.summarize(x, x)
layer = overt.layers.MultiHeadAttention(8, 2, causal=True)
layer(torch.randn(2, 6, 8), lengths=torch.tensor([6, 4])).sum().backward()
print("all")
"""


def test_without_the_native_core_each_kind_of_call_is_computed():
    assert run(WITHOUT) == "all"
