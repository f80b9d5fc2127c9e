"""The plan says which path takes a call, and why; paths can be forced and forbidden."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import overt
from overt import native
from overt.attention.kernels import half_precision
from overt.errors import InputError

X = torch.randn(2, 6, 9, 4, dtype=torch.float64)


def planned(*tensors, **options):
    """The plan where the native core is not permitted, which takes nearly all of these calls."""
    with overt.use_path("torch", "blocked"):
        return overt.plan(*(tensors or (X, X, X)), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": overt.Causal()},
        {"mask": overt.Lengths(torch.tensor([3, 9]))},
        {"mask": torch.ones(9, dtype=torch.bool)},
        {"score": overt.Dot(scale=2.0)},
        {"score": overt.Bilinear(torch.eye(4, dtype=torch.float64))},
        {"score": overt.Cosine(3.0)},
        {"normalizer": overt.Softmax(temperature=2.0)},
    ],
)
def test_torchs_kernels_take_what_they_compute_in_linear_memory(options):
    plan = planned(**options)
    assert plan.path == "torch"
    assert plan.reason == "a dot product under a softmax, which torch's fused kernels compute in linear memory"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"score": overt.Gaussian(1.0)}, "the score is not a dot product with a fixed scale"),
        ({"score": overt.Dot(softcap=3.0)}, "the score is not a dot product with a fixed scale"),
        ({"score": lambda q, k: q @ k.mT}, "the score is not a dot product with a fixed scale"),
        ({"normalizer": overt.Sparsemax()}, "the normalizer is not a softmax of fixed temperature without a sink"),
        (
            {"normalizer": overt.Softmax(sink=torch.tensor(0.0))},
            "the normalizer is not a softmax of fixed temperature without a sink",
        ),
        ({"bias": torch.zeros(9, 9, dtype=torch.float64)}, "a bias would make torch hold all Q × K scores"),
        ({"dropout": 0.1}, "dropout would make torch hold all Q × K weights"),
        ({"mask": overt.Causal() & overt.Window(2, 0)}, "torch would hold this mask as Q × K numbers"),
        ({"mask": torch.ones(9, 9, dtype=torch.bool)}, "torch would hold this mask as Q × K numbers"),
    ],
)
def test_what_torch_cannot_do_goes_to_the_blocks_with_the_reason(options, why):
    assert planned(**options).path == "blocked"
    assert planned(**options).refused["torch"] == why


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": overt.Causal() & overt.Window(2, 0)},
        {"mask": torch.rand(9, 9) < 0.5, "bias": torch.zeros(9, 9, dtype=torch.float64), "dropout": 0.1},
        {"score": overt.Dot(scale=torch.tensor([[2.0]]), softcap=3.0), "normalizer": overt.Softmax(0.5, torch.tensor(0.0))},
        {"score": overt.Bilinear(torch.eye(4, dtype=torch.float64))},
        {"score": overt.Cosine(3.0), "mask": overt.Causal()},
        {"score": overt.Gaussian(1.0)},
        {"bias": overt.ALiBi(torch.ones(6, dtype=torch.float64))},
    ],
)
def test_the_native_core_takes_dot_products_of_every_kind(options):
    plan = overt.plan(X, X, X, **options)
    assert plan.path == "native"
    assert plan.reason == "a dot product under a softmax, fused with it in the native core, in linear memory"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"score": lambda q, k: (q @ k.mT).sort().values},
            "the score cannot be traced: sort of pairs of queries and keys is no function that programs know",
        ),
        ({"normalizer": overt.Entmax(2.5)}, "the alpha is above 2"),
        ({"score": overt.Dot(scale=torch.ones(9, 1))}, "the scale differs between queries or keys"),
        ({"score": overt.Dot(softcap=torch.tensor(3.0))}, "the softcap is a tensor"),
        ({"score": overt.Gaussian(torch.ones(9, 1))}, "the bandwidth differs between queries or keys, or heads are grouped"),
        ({"score": overt.Gaussian(1e-3)}, "queries and keys lie many bandwidths apart, where a dot product loses digits"),
        (
            {
                "score": overt.Dot(softcap=3.0),
                "normalizer": overt.Softmax(torch.tensor(2.0, dtype=torch.float64, requires_grad=True)),
            },
            "the temperature is learned, and divides scores under a soft cap",
        ),
    ],
)
def test_what_the_native_core_cannot_do_is_said(options, why):
    plan = overt.plan(X, X, X, **options)
    assert (plan.path, plan.refused["native"]) == ("blocked", why)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_native_core_takes_half_precision_where_there_are_no_matrix_units(dtype, monkeypatch):
    monkeypatch.setitem(half_precision.MATRIX_UNITS, dtype, False)
    for queries, keys in ((1, 1), (16, 16), (128, 128), (1, 4096), (1024, 1024)):
        query, key = torch.ones(1, 2, queries, 8, dtype=dtype), torch.ones(1, 2, keys, 8, dtype=dtype)
        assert overt.plan(query, key, key).path == "native"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_units_take_half_precision_beyond_short_lengths(dtype, monkeypatch):
    monkeypatch.setitem(half_precision.MATRIX_UNITS, dtype, True)
    monkeypatch.setattr(half_precision.native, "unit", lambda: None)
    short, long = torch.ones(1, 2, 128, 8, dtype=dtype), torch.ones(1, 2, 129, 8, dtype=dtype)
    assert overt.plan(short, short, short, mask=overt.Causal()).path == "native"
    why = "beyond 128 queries or keys torch's kernel is faster in half precision, by the processor's matrix units"
    for query, key in ((long, long), (short, long), (long, short)):
        plan = overt.plan(query, key, key)
        assert (plan.path, plan.refused["native"]) == ("torch", why)
    assert overt.plan(long, long, long, dropout=0.1).path == "native"
    assert overt.plan(long.float(), long.float(), long.float()).path == "native"
    with overt.use_path("native"):
        assert overt.plan(long, long, long).path == "native"


def test_the_native_core_takes_bfloat16_where_it_multiplies_by_matrix_units(monkeypatch):
    monkeypatch.setitem(half_precision.MATRIX_UNITS, torch.bfloat16, True)
    monkeypatch.setattr(half_precision.native, "unit", lambda: "amx")
    for queries in (4, 1024):
        query, key = torch.ones(1, 2, queries, 8, dtype=torch.bfloat16), torch.ones(1, 2, 1024, 8, dtype=torch.bfloat16)
        assert overt.plan(query, key, key).path == "native"


def test_torch_takes_a_few_queries_against_many_keys_in_bfloat16_without_matrix_units(monkeypatch):
    monkeypatch.setattr(half_precision.native, "unit", lambda: None)
    for dtype in half_precision.MATRIX_UNITS:
        monkeypatch.setitem(half_precision.MATRIX_UNITS, dtype, False)
    few, many = torch.ones(1, 2, 4, 8, dtype=torch.bfloat16), torch.ones(1, 2, 512, 8, dtype=torch.bfloat16)
    plan = overt.plan(few, many, many)
    assert (plan.path, plan.refused["native"]) == (
        "torch",
        "for a few queries against many keys torch's kernel is faster in bfloat16",
    )
    assert overt.plan(few.half(), many.half(), many.half()).path == "native"
    assert overt.plan(few.requires_grad_(), many, many).path == "native"


def test_one_new_query_sees_the_whole_cache_so_torch_takes_it():
    assert planned(X[..., -1:, :], X, X, mask=overt.Causal()).path == "torch"
    assert planned(X[..., -2:, :], X, X, mask=overt.Causal()).path == "blocked"


def test_values_of_another_width_would_make_torch_hold_all_weights():
    assert planned(X, X, X[..., :3]).refused["torch"] == "key and value of different widths make torch hold all weights"


def test_torch_takes_what_the_core_would_do_with_narrow_vectors():
    before = native.level()
    try:
        native.module().use("baseline")
        plan = overt.plan(X, X, X)
        wider = overt.plan(X, X, X, dropout=0.1)
    finally:
        native.module().use(before)
    assert (plan.path, plan.refused["native"]) == ("torch", "torch's kernel has wider vectors than the core's baseline")
    assert wider.path == "native"


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(9, 4), (2, 9, 4), (2, 6, 9, 4), (2, 2, 3, 9, 4)])
@pytest.mark.parametrize("mask", [None, overt.Causal(), overt.Lengths(3), torch.tensor([True] * 5 + [False] * 4)])
def test_the_torch_path_takes_the_fused_kernel_and_never_the_one_that_holds_all_weights(shape, mask):
    x = torch.randn(*shape, requires_grad=True)
    with overt.use_path("torch"), Operators() as operators:
        overt.attend(x, x, x, mask=mask).sum().backward()
    assert "_scaled_dot_product_flash_attention_for_cpu" in operators.names
    assert "_scaled_dot_product_flash_attention_for_cpu_backward" in operators.names
    assert not any("math" in name for name in operators.names)


def test_grouped_heads_take_the_fused_kernel_too():
    with overt.use_path("torch"), Operators() as operators:
        overt.attend(X, X[:, :2], X[:, :2])
    assert "_scaled_dot_product_flash_attention_for_cpu" in operators.names


def test_a_path_can_be_forced_and_is_left_again():
    with overt.use_path("blocked"):
        plan = overt.plan(X, X, X)
        assert (plan.path, plan.refused) == (
            "blocked",
            dict.fromkeys(["native", "torch", "triton"], "forbidden here by overt.use_path"),
        )
    assert overt.plan(X, X, X).path == "native"


def test_a_forced_path_that_cannot_serve_is_an_error_that_says_why():
    with overt.use_path("torch"), pytest.raises(InputError) as error:
        overt.attend(X, X, X, dropout=0.5)
    assert (
        "a path permitted by overt.use_path that can compute the call, got native: forbidden here by overt.use_path; torch: dropout would"
        in str(error.value)
    )
    assert 'add "blocked"' in str(error.value)


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        ("native", {"score": lambda q, k: q @ k.mT}, "native: the score is neither additive nor a dot product"),
        ("native", {"normalizer": lambda scores, allowed: scores.softmax(-1)}, "native: the normalizer is one's own"),
        ("torch", {}, "torch: torch has no kernel that summarises"),
    ],
)
def test_a_forced_path_that_cannot_summarise_is_an_error_that_says_why(path, options, why):
    with overt.use_path(path, "blocked"):
        overt.summarize(X, X, **options)
    with overt.use_path(path), pytest.raises(InputError) as error:
        overt.summarize(X, X, **options)
    assert "a path permitted by overt.use_path that can compute the call, got " in str(error.value)
    assert why in str(error.value)
    assert 'add "blocked"' in str(error.value)


def test_paths_are_left_after_an_error_and_kept_apart_between_threads():
    with pytest.raises(ZeroDivisionError), overt.use_path("blocked"):
        raise ZeroDivisionError
    result = []
    with overt.use_path("blocked"):
        thread = threading.Thread(target=lambda: result.append(overt.plan(X, X, X).path))
        thread.start()
        thread.join()
    assert result == ["native"]


@pytest.mark.parametrize("names", [(), ("cuda",), ("torch", "nativ")])
def test_an_unknown_path_is_refused_with_the_list(names):
    with (
        pytest.raises(InputError, match="one or more of the paths native, torch, triton, blocked in overt.use_path, got"),
        overt.use_path(*names),
    ):
        pass


def test_the_plan_computes_nothing():
    with Operators() as operators:
        overt.plan(
            X, X, X, score=overt.Additive(torch.ones(4, dtype=torch.float64)), bias=torch.zeros(9, 9, dtype=torch.float64)
        )
    assert not {name for name in operators.names if "mm" in name or "softmax" in name or "attention" in name or "tanh" in name}


def test_a_plan_prints_its_path_its_reason_and_what_others_lack():
    printed = str(planned(dropout=0.1))
    assert printed.splitlines()[0].startswith("blocked: any score, mask, bias and normalizer, in blocks of query rows")
    assert printed.splitlines()[1] == "not native: forbidden here by overt.use_path"
    assert printed.splitlines()[2] == "not torch: dropout would make torch hold all Q × K weights"
