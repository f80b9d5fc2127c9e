"""MultiHeadAttention: the formula, its options, what it refuses."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from overt.attention.masks import Keys, from_padding
from overt.errors import InputError, KindError
from overt.layers import MultiHeadAttention, Prepared

WIDTH, HEADS, B, Q, K = 12, 4, 3, 5, 7


def layer(width=WIDTH, heads=HEADS, **options):
    """In float64, with biases that are not zero."""
    torch.manual_seed(0)
    made = MultiHeadAttention(width, heads, **options).double()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return made


def normal(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(attention, query, key, value, allowed=None, bias=0.0):
    """One sequence, one head at a time, as the paper writes it; returns the output and each head's weights."""
    heads, weights, D = [], [], attention.head_width
    for head in range(attention.heads):
        group = head // (attention.heads // attention.kv_heads)
        per_query, shared = slice(head * D, head * D + D), slice(group * D, group * D + D)
        q = query @ attention.query.weight[per_query].T + attention.query.bias[per_query]
        k = key @ attention.key.weight[shared].T + attention.key.bias[shared]
        v = value @ attention.value.weight[shared].T + attention.value.bias[shared]
        scores = q @ k.T / D**0.5 + bias
        scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        weights.append(scores.softmax(-1))
        heads.append(weights[-1] @ v)
    return torch.cat(heads, dim=-1) @ attention.output.weight.T + attention.output.bias, torch.stack(weights)


def close(result, wanted):
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"kv_heads": 2}, {"kv_heads": 1}, {"head_width": 5}, {"head_width": 2, "kv_heads": 2}], ids=str
)
def test_heads_attend_side_by_side_and_the_output_joins_them(options):
    attention = layer(key_width=6, value_width=9, **options)
    query, key, value = normal(Q, WIDTH), normal(K, 6, seed=2), normal(K, 9, seed=3)
    output, weights = by_hand(attention, query, key, value)
    close(attention(query, key, value), output)
    close(attention.weights(query, key, value), weights)
    batch = [x.expand(B, -1, -1) for x in (query, key, value)]
    close(attention(*batch), output.expand(B, -1, -1))
    close(attention.weights(*batch), weights.expand(B, -1, -1, -1))


def test_without_a_key_the_query_asks_itself_and_without_a_value_the_key_is_it():
    attention, x, y = layer(), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    close(attention(x), attention(x, x, x))
    close(attention(x, y), attention(x, y, y))


def test_the_values_width_is_the_keys_unless_given():
    attention = layer(key_width=6)
    assert (attention.key_width, attention.value_width) == (6, 6)
    assert attention(normal(B, Q, WIDTH), normal(B, K, 6)).shape == (B, Q, WIDTH)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_any_number_of_leading_dimensions(leading, kv_heads):
    attention, x = layer(kv_heads=kv_heads, causal=True), normal(*leading, Q, WIDTH)
    output, weights = attention(x), attention.weights(x)
    assert output.shape == (*leading, Q, WIDTH)
    assert weights.shape == (*leading, HEADS, Q, Q)
    one = (0,) * len(leading)
    wanted, wanted_weights = by_hand(attention, *(x[one],) * 3, allowed=torch.ones(Q, Q).tril().bool())
    close(output[one], wanted)
    close(weights[one], wanted_weights)


def test_one_sequence_of_keys_serves_a_batch_of_queries():
    attention, queries, key = layer(kv_heads=2), normal(B, Q, WIDTH), normal(K, WIDTH, seed=2)
    close(attention(queries, key), attention(queries, key.expand(B, -1, -1)))


