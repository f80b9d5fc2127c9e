"""Linear memory: no tensor of size n × n is made, forward or backward, except where it is the result."""

import gc
import os
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import overt
from overt.attention.kernels import blocked, heap
from overt.attention.kernels.flat import formula

N, D, HEADS = 512, 16, 2


class Largest(TorchDispatchMode):
    """The largest number of elements that any operator gives, views aside."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.fixture(autouse=True)
def blocks_smaller_than_the_weights(monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", HEADS * N * D * 4)


CALLS = {
    "dot": {},
    "causal": {"mask": overt.Causal()},
    "window or document": {"mask": overt.Window(9, 0) | overt.Documents(torch.arange(N) // 50)},
    "alibi": {"bias": overt.ALiBi(torch.ones(HEADS))},
    "relative": {"bias": overt.RelativePositionBias(torch.zeros(HEADS, 9))},
    "key bias": {"bias": torch.zeros(N)},
    "additive": {"score": overt.Additive(torch.ones(D, requires_grad=True))},
    "additive, masked": {
        "score": overt.Additive(torch.ones(D, requires_grad=True)),
        "mask": overt.Window(9, 0) | overt.Documents(torch.arange(N) // 50),
        "bias": overt.RelativePositionBias(torch.zeros(HEADS, 9, requires_grad=True)),
        "dropout": 0.1,
    },
    "additive, sparsemax": {"score": overt.Additive(torch.ones(D, requires_grad=True)), "normalizer": overt.Sparsemax()},
    "gaussian": {"score": overt.Gaussian(1.0), "mask": overt.Causal()},
    "cosine": {"score": overt.Cosine(), "normalizer": overt.normalizers.Sigmoid()},
    "sparsemax": {"normalizer": overt.Sparsemax()},
    "entmax": {"normalizer": overt.Entmax(), "mask": overt.Causal()},
    "sink": {"normalizer": overt.Softmax(sink=torch.zeros(HEADS, requires_grad=True))},
    "dropout": {"dropout": 0.1},
    "own score": {"score": lambda q, k: q @ k.mT},
}


@pytest.mark.parametrize("name", CALLS)
def test_no_operator_makes_n_by_n_forward_or_backward(name):
    x = torch.randn(HEADS, N, D, requires_grad=True)
    with Largest() as largest:
        overt.attend(x, x, x, **CALLS[name]).sum().backward()
    # A block of 4 rows of an additive score holds 4 · K · D a head; everything stays below half of one head's n × n.
    assert largest.elements <= N * N // 2


@pytest.mark.parametrize("name", ["dot", "causal", "additive", "cosine"])
def test_a_summary_makes_no_n_by_n(name):
    x = torch.randn(HEADS, N, D)
    with Largest() as largest:
        overt.summarize(x, x, value=x, top=8, map_size=64, **CALLS[name])
    assert largest.elements <= N * N // 2


def test_steps_of_an_additive_score_hold_n_by_n_but_not_times_d():
    x = torch.randn(N // 2, D)
    with Largest() as largest:
        overt.steps(x, x, x, score=overt.Additive(torch.ones(D)))
    assert largest.elements <= (N // 2) ** 2


@pytest.fixture
def nothing_older():
    """What is there before the test is no longer looked at: there are a million things, where many tests ran before."""
    gc.freeze()
    yield
    gc.unfreeze()


def alive():
    """Bytes of all tensors that Python can reach, each storage once; sparse ones have none."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            storages[storage._cdata] = storage.nbytes()  # not its data pointer, which exported programs' tensors have none of
    return sum(storages.values())


@pytest.mark.parametrize("name", ["additive", "additive, masked", "additive, sparsemax"])
@pytest.mark.few_cases(1)
def test_nor_does_the_plain_formula_of_what_has_a_native_kernel(name):
    x = torch.randn(HEADS, N, D, requires_grad=True)
    with overt.use_path("blocked"), Largest() as largest:
        overt.attend(x, x, x, **CALLS[name]).sum().backward()
    assert largest.elements <= N * N // 2


@pytest.mark.slow
@pytest.mark.parametrize("create_graph", [False, True])
def test_the_native_kernel_and_its_second_derivative_make_no_n_by_n(create_graph, monkeypatch):
    monkeypatch.setattr(formula, "BLOCK", HEADS * N * D * 4)
    x, options = torch.randn(HEADS, N, D, requires_grad=True), CALLS["additive, masked"]
    with overt.use_path("native"), Largest() as largest:
        output = overt.attend(x, x, x, **options)
        (gradient,) = torch.autograd.grad(output.square().sum(), x, create_graph=create_graph)
        if create_graph:
            gradient.square().sum().backward()
    assert largest.elements <= N * N // 2


