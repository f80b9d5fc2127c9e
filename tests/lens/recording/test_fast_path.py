"""torch's fast path gives the outputs of a recorded model, and query, key and value are computed beside it."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from overt.lens import load, record
from overt.lens.capture.torch_layers import fast_path

LENGTH = 7
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
BEHIND, BEFORE = (
    torch.arange(LENGTH)[None] >= torch.tensor([[4], [6], [5]]),
    torch.arange(LENGTH)[None] < torch.tensor([[2], [0], [5]]),
)
SCORES = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(3))
MASKS = {
    "nothing": (None, None),
    "causal": (CAUSAL, None),
    "by head": (torch.rand(12, LENGTH, LENGTH, generator=torch.Generator().manual_seed(4)) > 0.6, None),
    "numbers": (SCORES, None),
    "padding behind": (None, BEHIND),
    "padding before": (None, BEFORE),
    "all padding": (None, torch.arange(LENGTH)[None] >= torch.tensor([[0], [7], [5]])),
    "both": (CAUSAL, BEHIND),
}
masks = pytest.mark.parametrize(("mask", "padding"), MASKS.values(), ids=MASKS)
within = pytest.mark.parametrize("within", [torch.no_grad, torch.inference_mode, nullcontext], ids=lambda each: each.__name__)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)


def sequence(dtype=torch.float32):
    return torch.randn(3, LENGTH, 16, generator=torch.Generator().manual_seed(1)).to(dtype)


def fitting(mask, dtype):
    return mask.to(dtype) if mask is not None and mask.is_floating_point() else mask


def run(call, model):
    """A run alone and one recorded: every number that comes out is the same to the bit."""
    plain = call()
    with record(model) as recording:
        output = call()
    pairs = list(zip(tree_leaves(plain), tree_leaves(output), strict=True))
    assert all(type(one) is type(other) for one, other in pairs)
    assert all(torch.equal(one.nan_to_num(nan=7e7), other.nan_to_num(nan=7e7)) for one, other in pairs if one is not None)
    assert recording.missing == []
    assert recording.verify().holds
    return recording, output


def taken(recording):
    """Whether each call came from the fast path."""
    return [any("fast path" in note for note in call.notes) for call in recording.calls]


@pytest.mark.each_pair
@dtypes
@within
@masks
@pytest.mark.parametrize("training", [False, True])
def test_multi_head_attention_recorded_is_what_it_is_alone(mask, padding, within, dtype, training):
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True, dtype=dtype).train(training), sequence(dtype)
    inputs = {"attn_mask": fitting(mask, dtype), "key_padding_mask": padding, "average_attn_weights": False}
    numbers = mask is not None and mask.is_floating_point()
    for need_weights in (True, False):
        with within():
            recording, _ = run(lambda need=need_weights: attention(x, x, x, need_weights=need, **inputs), attention)
        assert taken(recording) == [not (training or numbers or within is nullcontext)]


def test_recorded_weights_are_those_that_the_kernel_returns():
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), sequence()
    with torch.no_grad():
        inputs = {"attn_mask": CAUSAL, "key_padding_mask": BEHIND, "average_attn_weights": False}
        recording, (_, weights) = run(lambda: attention(x, x, x, **inputs), attention)
    for head in range(4):
        torch.testing.assert_close(recording[0, head].weights(), weights[:, head], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"kdim": 16, "vdim": 16},
        {"batch_first": False},
        {"num_heads": 1},
    ],
    ids=str,
)
def test_layers_that_have_no_fast_path_are_recorded_as_they_run(options):
    attention, x = nn.MultiheadAttention(16, **{"num_heads": 4, "batch_first": True, **options}).eval(), sequence()
    with torch.no_grad():
        run(lambda: attention(x, x, x), attention)
        run(lambda: attention(x[0], x[0], x[0]), attention)


@dtypes
@within
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.few_cases(3)
def test_encoders_recorded_are_what_they_are_alone(norm_first, activation, within, dtype, training):
    torch.manual_seed(0)
    options = {"batch_first": True, "norm_first": norm_first, "activation": activation, "dtype": dtype}
    layer, x = nn.TransformerEncoderLayer(16, 4, 32, 0.0, **options), sequence(dtype)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16, dtype=dtype), enable_nested_tensor=not norm_first).train(
        training
    )
    for name, (mask, padding) in MASKS.items():
        if name not in ("by head", "all padding"):  # padding alone is NaN, which every layer passes on
            with within():
                recording, _ = run(
                    lambda mask=mask, padding=padding: encoder(x, mask=fitting(mask, dtype), src_key_padding_mask=padding),
                    encoder,
                )
            assert recording.layers == ["layers.0.self_attn", "layers.1.self_attn"]
            assert taken(recording) == [not (training or within is nullcontext)] * 2


def test_padding_behind_is_in_the_recording_and_the_models_output_is_zero_there():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    with torch.no_grad():
        recording, output = run(lambda: encoder(sequence(), src_key_padding_mask=BEHIND), encoder)
    assert not output[BEHIND].any()
    for layer in (0, 1):
        head = recording[layer, 1]
        assert (head.queries, head.keys) == (LENGTH, LENGTH)
        assert not head.weights()[BEHIND].any()
        assert not head.weights().mT[BEHIND].any()
        torch.testing.assert_close(head.weights().sum(-1), (~BEHIND).float())


def test_the_whole_transformer_is_what_it_is_alone():
    model, x = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval(), sequence()
    with torch.no_grad():
        inputs = {"src_key_padding_mask": BEHIND, "memory_key_padding_mask": BEHIND, "tgt_mask": CAUSAL}
        recording, _ = run(lambda: model(x, x, **inputs), model)
    assert [layer.split(".", 1)[1] for layer in recording.layers] == [
        "layers.0.self_attn",
        "layers.1.self_attn",
        "layers.0.self_attn",
        "layers.0.multihead_attn",
        "layers.1.self_attn",
        "layers.1.multihead_attn",
    ]
    assert taken(recording) == [True, True, True, False, True, False]


@pytest.mark.parametrize(
    "way", [{"keep": "summary"}, {"offload": "disk"}, {"heads": [2, 0]}, {"layers": ["layers.1.self_attn"]}]
)
def test_every_way_of_keeping_leaves_the_fast_path(way):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    with torch.no_grad():
        plain = encoder(sequence(), src_key_padding_mask=BEHIND)
        with record(encoder, **way) as recording:
            output = encoder(sequence(), src_key_padding_mask=BEHIND)
    assert torch.equal(output, plain)
    assert recording.verify().holds
    assert all(taken(recording))


def test_a_note_says_what_is_the_models_own(tmp_path):
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), sequence()
    with torch.no_grad():
        recording, _ = run(lambda: attention(x, x, x), attention)
    note = "torch ran the whole layer as one kernel, its fast path: query, key and value are recomputed from the layer's parameters"
    assert note in str(recording)
    assert note in str(recording.verify())
    recording.save(tmp_path / "recording.safetensors")
    assert note in str(load(tmp_path / "recording.safetensors"))


def test_verify_says_how_far_the_kernel_is_from_the_formula(monkeypatch):
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), sequence()
    with torch.no_grad(), record(attention) as recording:
        attention(x, x, x)
    with torch.no_grad():
        attention.in_proj_weight += 0.1  # what is kept is what the kernel ran with, and not what the layer has become
    assert recording.verify().holds
    recording.calls[0].output[0, 1, 2, 3] += 0.01
    assert recording.verify().difference == pytest.approx(0.01, rel=1e-3)


def test_what_does_not_come_to_the_layers_own_output_is_missing(monkeypatch):
    finished = fast_path._finished
    monkeypatch.setattr(fast_path, "_finished", lambda *args: finished(*args) + 0.5)
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad():
        plain = encoder(sequence())
        with record(encoder) as recording:
            assert torch.equal(encoder(sequence()), plain)
    ((layer, reason),) = recording.missing
    assert layer == "TransformerEncoderLayer"
    assert "the recomputed output differs" in reason
    assert len(recording) == 0


def test_hooks_of_the_models_own_keep_torch_from_its_fast_path_as_they_do_alone():
    encoder, result = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), []
    encoder.self_attn.register_forward_hook(lambda module, args, output: result.append(output[0]))
    with torch.no_grad():
        recording, _ = run(lambda: encoder(sequence()), encoder)
    assert torch.equal(*result)
    assert recording.layers == ["self_attn"]


def test_the_fast_path_is_not_switched_off(monkeypatch):
    message = []
    monkeypatch.setattr(torch.backends.mha, "set_fastpath_enabled", message.append)
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad(), record(encoder):
        encoder(sequence())
    assert message == []


def test_masks_that_layers_share_are_read_once(monkeypatch):
    count, read = [], fast_path.read
    monkeypatch.setattr(fast_path, "read", lambda tensor: count.append(1) or read(tensor))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 3).eval()
    with torch.no_grad():
        run(lambda: encoder(sequence(), src_key_padding_mask=BEFORE), encoder)
    assert len(count) == 1


@pytest.mark.parametrize("shape", [(0, 5, 16), (1, 1, 16)])
def test_empty_and_single_inputs_run_as_alone(shape):
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), torch.randn(shape)
    with torch.no_grad():
        run(lambda: attention(x, x, x), attention)


def test_nested_tensors_of_the_callers_own_are_padded_to_the_longest():
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    nested = torch.nested.nested_tensor([sequence()[0, :3], sequence()[1, :5]])
    with torch.no_grad():
        plain = encoder(nested).to_padded_tensor(0.0)
        with record(encoder) as recording:
            assert torch.equal(encoder(nested).to_padded_tensor(0.0), plain)
        alone = [encoder(sequence()[0, :3][None]), encoder(sequence()[1, :5][None])]
    assert (recording[0, 2].queries, recording[0, 2].keys) == (5, 5)
    assert recording.verify().holds
    assert recording[0, 2].weights()[0, 2, 3:].tolist() == [0.0, 0.0]
    torch.testing.assert_close(plain[1], alone[1][0])


def test_gradients_that_only_inputs_want_leave_the_fast_path_as_alone():
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval().requires_grad_(False)
    recording, _ = run(lambda: encoder(sequence()), encoder)
    assert taken(recording) == [True]
    x = sequence().requires_grad_()
    recording, output = run(lambda: encoder(x), encoder)
    assert taken(recording) == [False]
    assert output.requires_grad
