"""replace: torch's multi-head attention computes by overt.attend, and nothing else in the model changes."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call

import overt
from overt.errors import InputError, KindError
from overt.layers import MultiHeadAttention, ReplacedAttention, replace_multihead_attention

WIDTH, HEADS, B, Q, K = 16, 4, 3, 5, 7
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def normal(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pair(dtype=torch.float64, **options):
    """torch's layer, with biases that are not zero, and its replaced copy."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=options.pop("batch_first", True), **options).to(dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    return theirs, replace_multihead_attention(copy.deepcopy(theirs))


def bars(*shape, seed=3):
    """Bool, True where barred, with something left in every row."""
    barred = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    barred[..., 0] = False
    return barred


def as_numbers(barred):
    return torch.zeros(barred.shape, dtype=torch.float64).masked_fill(barred, -torch.inf)


MASKS = {
    "none": {},
    "bool": {"attn_mask": bars(Q, K)},
    "bool a head": {"attn_mask": bars(B * HEADS, Q, K)},
    "numbers": {"attn_mask": normal(Q, K)},
    "numbers a head": {"attn_mask": normal(B * HEADS, Q, K)},
    "numbers that bar": {"attn_mask": as_numbers(bars(Q, K))},
    "padding": {"key_padding_mask": bars(B, K)},
    "padding in numbers": {"key_padding_mask": normal(B, K)},
    "padding in numbers that bar": {"key_padding_mask": as_numbers(bars(B, K))},
    "both": {"key_padding_mask": bars(B, K), "attn_mask": bars(Q, K, seed=4)},
    "both in numbers": {"key_padding_mask": normal(B, K), "attn_mask": normal(B * HEADS, Q, K)},
}
LAYERS = {
    "plain": {},
    "no bias": {"bias": False},
    "widths": {"kdim": 6, "vdim": 9},
    "extra keys": {"add_bias_kv": True, "add_zero_attn": True},
    "widths and extra keys": {"kdim": 6, "vdim": 9, "add_bias_kv": True, "add_zero_attn": True, "bias": False},
}


def of_layer(options, batch_first, dtype):
    """Query, key and value as such a layer reads them."""
    widths = (Q, WIDTH), (K, options.get("kdim", WIDTH)), (K, options.get("vdim", WIDTH))
    made = [normal(B, *size, seed=index, dtype=dtype) for index, size in enumerate(widths)]
    return made if batch_first else [x.transpose(0, 1).contiguous() for x in made]


def in_dtype(masks, dtype):
    return {name: mask.to(dtype) if mask.is_floating_point() else mask for name, mask in masks.items()}


@pytest.mark.each_pair
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", LAYERS)
def test_outputs_weights_and_gradients_are_torchs(options, masks, batch_first, dtype):
    theirs, ours = pair(dtype, batch_first=batch_first, **LAYERS[options])
    call = in_dtype(MASKS[masks], dtype)
    result, wanted = [], []
    for layer, results in ((ours, result), (theirs, wanted)):
        inputs = [x.requires_grad_() for x in of_layer(LAYERS[options], batch_first, dtype)]
        for weights in ({"need_weights": False}, {}, {"average_attn_weights": False}):
            results += layer(*inputs, **call, **weights)
        results += torch.autograd.grad(results[0].square().sum() + results[5].square().sum(), [*inputs, *layer.parameters()])
    assert result[1] is None
    assert result[2].shape == wanted[2].shape
    for one, other in zip(result, wanted, strict=True):
        if other is not None:
            size = max(float(other.detach().abs().max()), 1)
            torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype] * size)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_sequence_that_asks_itself_is_projected_as_torch_projects_it(need_weights):
    theirs, ours = pair()
    x = normal(B, Q, WIDTH)
    torch.testing.assert_close(ours(x, x, x, need_weights=need_weights), theirs(x, x, x, need_weights=need_weights))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_inputs_without_a_batch_come_back_without_one(need_weights, average):
    theirs, ours = pair(batch_first=False)
    q, k = normal(Q, WIDTH), normal(K, WIDTH, seed=2)
    call = {
        "key_padding_mask": bars(K),
        "attn_mask": bars(HEADS, Q, K, seed=4),
        "need_weights": need_weights,
        "average_attn_weights": average,
    }
    torch.testing.assert_close(ours(q, k, k, **call), theirs(q, k, k, **call))