def test_steps_are_those_of_each_head_before_the_output_projection():
    attention, x = layer(causal=True), normal(B, Q, WIDTH)
    steps = attention.steps(x)
    joined = steps.output.transpose(1, 2).flatten(2)
    close(functional.linear(joined, attention.output.weight, attention.output.bias), attention(x))
    assert torch.equal(steps.weights, attention.weights(x))
    assert (steps.masked[..., 0, 1:] == -torch.inf).all()
    assert [tuple(each.shape) for each in attention.steps(x[0])] == [(HEADS, Q, Q)] * 3 + [(HEADS, Q, WIDTH // HEADS)]


def test_without_biases_there_are_none():
    assert not any(name.endswith("bias") for name, _ in layer(bias=False).named_parameters())


# Masks and biases.


def test_causal_and_window_are_aligned_at_the_end():
    query, key = normal(Q, WIDTH), normal(K, WIDTH, seed=2)
    distance = torch.arange(K) - (torch.arange(Q)[:, None] + K - Q)
    for options, allowed in (
        ({"causal": True}, distance <= 0),
        ({"window": 1}, distance.abs() <= 1),
        ({"window": (2, 0)}, (distance <= 0) & (distance >= -2)),
        ({"window": 2, "causal": True}, (distance <= 0) & (distance >= -2)),
    ):
        attention = layer(**options)
        close(attention(query, key), by_hand(attention, query, key, key, allowed)[0])


@pytest.mark.parametrize("shape", [(), (K,), (Q, K), (1, HEADS, Q, K), (B, 1, Q, K), (B, HEADS, Q, K), (B, 1, 1, K)])
def test_a_mask_is_true_where_a_query_may_attend_and_a_bias_is_added(shape):
    attention, query, key = layer(), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(4)) < 0.7
    mask = mask | (torch.arange(K) == 0) if shape else mask | True
    bias = normal(*shape, seed=5)
    weights = attention.weights(query, key, mask=mask, bias=bias)
    full, added = (x.expand(B, HEADS, Q, K) for x in (mask, bias))
    for b in range(B):
        for head in range(HEADS):
            wanted = by_hand(attention, query[b], key[b], key[b], full[b, head], added[b, head])[1][head]
            close(weights[b, head], wanted)


def test_a_mask_of_three_dimensions_goes_with_the_heads_of_one_sequence():
    attention, x = layer(), normal(Q, WIDTH)
    mask = torch.ones(HEADS, Q, Q, dtype=torch.bool).tril()
    close(attention(x, mask=mask), layer(causal=True)(x))


def test_a_query_that_may_attend_to_nothing_gets_the_outputs_bias():
    attention, x = layer(), normal(B, Q, WIDTH)
    mask = torch.ones(Q, Q, dtype=torch.bool)
    mask[2] = False
    assert torch.equal(attention(x, mask=mask)[:, 2], attention.output.bias.expand(B, WIDTH))
    assert (attention.weights(x, mask=mask)[:, :, 2] == 0).all()


@pytest.mark.parametrize("dimensions", ["(K,)", "(B, K)", "(B, 1, 1, K)", "(B, H, 1, K)", "with another", "lengths"])
def test_what_padding_holds_reaches_no_output_and_no_gradient(dimensions):
    per_query = torch.arange(Q) < torch.tensor([5, 2, 3])[:, None]
    options = {
        "(K,)": {"mask": per_query[1]},
        "(B, K)": {"mask": Keys(per_query)},
        "(B, 1, 1, K)": {"mask": per_query[:, None, None]},
        "(B, H, 1, K)": {"mask": per_query[:, None, None].expand(B, HEADS, 1, Q)},
        "with another": {"mask": overt.Causal() & (per_query[:, None, None] & Keys(per_query))},
        "lengths": {"lengths": torch.tensor([5, 2, 3])},
    }[dimensions]
    per_query = per_query[1].expand(B, Q) if dimensions == "(K,)" else per_query
    results = []
    for filling in (0.0, torch.nan, torch.inf):
        attention, x = layer(), normal(B, Q, WIDTH).masked_fill(~per_query[..., None], filling).requires_grad_()
        output = attention(x, **options)[per_query]
        results.append([output, *torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])])
    for other in results[1:]:
        for result, wanted in zip(other, results[0], strict=True):
            close(result, wanted)


