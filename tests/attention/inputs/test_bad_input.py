"""Bad input to the mechanism: the rule, what came with all shapes, and the fix."""

import pytest
import torch

import overt
from overt.errors import InputError, KindError

X = torch.randn(2, 4, 5, 8)


def message(kind, *tensors, **options):
    with pytest.raises(kind) as error:
        overt.attend(*tensors, **options)
    assert ". Fix: " in str(error.value)
    return str(error.value)


def test_integer_tensors_are_refused():
    text = message(KindError, X, torch.ones(2, 4, 5, 8, dtype=torch.long), X)
    assert text.startswith("Expected query, key and value to hold floating-point numbers, got key of dtype torch.int64.")


def test_what_is_no_tensor_is_refused():
    assert "got value of type list" in message(KindError, X, X, [[1.0]])


def test_vectors_without_a_length_are_refused():
    assert "end in two dimensions, (length, features), got query (8,), key (2, 4, 5, 8)" in message(
        InputError, X[0, 0, 0], X, X
    )


def test_features_that_differ_are_refused_with_all_shapes():
    text = message(InputError, X, X[..., :7], X)
    assert "query and key to have the same last dimension D, since overt.Dot compares them feature by feature" in text
    assert "query (2, 4, 5, 8), key (2, 4, 5, 7)" in text


def test_keys_without_values_are_refused():
    assert (
        "key and value to have the same length K (dimension -2), got query (2, 4, 5, 8), key (2, 4, 5, 8), value (2, 4, 3, 8)"
        in message(InputError, X, X, X[..., :3, :])
    )


def test_mixed_dtypes_are_refused():
    assert "one dtype, got query torch.float32, key torch.float64, value torch.float32" in message(KindError, X, X.double(), X)


def test_mixed_devices_are_refused():
    assert "one device, got query cpu, key meta, value cpu" in message(KindError, X, X.to("meta"), X)


@pytest.mark.parametrize(
    ("query", "key"),
    [((4, 5, 8), (2, 5, 8)), ((2, 4, 5, 8), (3, 4, 5, 8)), ((2, 2, 4, 5, 8), (2, 3, 4, 5, 8)), ((3, 5, 8), (2, 1, 5, 8))],
)
def test_leading_dimensions_that_do_not_fit_are_refused(query, key):
    if len(query) == 3 and len(key) == 4:
        assert overt.attend(torch.ones(query), torch.ones(key), torch.ones(key)).shape == (2, 3, 5, 8)
        return
    text = message(InputError, torch.ones(query), torch.ones(key), torch.ones(key))
    assert f"leading dimensions to be equal or 1, got query {query}, key {key}" in text


def test_heads_that_do_not_divide_are_refused():
    text = message(InputError, torch.ones(1, 6, 5, 8), torch.ones(1, 4, 5, 8), torch.ones(1, 4, 5, 8))
    assert text.startswith(
        "Expected the number of query heads to be a multiple of the number of key and value heads (dimension -3)"
    )


def heads(count, length=5):
    return torch.randn(2, count, length, 8)


ENTRANCES = {
    "attend": overt.attend,
    "steps": overt.steps,
    "plan": overt.plan,
    "summarize": lambda query, key, value: overt.summarize(query, key, value=value),
    "blocked": lambda *inputs: overt.attend(*inputs, normalizer=overt.normalizers.Sigmoid()),
    "additive": lambda *inputs: overt.attend(*inputs, score=overt.Additive(torch.ones(8))),
    "half": lambda *inputs: overt.attend(*(tensor.half() for tensor in inputs)),
    "meta": lambda *inputs: overt.attend(*(tensor.to("meta") for tensor in inputs)),
    "compiled": lambda *inputs: torch.compile(overt.attend, backend="eager")(*inputs),
    "vmap": lambda *inputs: torch.vmap(overt.attend)(*(tensor[None] for tensor in inputs)),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("query", "key", "value"), [(8, 4, 8), (8, 8, 4), (8, 4, 2), (1, 4, 8)])
def test_keys_and_values_of_different_numbers_of_heads_are_refused(entrance, query, key, value):
    with pytest.raises(Exception) as caught:  # torch.compile wraps what is raised while it traces
        ENTRANCES[entrance](heads(query), heads(key), heads(value))
    assert "key and value to have the same number of heads (dimension -3), or one of them a single head, shared by all" in str(
        caught.value
    )
    assert f"key (2, {key}, 5, 8), value (2, {value}, 5, 8). Fix: pass one value head for each key head" in str(caught.value)