@pytest.mark.parametrize("call", [{}, {"need_weights": False}, {"key_padding_mask": torch.zeros(B, Q, dtype=torch.bool)}])
def test_the_causal_hint_means_what_it_means_to_torch(call):
    theirs, ours = pair()
    x, later = normal(B, Q, WIDTH), torch.ones(Q, Q, dtype=torch.bool).triu(1)
    result, wanted = (layer(x, x, x, attn_mask=later, is_causal=True, **call) for layer in (ours, theirs))
    torch.testing.assert_close(result, wanted)


def test_under_the_causal_hint_extra_keys_are_seen_whether_or_not_weights_are_asked_for():
    _, ours = pair(add_bias_kv=True, add_zero_attn=True)
    x, later = normal(B, Q, WIDTH), torch.ones(Q, Q, dtype=torch.bool).triu(1)
    with_weights, weights = ours(x, x, x, attn_mask=later, is_causal=True)
    without, _ = ours(x, x, x, attn_mask=later, is_causal=True, need_weights=False)
    torch.testing.assert_close(without, with_weights)
    assert (weights[:, 0, -2:] > 0).all()


def test_the_causal_hint_needs_the_mask():
    _, ours = pair()
    x = normal(B, Q, WIDTH)
    with pytest.raises(
        InputError, match=r"attn_mask beside is_causal=True, .*, got is_causal=True without attn_mask\. Fix: pass attn_"
    ):
        ours(x, x, x, is_causal=True)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_rows_that_torch_turns_to_nan_are_zeros_before_the_output_projection(numbers, need_weights):
    theirs, ours = pair()
    barred = torch.zeros(B, K, dtype=torch.bool)
    barred[1] = True
    padding = as_numbers(barred) if numbers else barred
    q, k = normal(B, Q, WIDTH).requires_grad_(), normal(B, K, WIDTH, seed=2)
    wanted, _ = theirs(q, k, k, key_padding_mask=padding)
    output, weights = ours(q, k, k, key_padding_mask=padding, need_weights=need_weights)
    assert wanted[1].isnan().all()
    torch.testing.assert_close(output[1], ours.out_proj.bias.expand(Q, WIDTH), rtol=0, atol=0)
    torch.testing.assert_close(output[[0, 2]], wanted[[0, 2]])
    assert weights is None or (weights[1] == 0).all()
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


def test_what_a_barred_key_holds_does_not_reach_the_output():
    _, ours = pair()
    q, k, barred = normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2), bars(B, K)
    wanted, _ = ours(q, k, k, key_padding_mask=barred)
    k = k.masked_fill(barred[..., None], torch.nan)
    for padding in (barred, as_numbers(barred)):
        torch.testing.assert_close(ours(q, k, k, key_padding_mask=padding)[0], wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"attn_mask": bars(Q, Q)}, r"torch's attn_mask as \(5, 7\) or \(12, 5, 7\), got attn_mask \(5, 5\)"),
        ({"attn_mask": bars(HEADS, Q, K)}, r"torch's attn_mask as \(5, 7\) or \(12, 5, 7\), got attn_mask \(4, 5, 7\)"),
        ({"key_padding_mask": bars(K)}, r"torch's key_padding_mask as \(3, 7\), got key_padding_mask \(7,\)"),
        ({"key_padding_mask": bars(B, K).int()}, r"torch's key_padding_mask as bool, .* got a torch.int32 tensor"),
    ],
)
def test_masks_that_torch_does_not_take_are_refused(call, message):
    _, ours = pair()
    q, k = normal(B, Q, WIDTH), normal(B, K, WIDTH)
    with pytest.raises((InputError, KindError), match=message):
        ours(q, k, k, **call)