def test_padding_of_another_sequence_reaches_no_output_and_no_gradient():
    per_query = torch.arange(K) < torch.tensor([7, 0, 3])[:, None]
    results = []
    for filling in (0.0, torch.nan):
        attention, query = layer(key_width=6), normal(B, Q, WIDTH)
        key = normal(B, K, 6, seed=2).masked_fill(~per_query[..., None], filling)
        output = attention(query, key, mask=Keys(per_query))
        results.append([output, *torch.autograd.grad(output.square().sum(), list(attention.parameters()))])
    for result, wanted in zip(*results, strict=True):
        close(result, wanted)


def test_a_padded_place_that_asks_keeps_its_numbers():
    attention, x = layer(), normal(B, Q, WIDTH)
    per_query = torch.arange(Q) < torch.tensor([5, 2, 3])[:, None]
    wanted = by_hand(attention, x[1], x[1], x[1], per_query[1].expand(Q, Q))[0]
    close(attention(x, mask=Keys(per_query))[1], wanted)


def test_lengths_give_each_sequence_what_it_gets_alone_and_zeros_after_its_end():
    attention, x = layer(causal=True, positions="rotary", head_width=4, extra_key=True), normal(B, Q, WIDTH)
    lengths = torch.tensor([5, 2, 0])
    output, weights = attention(x, lengths=lengths), attention.weights(x, lengths=lengths)
    for b, length in enumerate([5, 2, 0]):
        close(output[b, :length], attention(x[b, :length]))
        assert (output[b, length:] == 0).all()
        close(weights[b, :, :length, :length], attention.weights(x[b, :length])[..., :length])
        assert (weights[b, :, length:] == 0).all()


def test_lengths_of_another_sequence_exclude_its_padding():
    attention, query, key = layer(), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    output = attention(query, key, lengths=torch.tensor([7, 2, 5]))
    close(output[1], attention(query[1], key[1, :2]))


# Extra keys.


@pytest.mark.parametrize("options", [{"extra_key": True}, {"zero_key": True}, {"extra_key": True, "zero_key": True}], ids=str)
def test_extra_keys_come_last_are_always_seen_and_do_not_move_the_causal_mask(options):
    attention, query, key = layer(causal=True, kv_heads=2, **options), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    weights = attention.weights(query, key)
    count = len(options)
    assert weights.shape == (B, HEADS, Q, K + count)
    allowed = torch.arange(K) <= torch.arange(Q)[:, None] + K - Q
    assert torch.equal(weights[0, 0] > 0, torch.cat([allowed, torch.ones(Q, count, dtype=torch.bool)], dim=1))
    close(weights.sum(-1), torch.ones(B, HEADS, Q, dtype=torch.float64))


def test_extra_keys_are_the_learned_vector_of_each_head_and_zeros():
    attention, x = layer(extra_key=True, zero_key=True), normal(Q, WIDTH)
    steps = attention.steps(x)
    queries = attention.query(x).reshape(Q, HEADS, -1)
    close(steps.scores[..., Q], torch.einsum("qhd,hd->hq", queries, attention.extra_key.reshape(HEADS, -1)) / 3**0.5)
    assert (steps.scores[..., Q + 1] == 0).all()
    values = attention.value(x).reshape(Q, HEADS, -1).transpose(0, 1)
    extra = attention.extra_value.reshape(HEADS, 1, -1)
    close(steps.output, steps.weights[..., :Q] @ values + steps.weights[..., Q : Q + 1] * extra)


