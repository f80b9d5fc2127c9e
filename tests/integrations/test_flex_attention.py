"""FlexAttention's interface: outputs and gradients of all kinds of mods against a dense computation in float64, which paths they take."""

import gc
import math
import weakref
from copy import deepcopy

import pytest
import torch
from torch.nn.attention import flex_attention as torchs
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, noop_mask, or_masks

import overt
from overt.attention.expressions.expression import traced
from overt.errors import InputError, KindError
from overt.integrations import flex_attention, flex_attention_plan, replacing_flex_attention
from overt.integrations.flex.masks import vmapped_indices

B, H, Q, K, D = 2, 4, 37, 41, 8


def dense(query, key, value, score_mod=None, mask_mod=None, scale=None):
    """The definition: each pair's score through the mod, called with single numbers; weights; values. Output and log-sum-exp."""
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    indices = [torch.arange(size, dtype=torch.int32) for size in scores.shape]

    def of_pairs(mod, first):
        for dimension in (3, 2, 1, 0):
            where = [None] * 4
            where[dimension] = 0
            mod = torch.vmap(mod, in_dims=(*first, *where))
        return mod

    with vmapped_indices():
        if score_mod is not None:
            scores = of_pairs(score_mod, (0,))(scores, *indices)
        allowed = of_pairs(mask_mod, ())(*indices) if mask_mod is not None else None
    if allowed is not None:
        scores = torch.where(allowed, scores, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.where(empty, 0, torch.softmax(torch.where(empty, 0, scores), -1))
    return weights @ value, torch.where(empty.squeeze(-1), -torch.inf, torch.logsumexp(torch.where(empty, 0, scores), -1))


def tensors(queries=Q, keys=K, key_heads=H, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    shapes = [(B, H, queries, D), (B, key_heads, keys, D), (B, key_heads, keys, D)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def agree(score_mod=None, mask_mod=None, captured=(), block_mask=None, paths=None, size=16, **sizes):
    """Output, log-sum-exp and all gradients are those of the definition, in float64; the path is one of those expected."""
    inputs = tensors(**sizes)
    lengths = inputs[0].shape[2], inputs[1].shape[2]
    if mask_mod is not None and block_mask is None:
        block_mask = create_block_mask(mask_mod, B, H, *lengths, device="cpu", BLOCK_SIZE=size)
    gqa = inputs[1].shape[1] != H
    if paths is not None:
        assert flex_attention_plan(*inputs, score_mod, block_mask, enable_gqa=gqa).path in paths
    output, lse = flex_attention(*inputs, score_mod, block_mask, enable_gqa=gqa, return_lse=True)
    expected, expected_lse = dense(*inputs, score_mod, mask_mod)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-10, atol=1e-10)
    direction = torch.randn_like(output)
    leaves = [*inputs, *captured]
    ours = torch.autograd.grad((output * direction).sum() + lse[lse.isfinite()].sin().sum(), leaves)
    theirs = torch.autograd.grad((expected * direction).sum() + expected_lse[lse.isfinite()].sin().sum(), leaves)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def learned(*shape):
    torch.manual_seed(len(shape))
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def causal(b, h, q, k):
    return q >= k


DOCUMENT_IDS = torch.tensor([0] * 9 + [1] * 1 + [2] * 20 + [3] * 11)
UNSORTED_IDS = torch.randint(-2, 3, (B, K), generator=torch.Generator().manual_seed(3))
LENGTHS = torch.tensor([5, 30])
STARTS = torch.tensor([0, 9, 10, 30, 41])
BY_HEAD = torch.tensor([1, 2, 7, 40])
ALLOWED = torch.rand(H, K, K, generator=torch.Generator().manual_seed(1)) < 0.6
PADDING = torch.arange(K) >= torch.tensor([3, 0])[:, None]
IMAGES = torch.tensor([[0, 7], [1, 7], [7, 30]], dtype=torch.int32)
OF_IMAGE = torch.arange(3).repeat_interleave(14)


def in_canvas(index, width=8):
    return index // width, index % width


def neighbourhood(b, h, q, k):
    (row, column), (key_row, key_column) = in_canvas(q), in_canvas(k)
    near_row = (row.clamp(1, 4) - key_row).abs() <= 1
    return near_row & ((column.clamp(1, 6) - key_column).abs() <= 1)


def de_interleave(code):
    code = code & 0x55555555
    code = (code | (code >> 1)) & 0x33333333
    return (code | (code >> 2)) & 0x0F0F0F0F


def morton(b, h, q, k):
    (x, y), (key_x, key_y) = ((de_interleave(each), de_interleave(each >> 1)) for each in (q, k))
    return ((x.clamp(1, 6) - key_x).abs() <= 1) & ((y.clamp(1, 6) - key_y).abs() <= 1)


def documents(b, h, q, k):
    ids = DOCUMENT_IDS
    same = ids[q] == ids[k]
    return same & (q - STARTS[ids[q]] >= k - STARTS[ids[k]])


def in_tiles(b, h, q, k):
    tile, key_tile = q // 4, k // 4
    centre = tile.clamp(1, 8)
    vision = (q < 32) & (k < 32)
    near = (key_tile >= centre - 1) & (key_tile <= centre + 1)
    return (vision & near) | ((q < 32) & (k >= 32)) | (q >= 32)


def image_of(b, h, q, k):
    interval = IMAGES[OF_IMAGE[k]]
    return (q >= interval[0]) & (q < interval[1])


# The masks of attention-gym, written again from what they mean, and others; and the paths on which each may run in float64.
MASKS = {
    "causal": (causal, ["native"]),
    "causal, the other way round": (lambda b, h, q, k: k <= q, ["native"]),
    "strictly causal": (lambda b, h, q, k: k < q, ["native"]),
    "shifted": (lambda b, h, q, k: q + 4 >= k, ["native"]),
    "shifted in each entry": (lambda b, h, q, k: q + LENGTHS[b] >= k, ["native"]),
    "anti-causal": (lambda b, h, q, k: k > q, ["native"]),
    "sliding window": (lambda b, h, q, k: (q >= k) & (q - k <= 7), ["native"]),
    "window on both sides": (lambda b, h, q, k: torch.abs(q - k) < 6, ["native"]),
    "outside of a window": (lambda b, h, q, k: (q - k).abs() >= 6, None),
    "window of each head": (lambda b, h, q, k: (q >= k) & (q - k < BY_HEAD[h]), None),
    "dilated window": (lambda b, h, q, k: ((q - k).abs() <= 8) & ((q - k) % 2 == 0) & (q >= k), None),
    "diagonal": (lambda b, h, q, k: q == k, None),
    "off the diagonal": (lambda b, h, q, k: q != k + 2, None),
    "prefix": (lambda b, h, q, k: (k < 6) | (q >= k), None),
    "prefix of each entry": (lambda b, h, q, k: (k < LENGTHS[b]) | (q >= k), None),
    "sinks and a window": (lambda b, h, q, k: ((k < 2) | (q - k <= 5)) & (q >= k), None),
    "padding": (lambda b, h, q, k: k < LENGTHS[b], ["native"]),
    "padding of both": (lambda b, h, q, k: (k < LENGTHS[b]) & (q < LENGTHS[b]), ["native"]),
    "left padding": (lambda b, h, q, k: (k >= LENGTHS[b]) & (q >= k), None),
    "documents": (documents, ["native"]),
    "unsorted documents": (lambda b, h, q, k: UNSORTED_IDS[b, q] == UNSORTED_IDS[b, k], None),
    "tiles": (in_tiles, None),
    "neighbourhood": (neighbourhood, None),
    "neighbourhood in Morton's order": (morton, None),
    "images": (image_of, None),
    "a table": (lambda b, h, q, k: ALLOWED[h, q, k], None),
    "a table by parts": (lambda b, h, q, k: ALLOWED[h][q][k] & (q >= k), None),
    "joined by torch": (or_masks(and_masks(causal, lambda b, h, q, k: q - k < 5), lambda b, h, q, k: k == 3), None),
    "chosen": (lambda b, h, q, k: torch.where(h < 2, q >= k, k >= q), None),
    "nothing for some": (lambda b, h, q, k: (q > 5) & (k < q), None),
    "nothing": (lambda b, h, q, k: k < 0, None),
    "everything": (lambda b, h, q, k: k >= 0, None),
    "logical": (lambda b, h, q, k: torch.logical_and(q >= k, torch.logical_not(k == 2)), None),
    "halves of numbers": (lambda b, h, q, k: q / 2 >= k - 3.5, None),
    "exclusive": (lambda b, h, q, k: (q >= k) ^ (k < 3), None),
    "moved to a device": (lambda b, h, q, k: (q >= k) & PADDING[b, k].to(q.device), None),
    "noop": (noop_mask, None),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_those_of_the_definition(name):
    mask_mod, paths = MASKS[name]
    agree(mask_mod=mask_mod, paths=paths)


def score_mods():
    slopes, table, bias, by_key = learned(H), learned(H, 2 * K + 1), learned(B, H, K, K), learned(B, K)
    near, row, temperature = learned(9), learned(K), learned(H)
    rope, rope_key = learned(B, H, K, 3), learned(B, 1, K, 3)
    offsets = torch.randint(0, K, (K,), generator=torch.Generator().manual_seed(5))
    return {
        "nothing": (lambda s, b, h, q, k: s, (), ["native"]),
        "scaled": (lambda s, b, h, q, k: s * 0.3, (), ["native"]),
        "halved and turned": (lambda s, b, h, q, k: -s / 2, (), ["native"]),
        "linear biases": (lambda s, b, h, q, k: s + slopes[h] * (k - q), (slopes,), ["native"]),
        "symmetric linear biases": (lambda s, b, h, q, k: s - slopes[h] * (k - q).abs(), (slopes,), ["native"]),
        "the paper's slopes": (lambda s, b, h, q, k: s + torch.exp2(-((h + 1) * 8.0 / H)) * (k - q), (), ["native"]),
        "relative table": (lambda s, b, h, q, k: s + table[h, k - q + K], (table,), ["native"]),
        "relative, clamped": (lambda s, b, h, q, k: s + near[torch.clamp(q - k + 4, 0, 8)], (near,), ["native"]),
        "relative positions": (lambda s, b, h, q, k: s + (q - k), (), ["native"]),
        "table of pairs": (lambda s, b, h, q, k: s + bias[b, h, q, k], (bias,), ["native"]),
        "by key": (lambda s, b, h, q, k: s + by_key[b, k], (by_key,), ["native"]),
        "by an index of an index": (lambda s, b, h, q, k: s + row[offsets[q]], (row,), None),
        "soft cap": (lambda s, b, h, q, k: 5 * torch.tanh(s / 5), (), ["native"]),
        "soft cap and slopes": (lambda s, b, h, q, k: (3 * (s / 3).tanh() + slopes[h] * (k - q)) * 2.0, (slopes,), ["native"]),
        "masked": (lambda s, b, h, q, k: torch.where(q >= k, s, -torch.inf), (), ["native"]),
        "masked the other way": (lambda s, b, h, q, k: torch.where(q < k, -float("inf"), s + k), (), ["native"]),
        "masked by a tensor": (lambda s, b, h, q, k: torch.where(q >= k, s, torch.full_like(s, -torch.inf)), (), ["native"]),
        "both": (lambda s, b, h, q, k: torch.where(q >= k, s + slopes[h] * (k - q), s), (slopes,), None),
        "temperature of each head": (lambda s, b, h, q, k: s * temperature[h].exp(), (temperature,), None),
        "times what is learned": (lambda s, b, h, q, k: s * row[q], (row,), None),
        "of both positions": (lambda s, b, h, q, k: s + torch.sin(q * k * slopes[h]), (slopes,), ["blocked"]),
        "no line of the score": (lambda s, b, h, q, k: s * s.abs() + slopes[h] * k, (slopes,), ["native"]),
        "the score in a condition": (lambda s, b, h, q, k: torch.where(s > 0, s, s * 0.1), (), ["native"]),
        "a product of vectors": (
            lambda s, b, h, q, k: s + 0.7 * torch.dot(rope[b, h, q], rope_key[b, h // H, k]),
            (rope, rope_key),
            ["blocked"],
        ),
        "subtracted from a number": (lambda s, b, h, q, k: 1.0 - s, (), ["native"]),
        "of the batch": (lambda s, b, h, q, k: s + b * (q - k) * 0.01, (), None),
    }


@pytest.mark.parametrize("name", score_mods())
def test_scores_are_those_of_the_definition(name):
    score_mod, captured, paths = score_mods()[name]
    agree(score_mod, captured=captured, paths=paths)


@pytest.mark.parametrize("name", ["linear biases", "no line of the score", "a product of vectors", "soft cap"])
@pytest.mark.parametrize("mask", ["causal", "documents", "neighbourhood", "padding"])
def test_scores_and_masks_go_together_with_grouped_heads(name, mask):
    score_mod, captured, _ = score_mods()[name]
    agree(score_mod, MASKS[mask][0], captured=captured, key_heads=2)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 41), (16, 16), (17, 33), (32, 15)])
def test_lengths_at_the_edges_of_blocks(queries, keys):
    slopes = learned(H)
    agree(lambda s, b, h, q, k: s + slopes[h] * (k - q), causal, captured=(slopes,), queries=queries, keys=keys)


def test_what_the_block_tables_say_counts_where_the_mod_says_something_else():
    counts, indices = torch.tensor([[[1, 2, 0]]]), torch.tensor([[[[2, 0, 1], [0, 2, 1], [0, 1, 2]]]])
    listed = torch.tensor([[0, 0, 1], [1, 0, 1], [0, 0, 0]], dtype=torch.bool)
    for mod in (noop_mask, causal):
        block_mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=16, mask_mod=mod, seq_lengths=(Q, K))

        def tabled(b, h, q, k, mod=mod):
            return listed[q // 16, k // 16] & mod(b, h, q, k)

        agree(mask_mod=tabled, block_mask=block_mask)


def test_full_blocks_are_not_masked_by_the_mod():
    counts, indices = torch.tensor([[[1, 1, 1]]]), torch.tensor([[[[0, 1, 2], [1, 0, 2], [2, 0, 1]]]])
    full = torch.tensor([[[1, 0, 0]]]), torch.tensor([[[[2, 0, 1], [0, 1, 2], [0, 1, 2]]]])
    block_mask = BlockMask.from_kv_blocks(counts, indices, *full, BLOCK_SIZE=16, mask_mod=causal, seq_lengths=(Q, K))
    agree(mask_mod=lambda b, h, q, k: ((q // 16 == k // 16) & (q >= k)) | ((q < 16) & (k >= 32)), block_mask=block_mask)


def test_a_block_mask_is_lowered_anew_when_what_it_captured_is_written_to():
    lengths = torch.tensor([5, 30])
    block_mask = create_block_mask(lambda b, h, q, k: k < lengths[b], B, None, Q, K, device="cpu", BLOCK_SIZE=64)
    inputs = tensors()
    for change in (0, 3):
        lengths += change
        output = flex_attention(*inputs, block_mask=block_mask)
        expected, _ = dense(*inputs, mask_mod=lambda b, h, q, k: k < lengths[b])
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def test_a_block_mask_is_lowered_anew_when_a_number_of_its_mod_changes():
    window = 3
    block_mask = create_block_mask(lambda b, h, q, k: (q - k).abs() <= window, B, None, Q, K, device="cpu", BLOCK_SIZE=64)
    inputs = tensors()
    for window in (3, 9):
        output = flex_attention(*inputs, block_mask=block_mask)
        expected, _ = dense(*inputs, mask_mod=lambda b, h, q, k: (q - k).abs() <= window)
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def test_a_mod_that_is_no_expression_is_called_as_it_is():
    calls = []

    def counted(b, h, q, k):
        calls.append(None)
        return torch.stack([q, k]).amax() == q

    agree(mask_mod=counted)
    assert calls


@pytest.mark.skipif(hasattr(torchs, "AuxRequest"), reason="this torch has AuxRequest")
def test_auxiliary_outputs_are_refused_where_torch_has_none():
    with pytest.raises(KindError, match=r"return_aux .* AuxRequest, got torch 2\..* Fix: pass return_lse=True"):
        flex_attention(*tensors(), return_aux=True)


@pytest.mark.skipif(not hasattr(torchs, "AuxRequest"), reason="this torch has no AuxRequest")
def test_the_auxiliary_outputs_are_those_that_are_requested():
    inputs, AuxRequest = tensors(), torchs.AuxRequest
    block_mask = create_block_mask(lambda b, h, q, k: k < q, B, H, Q, K, device="cpu", BLOCK_SIZE=16)
    output, auxiliary = flex_attention(*inputs, block_mask=block_mask, return_aux=AuxRequest(lse=True, max_scores=True))
    scores = torch.where(torch.arange(K) < torch.arange(Q)[:, None], inputs[0] @ inputs[1].mT / math.sqrt(D), -torch.inf)
    torch.testing.assert_close(auxiliary.lse, torch.logsumexp(scores, -1))
    torch.testing.assert_close(auxiliary.max_scores, scores.amax(-1))
    output, auxiliary = flex_attention(*inputs, block_mask=block_mask, return_aux=AuxRequest(lse=True))
    assert auxiliary.max_scores is None
    assert output.shape == (B, H, Q, D)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_output_has_the_dtype_of_the_query(dtype):
    inputs = tensors(dtype=dtype)
    for score_mod in (None, lambda s, b, h, q, k: s * s.abs()):
        output, lse = flex_attention(*inputs, score_mod, return_lse=True)
        expected, _ = dense(*(each.double() for each in inputs), score_mod)
        assert (output.dtype, lse.dtype) == (dtype, torch.float32)
        tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
        torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)


def test_a_scale_is_that_of_the_call():
    inputs = tensors()
    output = flex_attention(*inputs, lambda s, b, h, q, k: 2 * torch.tanh(s / 2), scale=0.7)
    torch.testing.assert_close(output, dense(*inputs, lambda s, b, h, q, k: 2 * torch.tanh(s / 2), scale=0.7)[0])


def test_gradients_have_the_same_bits_in_every_run():
    table = learned(16)

    def mod(s, b, h, q, k):
        return s + table[(q * k) % 16]

    runs = []
    for _ in range(2):
        inputs = tensors(dtype=torch.float32)
        runs.append(torch.autograd.grad(flex_attention(*inputs, mod).square().sum(), [*inputs, table]))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def test_a_model_that_calls_torchs_function_trains_on_the_cpu_while_it_is_replaced():
    import torch.nn.attention.flex_attention as of_torch

    original, inputs = of_torch.flex_attention, tensors()
    with replacing_flex_attention():
        assert of_torch.flex_attention is flex_attention
        of_torch.flex_attention(*inputs, lambda s, b, h, q, k: s + (k - q)).sum().backward()
    assert inputs[0].grad is not None
    assert of_torch.flex_attention is original


@pytest.mark.slow  # transformers compiles the making of its block mask
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_of_transformers_trains_on_it(hf_llama):
    from transformers import AutoModelForCausalLM

    names = ("eager", "flex_attention")
    plain, flex = (AutoModelForCausalLM.from_config(deepcopy(hf_llama), attn_implementation=name) for name in names)
    flex.load_state_dict(plain.state_dict())
    ids = torch.arange(24).view(2, 12)
    padding = torch.tensor([[1] * 9 + [0] * 3, [1] * 12])
    labels = torch.where(padding.bool(), ids, -100)
    expected = plain(ids, attention_mask=padding, labels=labels)
    expected.loss.backward()
    with replacing_flex_attention():
        result = flex(ids, attention_mask=padding, labels=labels)
        result.loss.backward()
    torch.testing.assert_close(result.logits[padding.bool()], expected.logits[padding.bool()], rtol=1e-4, atol=1e-5)
    for one, other in zip(flex.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.fixture
def hf_llama():
    from transformers import LlamaConfig

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=40, max_position_embeddings=64)


@pytest.mark.slow
def test_memory_is_linear_for_a_mod_that_no_kernel_knows():
    sizes = []
    table = torch.zeros(7, requires_grad=True)

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            sizes.extend(each.numel() for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor))
            return result

    x = torch.randn(1, 1, 3072, 4, requires_grad=True)
    with Largest():
        flex_attention(x, x, x, lambda s, b, h, q, k: s + table[(q * k) % 7]).sum().backward()
    assert max(sizes) <= 3072 * 3072 // 4
    assert table.grad is not None


def test_a_score_that_is_cast_is_what_it_is_cast_to():
    agree(lambda s, b, h, q, k: s.to(torch.float64) * 0.5 + k, paths=["native"])
    inputs = tensors()

    def cut(s, b, h, q, k):
        return (s * 3).to(torch.int32).double()

    torch.testing.assert_close(flex_attention(*inputs, cut), dense(*inputs, cut)[0], rtol=1e-10, atol=1e-10)


def test_a_mod_that_uses_its_own_results_over_and_over_is_called_as_it_is():
    def mixed(b, h, q, k):
        state = q + k
        for _ in range(40):
            state = (state ^ (state >> 2)) + state
        return state % 3 == 0

    agree(mask_mod=mixed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_captured_tensors_may_be_more_or_less_precise_than_the_query(dtype):
    for other in (torch.float32, torch.float64, torch.bfloat16):
        slopes, table = torch.rand(H, dtype=other), torch.rand(H, Q, K, dtype=other)
        inputs = tensors(dtype=dtype)
        for mod in (lambda s, b, h, q, k, t=slopes: s + t[h] * (k - q), lambda s, b, h, q, k, t=table: s * 2 + t[h, q, k]):
            output = flex_attention(*inputs, mod)
            expected, _ = dense(*(each.double() for each in inputs), mod)
            assert output.dtype == dtype
            torch.testing.assert_close(output.double(), expected, rtol=2e-2, atol=2e-2)


def test_what_an_expression_computes_on_the_way_is_let_go_at_once():
    made = []

    class Results(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            made.append(weakref.ref(result))
            return result

    expression = traced(lambda b, h, q, k: ((q - k).abs() * 2 + h) % 3 == 1, *"bhqk")
    gc.collect()
    gc.disable()
    try:
        with Results():
            result = expression.value({name: torch.arange(3) for name in "bhqk"})
        assert [each for each in made if each() is not None and each() is not result] == []
        assert len(made) > 4
    finally:
        gc.enable()


def test_a_recording_sees_a_call_of_it():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return flex_attention(x, x, x, block_mask=create_block_mask(causal, 1, 1, 9, 9, device="cpu", BLOCK_SIZE=16))

    layer, x = Layer(), torch.randn(1, 2, 9, 4)
    with overt.lens.record(layer) as recording:
        layer(x)
    expected = torch.softmax((x @ x.mT / 2).masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), -torch.inf), -1)
    torch.testing.assert_close(
        torch.as_tensor(recording[0, 1].weights()).reshape(9, 9).float(), expected[0, 1], rtol=1e-5, atol=1e-6
    )


def _block_mask_of(mod):
    tables = torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    return BlockMask.from_kv_blocks(*tables, BLOCK_SIZE=64, mask_mod=mod, seq_lengths=(Q, K))


def test_bad_input_ends_in_a_sentence():
    (query, key, value), rows = tensors(), learned(B, K)
    with pytest.raises(InputError, match=r"a block mask of Q = 37 queries and K = 41 keys, got one of 16 and 41"):
        flex_attention(query, key, value, block_mask=create_block_mask(causal, B, H, 16, K, device="cpu"))
    with pytest.raises(InputError, match=r"B = 2 and H = 4, or 1 of each, got one for B = 3"):
        flex_attention(query, key, value, block_mask=create_block_mask(causal, 3, H, Q, K, device="cpu"))
    with pytest.raises(KindError, match=r"a BlockMask, got Tensor"):
        flex_attention(query, key, value, block_mask=torch.ones(Q, K))
    with pytest.raises(InputError, match=r"enable_gqa=True"):
        flex_attention(query, key[:, :2], value[:, :2])
    with pytest.raises(InputError, match=r"query of shape \(B, H, length, features\)"):
        flex_attention(query[0], key, value)
    with pytest.raises(KindError, match=r"score_mod to return a floating-point number, got a torch.int32"):
        flex_attention(query, key, value, lambda s, b, h, q, k: torch.where(s > 0, q, k))
    with pytest.raises(KindError, match=r"mask_mod to return a bool, got a torch.int32"):
        flex_attention(query, key, value, block_mask=_block_mask_of(lambda b, h, q, k: q - k))
    with pytest.raises(KindError, match=r"the mod to return one number, got shape \(41,\)"):
        flex_attention(query, key, value, lambda s, b, h, q, k: s + rows[b])