def test_inputs_of_another_width_or_without_the_others_batch_are_refused():
    _, ours = pair()
    with pytest.raises(
        InputError, match=r"key of torch.nn.MultiheadAttention as \(\.\.\., n, kdim\) with kdim = 16, got key \(2, 3\)"
    ):
        ours(normal(2, WIDTH), normal(2, 3), normal(2, WIDTH))
    with pytest.raises(InputError, match="give all three a batch, or none"):
        ours(normal(2, Q, WIDTH), normal(Q, WIDTH), normal(Q, WIDTH))


def test_nested_tensors_are_refused():
    _, ours = pair()
    x = torch.nested.nested_tensor([normal(2, WIDTH), normal(3, WIDTH)])
    with pytest.raises(KindError, match="padded tensors in a replaced attention, got a nested tensor"):
        ours(x, x, x)


def test_padding_and_the_causal_hint_take_the_path_of_linear_memory():
    _, ours = pair(torch.float32)
    plans = []
    token = overt.attention.mechanism.observers.set(
        (lambda call, output: plans.append(overt.attention.kernels.plan.choose(call).path),)
    )
    x = normal(2, Q, WIDTH, dtype=torch.float32)
    later = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    for call in ({}, {"key_padding_mask": bars(2, Q)}, {"attn_mask": later, "is_causal": True}):
        ours(x, x, x, need_weights=False, **call)
    overt.attention.mechanism.observers.reset(token)
    assert plans == ["native"] * 3


# Models of torch's Transformer layers.


class Decoding(nn.Module):
    """Two decoder layers, with their call and masks."""

    def __init__(self, **options):
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 32, **options), 2)

    def forward(self, x, **masks):
        return self.decoder(x, x + 1, **masks)


def encoder(**options):
    nested = options["batch_first"] and not options["norm_first"]
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 32, **options), 2, enable_nested_tensor=nested)


PADDED = torch.arange(Q) >= torch.tensor([5, 3, 2])[:, None]
LATER = torch.ones(Q, Q, dtype=torch.bool).triu(1)
MODELS = {
    "encoder layer": (lambda **options: nn.TransformerEncoderLayer(WIDTH, HEADS, 32, **options), {}),
    "encoder layer, padded": (
        lambda **options: nn.TransformerEncoderLayer(WIDTH, HEADS, 32, **options),
        {"src_key_padding_mask": PADDED},
    ),
    "encoder, padded": (encoder, {"src_key_padding_mask": PADDED}),
    "encoder, causal": (encoder, {"mask": LATER, "is_causal": True}),
    "encoder, padded and causal": (encoder, {"mask": LATER, "src_key_padding_mask": PADDED}),
    "decoder": (Decoding, {"tgt_mask": LATER, "memory_key_padding_mask": PADDED, "tgt_key_padding_mask": PADDED}),
}


@pytest.mark.each_pair
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("batch_first", "norm_first"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("name", MODELS)
def test_torchs_transformer_layers_give_what_they_gave(name, batch_first, norm_first, training, dtype):
    make, masks = MODELS[name]
    model = make(dropout=0.0, batch_first=batch_first, norm_first=norm_first).to(dtype).train(training)
    x = normal(B, Q, WIDTH, dtype=dtype)
    x = x if batch_first else x.transpose(0, 1)
    results = []
    for each in (model, replace_multihead_attention(copy.deepcopy(model))):
        with torch.set_grad_enabled(training):  # without it torch takes its fast path, if it can
            output = each(x, **masks)
        results.append([output, *(torch.autograd.grad(output.square().sum(), each.parameters()) if training else [])])
    allowed = ~PADDED if batch_first else ~PADDED.T
    (wanted, *gradients), (result, *result_gradients) = results
    torch.testing.assert_close(result[allowed], wanted[allowed], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    for one, other in zip(result_gradients, gradients, strict=True):
        size = max(float(other.detach().abs().max()), 1)
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype] * size)