@pytest.mark.parametrize(
    "bias",
    [
        normal(Q, K),
        normal(B, HEADS, Q, K),
        normal(K),
        normal(Q, 1),
        normal(B, 1, 1, 1),
        overt.ALiBi(torch.ones(HEADS).double()),
    ],
)
def test_a_bias_adds_nothing_to_extra_keys(bias):
    attention, query, key = layer(extra_key=True, zero_key=True), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    plain, steps = attention.steps(query, key), attention.steps(query, key, bias=bias)
    added = bias if isinstance(bias, torch.Tensor) else bias.bind(2, Q, K).block(torch.arange(Q), torch.arange(K))
    close(steps.masked[..., :K], (plain.scores[..., :K] + added).expand(B, HEADS, Q, K))
    close(steps.masked[..., K:], plain.scores[..., K:])


@pytest.mark.parametrize(
    "mask",
    [torch.rand(Q, K) < 0.5, Keys(torch.rand(B, K) < 0.5), overt.Window(1, 0), overt.Causal(offset=1) | overt.Lengths(2)],
)
def test_a_mask_bars_no_extra_key_and_keeps_its_meaning_for_the_others(mask):
    attention, query, key = layer(extra_key=True), normal(B, Q, WIDTH), normal(B, K, WIDTH, seed=2)
    visible = attention.weights(query, key, mask=mask) > 0
    assert torch.equal(visible[..., :K], layer().weights(query, key, mask=mask) > 0)
    assert visible[..., K].all()


def test_a_sequence_without_keys_leaves_the_extra_one():
    attention, query = layer(extra_key=True, causal=True), normal(B, Q, WIDTH)
    mask, bias = torch.ones(Q, 0, dtype=torch.bool), normal(Q, 0)
    wanted = attention.output(attention.extra_value.expand(B, Q, WIDTH))
    close(attention(query, normal(B, 0, WIDTH), mask=mask, bias=bias), wanted)


def test_biases_of_the_layer_and_of_the_call_add_up():
    attention, x, bias = layer(positions="alibi", extra_key=True), normal(B, Q, WIDTH), normal(B, 1, Q, Q)
    slopes = attention.positions.slopes[:, None, None]
    alibi = -slopes * (torch.arange(Q) - torch.arange(Q)[:, None]).abs()
    close(attention.weights(x, bias=bias), layer(extra_key=True).weights(x, bias=bias + alibi))


def test_a_bias_beside_the_layers_own_is_checked_as_any_is():
    attention, x = layer(positions="alibi"), normal(B, Q, WIDTH)
    with pytest.raises(
        InputError, match=r"bias to broadcast, aligned right, against the weights .* = \(.*5, 5\), got bias \(4, 5\)"
    ):
        attention(x, bias=normal(4, 5))
    with pytest.raises(KindError, match=r"got a torch.bool tensor\. Fix: pass a bool tensor as mask="):
        attention(x, bias=torch.ones(5, 5, dtype=torch.bool))


# Scores and normalizers.


def test_heads_may_have_another_score_and_normalizer_whose_tensors_the_layer_learns():
    weight = nn.Parameter(torch.ones(3))
    attention, x = layer(score=overt.Additive(weight), normalizer=overt.Softmax(sink=torch.zeros(HEADS))), normal(B, Q, WIDTH)
    names = [name for name, _ in attention.named_parameters()]
    assert "score.weight" in names
    assert (attention.weights(x).sum(-1) < 1).all()
    q, k = (projection(x[0]).reshape(Q, HEADS, 3).transpose(0, 1) for projection in (attention.query, attention.key))
    close(attention.steps(x[0]).scores, torch.tanh(q[:, :, None] + k[:, None]).sum(-1))


def test_dropout_zeroes_weights_in_training_only():
    attention, x = layer(dropout=0.5), normal(B, Q, WIDTH)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    close(attention(x), layer()(x))


# Prepared keys.