@pytest.mark.parametrize(
    ("query", "key", "value"), [(8, 1, 8), (8, 8, 1), (8, 1, 4), (8, 4, 1), (8, 1, 1), (1, 4, 4), (8, 2, 2)]
)
def test_a_single_head_is_shared_by_all(query, key, value):
    query, key, value = heads(query), heads(key), heads(value)
    whole = max(query.shape[1], key.shape[1], value.shape[1])
    repeated = [tensor.repeat_interleave(whole // tensor.shape[1], dim=1) for tensor in (query, key, value)]
    torch.testing.assert_close(overt.attend(query, key, value), overt.attend(*repeated))


def test_a_float_mask_points_to_bias():
    text = message(KindError, X, X, X, mask=torch.zeros(5, 5))
    assert (
        "a bool mask, True where a query may attend, got a torch.float32 tensor. Fix: pass what is added to the scores as bias="
        in text
    )


def test_an_integer_mask_is_refused():
    assert "got a torch.int64 tensor. Fix: convert it: mask.bool()" in message(
        KindError, X, X, X, mask=torch.ones(5, 5, dtype=torch.long)
    )


@pytest.mark.parametrize("shape", [(5, 4), (3, 1, 5, 5), (2, 2, 4, 5, 5), (2, 5)])
def test_a_mask_of_the_wrong_shape_is_refused_with_all_shapes(shape):
    text = message(InputError, X, X, X, mask=torch.ones(shape, dtype=torch.bool))
    assert (
        f"mask to broadcast, aligned right, against the weights (..., Q, K) = (2, 4, 5, 5), got mask {shape}, query (2, 4, 5, 8)"
        in text
    )


def test_a_bias_of_the_wrong_kind_shape_or_device_is_refused():
    assert "pass a bool tensor as mask=" in message(KindError, X, X, X, bias=torch.ones(5, 5, dtype=torch.bool))
    assert "the bias to be a floating-point tensor" in message(KindError, X, X, X, bias=3)
    assert "bias to broadcast, aligned right, against" in message(InputError, X, X, X, bias=torch.ones(5, 4))
    assert "the bias to be on the query's device, got the bias on meta" in message(
        KindError, X, X, X, bias=torch.ones(5, 5, device="meta")
    )


def test_a_mask_on_another_device_is_refused():
    mask = torch.ones(5, 5, dtype=torch.bool, device="meta")
    assert "the mask to be on the query's device, got the mask on meta, query on cpu" in message(KindError, X, X, X, mask=mask)


@pytest.mark.parametrize(
    ("option", "piece", "name"),
    [
        ("mask", lambda device: overt.Lengths(torch.ones(2, dtype=torch.int64, device=device)), "keys of overt.Lengths"),
        ("mask", lambda device: overt.Causal(offset=torch.ones(2, dtype=torch.int64, device=device)), "offset of overt.Causal"),
        ("mask", lambda device: overt.masks.Keys(torch.ones(5, dtype=torch.bool, device=device)), "visible of overt.Keys"),
        (
            "mask",
            lambda device: ~overt.Documents(torch.ones(5, dtype=torch.int64, device=device)),
            "key_ids of overt.Documents",
        ),
        ("normalizer", lambda device: overt.Softmax(sink=torch.ones(4, device=device)), "sink of overt.Softmax"),
        ("score", lambda device: overt.Bilinear(torch.eye(8, device=device)), "weight of overt.Bilinear"),
        ("score", lambda device: overt.Gaussian(torch.ones(4, 1, 1, device=device)), "bandwidth of overt.Gaussian"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_piece_with_a_tensor_on_another_device_is_refused(option, piece, name):
    overt.attend(X, X, X, **{option: piece("cpu")})
    text = message(KindError, X, X, X, **{option: piece("meta")})
    assert f"the {name} to be on the query's device, got the {name} on meta, query on cpu" in text


@pytest.mark.parametrize("dropout", [-0.1, 1.5, float("nan"), "half"])
def test_dropout_that_is_no_probability_is_refused(dropout):
    assert message(InputError, X, X, X, dropout=dropout).startswith(f"Expected dropout to be a probability, got {dropout!r}.")


def test_scores_and_normalizers_that_are_none_are_refused():
    assert "the score to be callable, (query, key) -> (..., Q, K), got 5 of type int" in message(KindError, X, X, X, score=5)
    assert "the score to be an object, got the class Cosine. Fix: make one: Cosine()" in message(
        KindError, X, X, X, score=overt.Cosine
    )
    assert "the normalizer to be callable, (scores, allowed) -> weights, got 3 of type int" in message(
        KindError, X, X, X, normalizer=3
    )


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("mask", overt.Causal, "the mask to be an object, got the class Causal. Fix: make one: Causal()."),
        ("mask", overt.Window, "the mask to be an object, got the class Window. Fix: make one: Window(…)."),
        ("bias", overt.ALiBi, "the bias to be an object, got the class ALiBi. Fix: make one: ALiBi(…)."),
        ("score", overt.Gaussian, "the score to be an object, got the class Gaussian. Fix: make one: Gaussian(…)."),
        ("normalizer", overt.Softmax, "the normalizer to be an object, got the class Softmax. Fix: make one: Softmax()."),
    ],
)
def test_a_class_is_refused_and_the_fix_makes_an_object(argument, value, expected):
    assert message(KindError, X, X, X, **{argument: value}) == f"Expected {expected}"
    with pytest.raises(KindError, match="to be an object"):
        overt.Causal() & overt.Window


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("additive", "write overt.Additive(weight), whose weight is yours; overt.layers learn one"),
        ("concat", "write overt.Additive(weight), whose weight is yours; overt.layers learn one"),
        ("general", "write overt.Bilinear(weight), whose weight is yours; overt.layers learn one"),
        ("gaussian", "write overt.Gaussian(bandwidth)"),
        ("dots", "write 'dot'"),
    ],
)
def test_a_score_that_layers_know_by_name_says_what_a_call_takes(name, fix):
    expected = f"Expected the score to be one of 'dot', 'cosine', got {name!r}. Fix: {fix}."
    assert message(InputError, X, X, X, score=name) == expected


def test_alibi_by_name_is_refused_with_the_bias_that_it_means():
    assert "got 'alibi' of type str. Fix: make one: overt.ALiBi(overt.biases.alibi_slopes(heads))." in message(
        KindError, X, X, X, bias="alibi"
    )
    assert "got 'relative' of type str. Fix: pass a tensor, or one of overt.biases." in message(
        KindError, X, X, X, bias="relative"
    )


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])
@pytest.mark.parametrize(
    "layer", [None, overt.layers.SelfAttention(8), overt.layers.MultiHeadAttention(8, 2)], ids=["attend", "self", "heads"]
)
def test_nested_tensors_are_refused_with_the_mask_that_takes_their_place(layer, layout):
    nested = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(2, 8)], layout=layout)
    expected = (
        "Expected dense tensors, got a nested tensor. Fix: concatenate the sequences and pass "
        "mask=overt.masks.from_cu_seqlens(offsets, total)."
    )
    with pytest.raises(KindError) as error:
        overt.attend(nested, nested, nested) if layer is None else layer(nested)
    assert str(error.value) == expected
    if layer is None:
        for inputs in ((torch.ones(3, 8), nested, nested), (torch.ones(3, 8), torch.ones(3, 8), nested)):
            assert message(KindError, *inputs) == expected