@pytest.mark.parametrize("training", [True, False])
def test_a_whole_transformer_gives_what_it_gave(training):
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 32, dropout=0.0, batch_first=True).double().train(training)
    source, target = normal(B, K, WIDTH), normal(B, Q, WIDTH, seed=2)
    masks = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(Q, dtype=torch.float64),
        "src_key_padding_mask": as_numbers(bars(B, K)),
        "memory_key_padding_mask": as_numbers(bars(B, K)),
        "tgt_is_causal": True,
    }
    with torch.set_grad_enabled(training):
        wanted = model(source, target, **masks)
        result = replace_multihead_attention(model)(source, target, **masks)
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["encoder layer", "encoder layer, padded", "encoder, padded"])
def test_torchs_fast_path_and_nested_tensors_are_off(name, monkeypatch):
    make, masks = MODELS[name]
    model = replace_multihead_attention(make(dropout=0.0, batch_first=True, norm_first=False).double().eval())
    for fast in ("_transformer_encoder_layer_fwd", "_nested_tensor_from_mask", "_native_multi_head_attention"):
        monkeypatch.delattr(torch, fast)
    calls = []
    token = overt.attention.mechanism.observers.set((lambda call, output: calls.append(call),))
    with torch.no_grad():
        model(normal(B, Q, WIDTH), **masks)
    overt.attention.mechanism.observers.reset(token)
    assert len(calls) == (2 if name == "encoder, padded" else 1)


def test_dropout_zeroes_weights_in_training_only():
    _, ours = pair(dropout=0.5)
    x = normal(B, Q, WIDTH)
    assert not torch.equal(ours(x, x, x, need_weights=False)[0], ours(x, x, x, need_weights=False)[0])
    ours.eval()
    assert torch.equal(ours(x, x, x, need_weights=False)[0], ours(x, x, x, need_weights=False)[0])


# What stays as it was.


def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2).double()


def test_the_model_its_parameters_and_their_names_are_the_same_objects():
    arguments = model()
    before = dict(arguments.named_parameters())
    assert replace_multihead_attention(arguments) is arguments
    after = dict(arguments.named_parameters())
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)


def test_an_optimizer_goes_on_with_the_replaced_model():
    x, losses = normal(B, Q, WIDTH), []
    for replaced in (False, True):
        arguments = model()
        optimizer = torch.optim.Adam(arguments.parameters(), lr=0.01)
        for step in range(4):
            if replaced and step == 2:
                replace_multihead_attention(arguments)
            loss = arguments(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


def test_state_dicts_go_both_ways():
    theirs, ours, x = model(), replace_multihead_attention(model()), normal(B, Q, WIDTH)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))
    fresh = model()
    fresh.load_state_dict(ours.state_dict())
    torch.testing.assert_close(fresh(x), theirs(x))


def test_copies_and_pickles_of_a_replaced_model_are_replaced():
    arguments, x = replace_multihead_attention(model()), normal(B, Q, WIDTH)
    saved = io.BytesIO()
    torch.save(arguments, saved)
    saved.seek(0)
    copies = copy.deepcopy(arguments), pickle.loads(pickle.dumps(arguments)), torch.load(saved, weights_only=False)
    for other in copies:
        assert all(type(layer.self_attn) is ReplacedAttention for layer in other.layers)
        torch.testing.assert_close(other(x), arguments(x))


def test_a_module_that_stands_in_two_places_is_still_one():
    attention = nn.MultiheadAttention(WIDTH, HEADS)
    arguments = replace_multihead_attention(nn.ModuleDict({"first": attention, "second": attention}))
    assert arguments["first"] is arguments["second"] is attention
    assert type(attention) is ReplacedAttention