@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 2, 0])])
def test_prepared_keys_give_what_the_call_gives_a_step_at_a_time_too(lengths):
    attention = layer(key_width=6, value_width=9, kv_heads=2, extra_key=True)
    query, key, value = normal(B, Q, WIDTH), normal(B, K, 6, seed=2), normal(B, K, 9, seed=3)
    prepared = attention.prepare(key, value, lengths=lengths)
    assert isinstance(prepared, Prepared)
    wanted = attention(query, key, value, lengths=lengths)
    close(attention(query, prepared), wanted)
    close(torch.cat([attention(query[:, i : i + 1], prepared) for i in range(Q)], dim=1), wanted)
    close(attention.weights(query, prepared), attention.weights(query, key, value, lengths=lengths))


def test_prepared_keys_of_one_sequence_serve_one_query_and_a_batch():
    attention, query, key = layer(kv_heads=2), normal(B, Q, WIDTH), normal(K, WIDTH, seed=2)
    prepared = attention.prepare(key)
    close(attention(query[0], prepared), attention(query[0], key))
    close(attention(query, prepared), attention(query, key.expand(B, -1, -1)))


def test_prepared_keys_are_projected_once():
    attention, visible = layer(), []
    prepared = attention.prepare(normal(B, K, WIDTH))
    attention.key.register_forward_hook(lambda *call: visible.append(call))
    attention.value.register_forward_hook(lambda *call: visible.append(call))
    attention(normal(B, Q, WIDTH), prepared)
    assert not visible


@pytest.mark.parametrize("options", [{"positions": "alibi"}, {"causal": True}, {"window": 2}])
def test_a_layer_that_asks_where_queries_stand_prepares_no_keys(options):
    with pytest.raises(
        InputError, match="since the queries are not in the sequence of prepared keys, got a layer with one of them"
    ):
        layer(**options).prepare(normal(B, K, WIDTH))


def test_prepared_keys_bring_all_that_belongs_to_them():
    attention, x = layer(), normal(B, K, WIDTH)
    with pytest.raises(
        InputError, match=r"they have their values and lengths, and need no cache, got value, lengths beside them\. Fix:"
    ):
        attention(x, attention.prepare(x), x, lengths=torch.tensor([1, 1, 1]))


# What is refused.


def test_torchs_keywords_are_refused_with_their_fix():
    attention, x = layer(), normal(B, Q, WIDTH)
    padding, pairs = torch.zeros(B, Q, dtype=torch.bool), torch.ones(Q, Q, dtype=torch.bool).triu(1)
    meaning = r"in which True means that a query may attend, got torch's {0}=, in which True means that it may not\. Fix: "
    for method in (attention, attention.weights, attention.steps):
        with pytest.raises(InputError, match=meaning.format("key_padding_mask") + r"pass mask=overt.masks.from_padding\(key_"):
            method(x, key_padding_mask=padding)
        with pytest.raises(
            InputError, match=meaning.format("attn_mask") + r"pass mask=~attn_mask if it is bool, or bias=attn_"
        ):
            method(x, attn_mask=pairs)
    theirs = attention.to_torch()
    close(attention(x, mask=from_padding(padding) & ~pairs), theirs(x, x, x, padding, attn_mask=pairs)[0])


def test_an_unknown_keyword_is_pythons_error():
    attention, x = layer(), normal(B, Q, WIDTH)
    for method in (attention, attention.weights, attention.steps):
        with pytest.raises(TypeError, match="MultiHeadAttention got an unexpected keyword argument 'needed'"):
            method(x, needed=False)


@pytest.mark.parametrize("name", ["mask", "bias"])
def test_three_dimensions_of_a_mask_or_bias_are_ambiguous_in_a_batch(name):
    attention, x = layer(), normal(HEADS, Q, WIDTH)
    inputs = torch.ones(HEADS, Q, Q, dtype=torch.bool).tril() if name == "mask" else normal(HEADS, Q, Q)
    message = rf"a {name} of MultiHeadAttention as \(Q, K\) or \(B, H, Q, K\).* got a {name} \(4, 5, 5\)\. Fix: say which: {name}\[:, None\]"
    for key in (None, attention.prepare(x)):
        with pytest.raises(InputError, match=message):
            attention(x, key, **{name: inputs})
    for fixed in (inputs[:, None], inputs[None]):
        assert attention(x, **{name: fixed}).shape == x.shape