def test_a_jagged_tensor_is_its_values_under_the_mask_of_its_offsets():
    rows = [torch.randn(3, 8), torch.randn(2, 8)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    values = x.values()
    actual = overt.attend(values, values, values, mask=overt.masks.from_cu_seqlens(x.offsets(), len(values)))
    torch.testing.assert_close(actual, torch.cat([overt.attend(row, row, row) for row in rows]))


def test_pieces_whose_tensors_do_not_fit_are_refused():
    assert "one weight for each feature, (D,) or (H, D), in overt.Additive, got weight (3,)" in message(
        InputError, X, X, X, score=overt.Additive(torch.ones(3))
    )
    assert "a weight of shape (D_query, D_key) or (H, D_query, D_key) in overt.Bilinear" in message(
        InputError, X, X, X, score=overt.Bilinear(torch.ones(8, 7))
    )
    assert "got a torch.int64 tensor" in message(KindError, X, X, X, score=overt.Additive(torch.ones(8, dtype=torch.long)))
    with pytest.raises(
        InputError, match="the activation of overt.Additive to be one of tanh, sigmoid, relu, leaky_relu, got 'gelu'"
    ):
        overt.Additive(torch.ones(3), activation="gelu")
    with pytest.raises(InputError, match="the bandwidth of overt.Gaussian to be above 0, got 0"):
        overt.Gaussian(0)


def test_a_score_of_ones_own_with_the_wrong_shape_is_refused():
    assert "the score to return (..., Q, K)" in message(InputError, X, X, X, score=lambda q, k: q)


def test_a_normalizer_of_ones_own_with_the_wrong_shape_is_refused():
    assert "the normalizer to return weights of the scores' shape" in message(
        InputError, X, X, X, normalizer=lambda s, a: s.sum(-1)
    )


def test_a_mask_of_ones_own_that_gives_no_bool_is_refused():
    class Wrong:
        def block(self, rows, keys):
            return rows[:, None] - keys

    assert "block(rows, keys) of the mask to return a bool tensor, got a torch.int64 tensor" in message(
        KindError, X, X, X, mask=Wrong()
    )