def test_a_model_that_is_the_layer_itself_is_replaced():
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    assert replace_multihead_attention(layer) is layer
    assert type(layer) is ReplacedAttention


def test_replacing_twice_changes_nothing_more():
    arguments, x = replace_multihead_attention(model()), normal(B, Q, WIDTH)
    wanted = arguments(x)
    assert torch.equal(replace_multihead_attention(arguments)(x), wanted)


def test_hooks_stay_and_are_called():
    arguments, observed = model(), []
    arguments.layers[0].self_attn.register_forward_hook(lambda *call: observed.append("before"))
    replace_multihead_attention(arguments)
    arguments.layers[1].self_attn.register_forward_pre_hook(lambda *call: observed.append("after"))
    arguments(normal(B, Q, WIDTH))
    assert observed == ["before", "after"]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 5e-2), (torch.float16, 5e-3)])
def test_half_precision_moves_with_the_model(dtype, tolerance):
    theirs, ours = pair(torch.float32)
    x = normal(B, Q, WIDTH, dtype=torch.float32)
    wanted, weights = theirs(x, x, x)
    result, result_weights = ours.to(dtype)(*(x.to(dtype),) * 3)
    assert (result.dtype, result_weights.dtype) == (dtype, dtype)
    torch.testing.assert_close(result.float(), wanted, rtol=0, atol=tolerance * float(wanted.detach().abs().max()))
    torch.testing.assert_close(result_weights.float(), weights, rtol=0, atol=tolerance)


def test_parameters_given_at_the_call_are_used():
    arguments, x = replace_multihead_attention(model()), normal(B, Q, WIDTH)
    doubled = {name: 2 * parameter for name, parameter in arguments.named_parameters()}
    wanted = copy.deepcopy(arguments)
    wanted.load_state_dict(doubled)
    torch.testing.assert_close(functional_call(arguments, doubled, x), wanted(x))


def test_a_replica_as_data_parallel_makes_it_computes_with_its_own_parameters():
    _, ours = pair()
    replica, x = ours._replicate_for_data_parallel(), normal(B, Q, WIDTH)
    for name, parameter in ours._parameters.items():
        setattr(replica, name, parameter)  # as torch.nn.parallel.replicate sets each device's copy
    torch.testing.assert_close(replica(x, x, x), ours(x, x, x))


@pytest.mark.slow
def test_a_compiled_model_gives_what_the_model_gives():
    arguments, x = replace_multihead_attention(model()), normal(B, Q, WIDTH)
    masks = {"src_key_padding_mask": as_numbers(PADDED)}
    compiled = torch.compile(arguments, fullgraph=True)
    torch.testing.assert_close(compiled(x, **masks), arguments(x, **masks))


def test_a_subclass_stays_as_it_is_and_a_warning_names_it():
    class Custom(nn.MultiheadAttention):
        def forward(self, x):
            return x

    arguments = nn.ModuleDict({"own": Custom(WIDTH, HEADS), "plain": nn.MultiheadAttention(WIDTH, HEADS)})
    with pytest.warns(
        UserWarning, match=r"replace_multihead_attention does not replace own \(Custom\): a subclass may compute something else"
    ):
        replace_multihead_attention(arguments)
    assert type(arguments["own"]) is Custom
    assert type(arguments["plain"]) is ReplacedAttention


def test_a_model_with_nothing_to_replace_is_refused():
    with pytest.raises(InputError, match="a model that contains torch.nn.MultiheadAttention, got Linear without any"):
        replace_multihead_attention(nn.Linear(2, 2))
    with pytest.raises(InputError, match="layers of overt need no replacing"):
        replace_multihead_attention(MultiHeadAttention(WIDTH, HEADS))
    with pytest.raises(KindError, match="a torch.nn.Module in replace_multihead_attention, got str"):
        replace_multihead_attention("model")
