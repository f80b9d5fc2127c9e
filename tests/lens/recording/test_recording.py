import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from module_hooks import global_hooks
from overt.errors import InputError, KindError
from overt.lens import record


class Attending(nn.Module):
    """Four heads over torch's fused function, with whatever it takes."""

    def __init__(self, **options):
        super().__init__()
        self.project, self.options = nn.Linear(16, 48), options

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).unbind(-3)  # (B, N, H, D)
        q, k, v = (each.transpose(-3, -2) for each in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, **self.options)
        return mixed.transpose(-3, -2).flatten(-2)


class Stack(nn.Module):
    """Two layers, the second called twice."""

    def __init__(self, **options):
        super().__init__()
        self.first, self.second = Attending(**options), Attending(**options)

    def forward(self, x):
        return self.second(self.second(self.first(x)))


def sequence(batch=2, length=7):
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(1))


def hooks(model):
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]


MASKS = {
    "nothing": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.arange(7)[None] <= torch.arange(7)[:, None] + 2},
    "float": {"attn_mask": torch.randn(2, 1, 7, 7, generator=torch.Generator().manual_seed(2))},
    "minus infinity": {"attn_mask": torch.where(torch.arange(7)[None] <= torch.arange(7)[:, None], 0.0, -math.inf)},
    "scale": {"scale": 0.7},
}


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_outputs_are_the_same_to_the_bit(options):
    model, x = Stack(**options), sequence()
    plain = model(x)
    with record(model):
        recorded = model(x)
    assert torch.equal(recorded, plain)


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_weights_are_the_softmax_of_the_scaled_products(options):
    model, x = Attending(**options), sequence()
    with record(model) as recording:
        model(x)
    q, k, _ = model.project(x).unflatten(-1, (3, 4, 4)).unbind(-3)
    scores = q.transpose(1, 2) @ k.transpose(1, 2).mT * options.get("scale", 0.5)
    mask = options.get("attn_mask", torch.zeros(7, 7))
    if options.get("is_causal"):
        mask = torch.ones(7, 7, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    by_hand = scores.softmax(-1)
    for head in range(4):
        torch.testing.assert_close(recording[0, head].weights(), by_hand[:, head], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_recomputed_outputs_are_the_models_own(options):
    model = Stack(**options)
    with record(model) as recording:
        model(sequence())
    verified = recording.verify()
    assert 0 < verified.difference < 1e-5
    assert verified.holds


def test_verify_notices_an_output_that_is_not_attentions():
    model = Attending()
    with record(model) as recording:
        model(sequence())
    recording.calls[0].output[0, 1, 2, 3] += 0.01
    verified = recording.verify()
    assert verified.difference == pytest.approx(0.01, rel=1e-3)
    assert not verified.holds
    assert "DIFFERS" in str(verified)


def test_a_causal_call_is_aligned_at_the_start_as_torch_has_it():
    class Longer(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x[..., :3, :], x, x, is_causal=True)

    model = Longer()
    with record(model) as recording:
        model(torch.randn(1, 2, 5, 4))
    weights = recording[0, 0].weights()[0]
    assert torch.equal(weights > 0, torch.ones(3, 5, dtype=torch.bool).tril())
    assert recording.verify().holds


def test_grouped_heads_read_the_key_head_of_their_group():
    class Grouped(nn.Module):
        def forward(self, q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    model = Grouped()
    with record(model) as recording:
        model(q, k, v)
    by_hand = (q[:, 2] @ k[:, 1].mT / 8**0.5).softmax(-1)
    torch.testing.assert_close(recording[0, 2].weights(), by_hand)
    assert recording.verify().holds


def test_layers_are_named_by_the_innermost_module_and_a_module_called_twice_is_there_twice():
    model = Stack()
    with record(model) as recording:
        model(sequence())
    assert recording.layers == ["first", "second", "second"]
    assert torch.equal(recording["first", 1].weights(), recording[0, 1].weights())
    with pytest.raises(InputError, match=r"got 'second', which made the calls 1, 2\..*name the call by its number"):
        recording["second", 1]


def test_each_outer_forward_is_a_pass():
    model = Stack()
    with record(model) as recording:
        model(sequence())
        model(sequence(1, 4))
        model.first(sequence(1, 3))
    assert [len(each.layers) for each in recording.passes] == [3, 3, 1]
    assert torch.equal(recording.passes[1]["first", 2].weights(), recording[3, 2].weights())
    assert recording.passes[2][0, 0].queries == 3
    assert recording[-1, 0].keys == 3


def test_attention_outside_the_model_is_not_its_own():
    model, other, x = Attending(), Attending(), sequence()
    with record(model) as recording:
        model(x)
        other(x)
    assert recording.layers == ["Attending"]


@pytest.mark.parametrize("inference", [torch.no_grad, torch.inference_mode])
def test_what_the_model_writes_over_afterwards_stays_recorded(inference):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = torch.zeros(1, 1, 4, 8)

        def forward(self, x):
            self.cache.copy_(x)
            return functional.scaled_dot_product_attention(self.cache, self.cache, self.cache)

    model, first = Cached(), torch.randn(1, 1, 4, 8)
    with inference(), record(model) as recording:
        model(first)
        model(torch.zeros(1, 1, 4, 8))
    assert torch.equal(recording[0, 0].key, first[0])
    assert recording.verify().holds


def test_a_mask_that_the_model_writes_over_is_not_believed():
    mask = torch.full((7, 7), 0.5)
    model = Attending(attn_mask=mask)
    with record(model) as recording:
        model(sequence())
    mask[0, 1] = -1.0
    with pytest.raises(InputError, match="the mask of Attending unchanged"):
        recording[0, 0].weights()
    with pytest.raises(InputError, match="pass the model a copy of the mask"):
        recording.verify()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "padding", "per head"])
def test_multi_head_attention_is_recorded_with_and_without_weights(need_weights, mask):
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = sequence()
    masks = {
        "none": {},
        "bool": {"attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1)},
        "float": {"attn_mask": torch.randn(7, 7)},
        "padding": {"key_padding_mask": torch.arange(7)[None] >= torch.tensor([[4], [7]])},
        "per head": {"attn_mask": torch.randn(8, 7, 7)},
    }
    inputs = {**masks[mask], "need_weights": need_weights, "average_attn_weights": False}
    with torch.no_grad():
        plain, weights = attention(x, x, x, **inputs)
        with record(attention) as recording:
            recorded, _ = attention(x, x, x, **inputs)
    _, expected = attention(x, x, x, **{**inputs, "need_weights": True})
    assert torch.equal(recorded, plain)
    assert (weights is not None) == need_weights
    for head in range(4):
        torch.testing.assert_close(recording[0, head].weights(), expected[:, head], rtol=0, atol=1e-6)
    assert recording.verify().holds


def test_extra_keys_of_multi_head_attention_are_keys():
    attention = nn.MultiheadAttention(16, 4, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(5, 16)
    _, weights = attention(x, x, x, average_attn_weights=False)
    with record(attention) as recording:
        attention(x, x, x)
    assert recording[0, 3].keys == 7
    torch.testing.assert_close(recording[0, 3].weights()[0], weights[3])


@pytest.mark.parametrize(
    "options",
    [{}, {"mask": overt.Causal()}, {"score": overt.Cosine(2.0), "normalizer": overt.Sparsemax()}, {"mask": overt.Lengths(5)}],
    ids=["plain", "causal", "cosine and sparsemax", "lengths"],
)
def test_overts_own_attention_is_recorded_once(options):
    class Custom(nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, **options)

    model, x = Custom(), torch.randn(2, 4, 7, 8)
    with record(model) as recording:
        output = model(x)
    assert torch.equal(output, model(x))
    assert len(recording) == 1
    assert recording.missing == []
    steps = overt.steps(x, x, x, **options)
    assert torch.equal(recording[0, 2].weights(), steps.weights[:, 2])
    assert recording.verify().holds


def test_a_score_with_parameters_of_its_own_is_recorded_with_its_heads_together():
    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 8))

        def forward(self, x):
            return overt.attend(x, x, x, score=overt.Additive(self.weight), normalizer=overt.Softmax(sink=torch.arange(4.0)))

    model, x = Custom(), torch.randn(2, 4, 7, 8)
    with record(model, heads=[2]) as recording:
        model(x)
    steps = overt.steps(x, x, x, score=overt.Additive(model.weight), normalizer=overt.Softmax(sink=torch.arange(4.0)))
    head = recording[0, 2]
    torch.testing.assert_close(head.weights(), steps.weights[:, 2].detach())
    torch.testing.assert_close(head.steps(3).output[:, 0], steps.output[:, 2, 3].detach())
    assert not head.weights().requires_grad


def test_gradients_in_training_are_the_models_own():
    x = sequence()
    gradients = []
    for recorded in (False, True):
        torch.manual_seed(3)
        model = Stack().train()
        if recorded:
            with record(model) as recording:
                model(x).square().sum().backward()
            assert not recording.calls[0].call.query.requires_grad
        else:
            model(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_gradient_checkpointing_is_recorded_once():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Attending()

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()
    with record(model) as recording:
        model(sequence()).sum().backward()
    assert recording.layers == ["inner"]
    assert len(recording.passes) == 1


def test_dropout_is_recorded_and_not_compared():
    model = Attending(dropout_p=0.5)
    with record(model) as recording:
        torch.manual_seed(0)
        recorded = model(sequence())
    torch.manual_seed(0)
    assert torch.equal(recorded, model(sequence()))
    torch.testing.assert_close(recording[0, 0].weights().sum(-1), torch.ones(2, 7))
    verified = recording.verify()
    assert math.isnan(verified.difference)
    assert not verified.holds
    assert "dropout 0.5 was drawn at random, and draws are not recorded" in str(verified)


def test_half_precision_stands_beside_its_own_bound():
    model, x = Attending().bfloat16(), sequence().bfloat16()
    with record(model) as recording:
        model(x)
    verified = recording.verify()
    assert verified.holds
    assert 1e-4 < verified.bound < 0.2


def test_only_the_layers_and_heads_asked_for_are_kept_under_their_own_numbers():
    model = Stack()
    with record(model) as whole:
        model(sequence())
    with record(model, layers=[1, 2], heads=[3, 1]) as recording:
        model(sequence())
    assert recording.layers == ["second", "second"]
    assert recording.calls[0].call.query.shape[1] == 2
    assert torch.equal(recording[2, 3].weights(), whole[2, 3].weights())
    assert torch.equal(recording[1, 1].weights(), whole[1, 1].weights())
    with pytest.raises(InputError, match="one of the recorded calls, 1, 2, got layer 0"):
        recording[0, 1]
    with pytest.raises(InputError, match=r"a recorded head of second, \[3, 1\], got 0"):
        recording[1, 0]


@pytest.mark.parametrize("layers", [[7], ["third"], [-1]])
def test_layers_that_name_no_call_are_refused_with_the_calls_that_there_are(layers):
    model = Stack()
    with record(model, layers=layers) as recording:
        model(sequence())
    message = f"Expected calls that layers= names, got {layers[0]}; the calls are 0 to 2: first, second, second. Fix: "
    with pytest.raises(InputError) as refused:
        recording.roles()
    assert str(refused.value).startswith(message)
    assert str(recording).startswith(f"nothing recorded: {message}")
    assert message in str(recording.verify())


@pytest.mark.parametrize("keep", ["qkv", "summary"])
def test_heads_and_a_limit_that_leave_nothing_are_what_an_empty_recording_says(keep):
    model = Attending()
    with record(model, keep=keep, heads=[77]) as recording:
        model(sequence())
    assert str(recording) == (
        "nothing recorded: Expected heads from 0 to 3 of Attending, got heads=[77]. Fix: leave out the others."
    )
    with record(model, keep=keep, limit=10) as recording:
        model(sequence())
    assert str(recording).startswith("nothing recorded: Expected a recording of at most 10 bytes, got ")
    with pytest.raises(InputError, match="a recording of at most 10 bytes"):
        recording[0, 0]


def test_an_empty_recording_prints_why():
    model = nn.Linear(4, 4)
    with record(model) as recording:
        model(torch.ones(2, 4))
    assert str(recording).startswith("nothing recorded: Expected a model that computes attention by")
    assert "got Linear, which called none of them. Fix" in str(recording)


def test_layers_may_be_named_by_a_module_that_holds_them():
    model = nn.Sequential(Stack(), Attending())
    with record(model, layers=["0"]) as recording:
        model(sequence())
    assert recording.layers == ["0.first", "0.second", "0.second"]


def test_a_layer_that_never_came_is_missing():
    model = Attending()
    with record(model, layers=[0, 9]) as recording:
        model(sequence())
    assert recording.missing == [("9", "layers= names it, but no call of attention has this number or name")]


def test_a_head_that_does_not_exist_is_missing_and_the_model_runs_on():
    model = Attending()
    with record(model, heads=[4]) as recording:
        model(sequence())
    assert recording.missing == [
        ("Attending", "Expected heads from 0 to 3 of Attending, got heads=[4]. Fix: leave out the others.")
    ]


def test_what_is_too_large_is_not_kept_and_the_model_runs_on():
    model, x = Stack(), sequence()
    plain = model(x)
    with record(model, limit=5_000) as recording:
        assert torch.equal(model(x), plain)
        model(x)
    assert recording.layers == ["first"]
    assert recording.missing == [
        (
            "second",
            "Expected a recording of at most 5.0 kB, got 3.6 kB for this call and 3.6 kB for others. Fix: record less with "
            'layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit=.',
        ),
        (
            "first",
            "Expected a recording of at most 5.0 kB, got 3.6 kB for this call and 3.6 kB for others. Fix: record less with "
            'layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit=.',
        ),
    ]


def test_torch_is_left_as_it_was_after_an_error():
    class Failing(Stack):
        def forward(self, x):
            self.first(x)
            raise RuntimeError("the model fails")

    model = Failing()
    with pytest.raises(RuntimeError, match="the model fails"), record(model) as recording:
        model(sequence())
    assert recording.layers == ["first"]
    assert not any(hooks(model))
    assert not any(global_hooks())
    assert torch._C._len_torch_function_stack() == 0
    assert torch.overrides.has_torch_function is torch._C._has_torch_function
    assert overt.attention.mechanism.observers.get() == ()
    model.first(sequence())
    assert len(recording) == 1


def test_a_failing_layer_does_not_lend_its_name_to_the_next():
    class Recovering(Stack):
        def forward(self, x):
            try:
                self.first(x[..., :3])
            except RuntimeError:
                return self.second(x)

    model = Recovering()
    with record(model) as recording:
        model(sequence())
    assert recording.layers == ["second"]


def test_a_model_without_attention_is_an_error_on_use():
    model = nn.Linear(4, 4)
    with record(model) as recording:
        model(torch.ones(1, 4))
    message = "a model that computes attention by torch.nn.functional.scaled_dot_product_attention, torch.nn.MultiheadAttention, overt.attend"
    for use in (lambda: recording.layers, lambda: recording[0, 0], recording.roles):
        with pytest.raises(InputError, match=message):
            use()
    assert message in str(recording.verify())
    assert not recording.verify().holds


def test_a_model_that_did_not_run_is_an_error_on_use():
    with record(Attending()) as recording:
        pass
    with pytest.raises(InputError, match="got one that did not run in it"):
        recording.roles()
    assert "got one that did not run in it" in str(recording.verify())


def test_attention_that_is_written_out_in_no_known_way_is_missing_with_the_reason():
    class Written(nn.Module):
        def forward(self, x):
            weights = torch.softmax(x @ x.mT, dim=-1)
            return (weights.unsqueeze(-1) * x.unsqueeze(1)).mean(2)

    model = nn.Sequential(Attending(), Written())
    with record(model) as recording:
        model(sequence())
    reason = "softmax and product with the values are written out in an order that is not recognised"
    assert recording.missing == [("1", reason)]
    assert f"not recorded: 1: {reason}" in str(recording)
    with record(model[1]) as recording:
        model[1](sequence())
    with pytest.raises(InputError, match="of which no call was recorded .*in an order that is not recognised"):
        recording.roles()


def test_what_cannot_be_recorded_is_refused_in_a_sentence():
    with pytest.raises(KindError, match="a torch.nn.Module for overt.lens.record, got function"), record(lambda x: x):
        pass
    compiled = nn.Sequential(torch.compile(Attending()))
    with pytest.raises(KindError, match=r"got 0, compiled by torch.compile.*record\(model._orig_mod\)"), record(compiled):
        pass
    inplace = Attending()
    inplace.compile()
    with pytest.raises(KindError, match="got the model, compiled by torch.compile"), record(inplace):
        pass


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_module_is_refused():
    scripted = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    with (
        pytest.raises(KindError, match="got 0, a RecursiveScriptModule.*record the module that it was scripted from"),
        record(scripted),
    ):
        pass


def test_a_recording_prints_as_a_table():
    model = Stack()
    with record(model) as recording:
        model(sequence())
    lines = str(recording).splitlines()
    assert lines[0] == "Stack: 3 calls of attention in 1 pass"
    assert lines[2].split() == ["0", "first", "4", "7", "7", "scaled_dot_product_attention"]
    assert repr(recording) == "<recording of Stack: 3 calls of attention, 1 pass>"


def test_a_head_is_named_by_two_things():
    model = Attending()
    with record(model) as recording:
        model(sequence())
    with pytest.raises(KindError, match=r"recording\[layer, head\], got 0"):
        recording[0]
    with pytest.raises(InputError, match="the name of a module that computes attention, got 'other'.*choose one of: Attending"):
        recording["other", 0]


def test_recordings_inside_each_other_see_their_own_model():
    outer, inner, x = Attending(), nn.MultiheadAttention(16, 4, batch_first=True), sequence()
    with record(outer) as first, record(inner) as second, record(inner) as third:
        outer(x)
        inner(x, x, x)
    assert [recording.layers for recording in (first, second, third)] == [["Attending"], *[["MultiheadAttention"]] * 2]
    assert first.missing == second.missing == third.missing == []
    assert torch.equal(second[0, 1].weights(), third[0, 1].weights())
    assert torch.equal(first[0, 0].query, outer.project(x).unflatten(-1, (3, 4, 4))[:, :, 0, 0].detach())


def test_autocast_is_recorded_in_its_own_precision():
    model, x = Attending(), sequence()
    with torch.autocast("cpu", torch.bfloat16):
        plain = model(x)
        with record(model) as recording:
            assert torch.equal(model(x), plain)
    assert recording[0, 0].query.dtype == torch.bfloat16
    assert recording.verify().holds


def test_encoder_and_decoder_are_recorded_with_the_attention_between_them():
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    with record(model) as recording:
        model(sequence(), sequence(length=4), tgt_mask=causal, tgt_is_causal=True)
    assert recording.layers == ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"]
    assert (recording[2, 0].queries, recording[2, 0].keys) == (4, 7)
    assert not recording[1, 0].weights().triu(1).any()
    assert recording.verify().holds


def test_overts_layers_are_recorded_by_name():
    model = nn.Sequential(overt.layers.Contextual(nn.GRU(16, 8, batch_first=True), "additive"), Last())
    with record(model) as recording:
        output = model(sequence())
    assert torch.equal(output, model(sequence()))
    assert len(recording) == 1
    assert recording.layers[0].startswith("0.")
    context = recording[0, 0].output
    torch.testing.assert_close(context, output[..., 8:].detach())
    assert recording.verify().holds


class Last(nn.Module):
    """Of a recurrent layer's output and state, the output."""

    def forward(self, result):
        return result[0]


@pytest.mark.slow
def test_the_lens_is_touched_without_torch():
    code = (
        "import sys; import overt; overt.lens; dir(overt.lens);"
        "assert 'torch' not in sys.modules; overt.lens.record; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_an_unknown_name_of_the_lens_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'overt.lens' has no attribute 'recorder'"):
        overt.lens.recorder