def test_scores_and_normalizers_go_by_the_names_that_attend_knows():
    x = normal(2, 5, 12).float()
    named, made = (
        MultiHeadAttention(12, 3, score=score, normalizer=normalizer)
        for score, normalizer in (("cosine", "sparsemax"), (overt.Cosine(), overt.Sparsemax()))
    )
    made.load_state_dict(named.state_dict())
    assert torch.equal(named(x), made(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"heads": 5},
            r"heads that divide the width evenly, got width=12, heads=5\. Fix: choose .* or say how wide each is: head_width=2",
        ),
        ({"kv_heads": 3}, r"kv_heads to divide heads, .*, got heads=4, kv_heads=3\. Fix: choose one of 1, 2, 4"),
        ({"kv_heads": 0}, r"kv_heads of MultiHeadAttention of at least 1, got 0\. Fix: pass a whole number"),
        ({"head_width": 0}, r"head_width of MultiHeadAttention of at least 1, got 0"),
        (
            {"score": "dott"},
            r"score to be one of 'dot', 'cosine', got 'dott'\. Fix: write 'dot'",
        ),
        (
            {"normalizer": overt.Softmax},
            r"normalizer to be an object, got the class Softmax\. Fix: make one: Softmax\(\)",
        ),
        ({"positions": "learned"}, r"learned., which need a maximum"),
        ({"dropout": 1.5}, r"dropout to be a probability, got 1.5"),
        ({"window": -1}, r"window as a number of positions to each side"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(options, message):
    with pytest.raises((InputError, KindError), match=message):
        layer(**options)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (
            (11, 6, 9),
            r"query of MultiHeadAttention as \(\.\.\., n, width\) with width = 12, got query \(3, 5, 11\).*with width=11",
        ),
        ((12, 5, 9), r"key of MultiHeadAttention as \(\.\.\., n, key_width\) with key_width = 6, got key \(3, 7, 5\)"),
        ((12, 6, 8), r"value of MultiHeadAttention as \(\.\.\., n, value_width\) with value_width = 9, got value \(3, 7, 8\)"),
    ],
)
def test_inputs_of_another_width_are_refused(widths, message):
    attention = layer(key_width=6, value_width=9)
    with pytest.raises(InputError, match=message):
        attention(*(normal(B, n, width) for n, width in zip((Q, K, K), widths, strict=True)))


def test_tokens_that_are_not_embedded_are_refused():
    with pytest.raises(KindError, match="query of .* as floating-point numbers, got a torch.int64 tensor"):
        layer()(torch.ones(B, Q, WIDTH, dtype=torch.long))


# As a module.


def test_it_says_what_it_was_built_with():
    text = repr(MultiHeadAttention(512, 8, kv_heads=2, causal=True, extra_key=True, positions="rotary"))
    assert "512, heads=8, head_width=64, kv_heads=2, causal=True, extra_key=True" in text
    assert "(positions): Rotary(64" in text


def test_it_can_be_copied_and_pickled():
    attention, x = layer(positions="relative", causal=True, zero_key=True), normal(B, Q, WIDTH)
    for other in (copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))):
        assert torch.equal(other(x), attention(x))


def test_its_gradients_are_those_of_finite_differences():
    attention = layer(kv_heads=2, causal=True, positions="rotary", head_width=4, extra_key=True, zero_key=True)
    x = normal(2, 3, WIDTH).requires_grad_()
    names, parameters = zip(*attention.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(attention, dict(zip(names, parameters, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *parameters), fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"positions": "rotary", "causal": True, "head_width": 4, "kv_heads": 2}])
def test_compiled_it_gives_what_it_gives(options):
    attention, x = layer(**options), normal(B, Q, WIDTH)
    torch.testing.assert_close(torch.compile(attention, fullgraph=True)(x), attention(x))