@pytest.mark.usefixtures("nothing_older")
@pytest.mark.parametrize("name", CALLS)
def test_between_the_passes_nothing_of_size_n_by_n_is_kept(name):
    gradients = []
    x = torch.randn(HEADS, N, D, requires_grad=True)
    before = alive()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: gradients.append(t.numel()) or t, lambda t: t):
        output = overt.attend(x, x, x, **CALLS[name])
    # The output, copies of the inputs or what makes a cosine of them, and sums; a mask of one byte a pair would be 16 times the inputs.
    assert alive() - before <= 6 * x.nbytes
    # An additive score under entmax keeps two sums of values for each row; of all pairs there are 32 times as many numbers as of an input.
    assert max(gradients, default=0) <= 3 * x.numel()
    output.sum().backward()


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"positions": "alibi", "extra_key": True}, {"positions": "rotary", "window": 4, "zero_key": True}],
    ids=str,
)
def test_a_multi_head_layer_makes_nothing_n_by_n(options):
    layer, x = overt.layers.MultiHeadAttention(D, HEADS, **options), torch.randn(N, D, requires_grad=True)
    with Largest() as largest:
        layer(x).sum().backward()
    assert largest.elements <= N * N // 2


def test_a_replaced_layer_makes_nothing_n_by_n_where_no_weights_are_asked_for():
    layer = overt.layers.replace_multihead_attention(
        torch.nn.MultiheadAttention(D, HEADS, add_bias_kv=True, dropout=0.1, batch_first=True)
    )
    x, padded = torch.randn(1, N, D, requires_grad=True), torch.arange(N)[None] > N // 2
    with Largest() as largest:
        layer(x, x, x, key_padding_mask=padded, need_weights=False)[0].sum().backward()
    assert largest.elements <= N * N // 2


GROWTH = """
import resource, sys, torch, overt
from overt.attention.kernels import blocked
blocked.BLOCK //= 8
x = torch.randn(1, 2, int(sys.argv[1]), 16, requires_grad=True)
options = eval(sys.argv[2])
with overt.use_path("blocked"):
    overt.attend(x[:, :, :300], x[:, :, :300], x[:, :, :300], **options).sum().backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    overt.attend(x, x, x, **options).sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
IN_BLOCKS = {
    "softmax": "{}",
    "causal": "{'mask': overt.Causal()}",
    "sigmoid": "{'normalizer': overt.normalizers.Sigmoid()}",
    "sparsemax": "{'normalizer': overt.Sparsemax()}",
    "entmax": "{'normalizer': overt.Entmax(1.5)}",
}


def growth(length, options):
    """By how many bytes a process grows at most, forward and backward."""
    command = [sys.executable, "-c", GROWTH, str(length), options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize("name", IN_BLOCKS)
def test_the_process_does_not_grow_with_the_square_of_the_length(name):
    # The weights of two heads are 34 and 134 MB; in blocks of an eighth of the usual rows, the process grows by 30 to 70 MB.
    short, long = growth(2_048, IN_BLOCKS[name]), growth(4_096, IN_BLOCKS[name])
    assert long < 1.1e8
    assert long - short < 5e7


def test_pages_go_back_once_the_process_has_grown_by_so_much(monkeypatch):
    sizes, trimmed = iter([300, 320, 360, 365, 310, 371, 375, 375]), []
    monkeypatch.setattr(heap, "_size", lambda: next(sizes) * 2**20)
    monkeypatch.setattr(heap, "_trim", trimmed.append)
    monkeypatch.setattr(heap, "_resident", sys.maxsize)
    for grown in (0, 0, 0, 1, 1, 2):  # from 300 MB to 365, down to 310 when pages went, to 371, and to 375
        heap.give_back()
        assert len(trimmed) == grown


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such advice")
def test_large_tensors_and_the_stored_tokens_of_a_cache_are_in_large_pages(monkeypatch):
    advised = []
    monkeypatch.setattr(heap, "_advise", lambda start, size, advice: advised.append((start.value, size.value, advice)))
    heap.in_large_pages(torch.empty(heap._LARGE - 1, dtype=torch.int8))
    assert not advised
    tensor = heap.in_large_pages(torch.empty(heap._LARGE + 123, dtype=torch.int8))
    start, size, _ = advised[0]
    assert advised == [(start, size, 4), (start, size, 14)]  # small pages go, and large ones come
    assert start % 4096 == size % 4096 == 0
    assert tensor.data_ptr() <= start < start + size <= tensor.data_ptr() + tensor.nbytes
    assert size > tensor.nbytes - 2 * 4096
    chunk = torch.zeros(1, 8, 9000, 128)
    for store in (None, "int8"):
        advised.clear()
        cache = overt.layers.KVCache(store=store)
        with torch.no_grad():
            cache.extend(chunk, chunk)
            cache.extend(chunk[:, :, :64], chunk[:, :, :64])
        large = [part for part in (*cache._stored, *cache._rounded.tensors) if part.nbytes > heap._LARGE]
        assert len(large) == 2
        assert all(any(0 <= start - part.data_ptr() < 4096 for start, _, _ in advised) for part in large)
