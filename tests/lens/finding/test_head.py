import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from overt.errors import InputError
from overt.lens import Head, record


class Plain(nn.Module):
    def forward(self, q, k, v, **options):
        return functional.scaled_dot_product_attention(q, k, v, **options)


def recorded(q, k=None, v=None, tokens=None, **options):
    model = Plain()
    with record(model) as recording:
        model(q, q if k is None else k, q if v is None else v, **options)
    recording.tokens = tokens
    return recording


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_hand(q, k):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def test_any_block_of_the_weights_can_be_asked_for():
    q, k = normal(2, 3, 5, 8), normal(2, 3, 6, 8, seed=1)
    head = recorded(q, k, k)[0, 2]
    whole = by_hand(q, k)[:, 2]
    for rows, keys, expected in [
        (None, None, whole),
        (3, None, whole[:, 3:4]),
        (-1, None, whole[:, 4:5]),
        (slice(1, 3), slice(0, 6, 2), whole[:, 1:3, ::2]),
        ([4, 0, 1], [5, 2], whole[:, [4, 0, 1]][..., [5, 2]]),
        ([], None, whole[:, :0]),
    ]:
        torch.testing.assert_close(head.weights(rows, keys), expected)


def test_rows_and_keys_that_are_not_there_are_refused():
    head = recorded(normal(1, 1, 5, 8))[0, 0]
    with pytest.raises(InputError, match="a row of this head, 0 to 4, got row 5"):
        head.weights(5)
    with pytest.raises(InputError, match="a key of this head, 0 to 4, got key -6"):
        head.weights(0, [-6])
    with pytest.raises(InputError, match="a row of this head, 0 to 4, got row 9"):
        head.steps(9)


def test_top_has_the_largest_weights_first():
    q = normal(2, 1, 6, 8)
    weights, keys = recorded(q)[0, 0].top(4, 3)
    order = by_hand(q, q)[:, 0, 4].sort(descending=True)
    torch.testing.assert_close(weights, order.values[:, :3])
    assert torch.equal(keys, order.indices[:, :3])
    assert recorded(q)[0, 0].top(0, 99).keys.shape == (2, 6)


def test_entropy_received_and_map_are_those_of_the_weights():
    q, k = normal(2, 3, 6, 8), normal(2, 3, 9, 8, seed=1)
    head, weights = recorded(q, k, k)[0, 1], by_hand(q, k)[:, 1]
    torch.testing.assert_close(head.entropy(), torch.special.entr(weights).sum(-1))
    torch.testing.assert_close(head.received(), weights.mean(-2))
    torch.testing.assert_close(head.map(3), weights.unflatten(-1, (3, 3)).unflatten(-3, (3, 2)).mean((-1, -3)))


@pytest.mark.parametrize(
    "inputs",
    [
        {"mask": overt.Lengths(torch.tensor([3, 6])), "bias": overt.ALiBi(torch.tensor([0.1, 0.2, 0.3, 0.4]))},
        {"bias": overt.RelativePositionBias(normal(4, 9)), "mask": overt.Causal()},
        {"bias": normal(2, 4, 6, 6), "mask": normal(1, 4, 6, 6, seed=3) > -1},
        {"score": overt.Additive(normal(4, 8)), "normalizer": overt.Softmax(temperature=torch.rand(4, 1, 1) + 0.5)},
    ],
    ids=["lengths and alibi", "causal and relative", "tensors", "parameters by head"],
)
@pytest.mark.parametrize("heads", [None, [3, 1]])
def test_one_head_is_that_head_of_the_whole_call(inputs, heads):
    class Custom(nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, **inputs)

    model, x = Custom(), normal(2, 4, 6, 8)
    with record(model, heads=heads) as recording:
        model(x)
    head, whole = recording[0, 1], overt.steps(x, x, x, **inputs)
    summary = overt.summarize(x, x, map_size=2, **inputs)
    torch.testing.assert_close(head.weights(), whole.weights[:, 1])
    torch.testing.assert_close(head.steps(4).masked, whole.masked[:, 1, 4:5])
    torch.testing.assert_close(head.entropy(), summary.entropy[:, 1])
    torch.testing.assert_close(head.received(padding=True), summary.received[:, 1])
    torch.testing.assert_close(head.map(2), summary.map_mean[:, 1])
    torch.testing.assert_close(head.output, whole.output[:, 1])
    assert recording.verify().holds


def test_steps_of_one_query_lead_to_the_models_own_output():
    q, k, v = normal(1, 2, 5, 8), normal(1, 2, 7, 8, seed=1), normal(1, 2, 7, 3, seed=2)
    head = recorded(q, k, v)[0, 1]
    steps = head.steps(3)
    assert [tuple(part.shape) for part in steps] == [(1, 1, 7), (1, 1, 7), (1, 1, 7), (1, 1, 3)]
    torch.testing.assert_close(steps.scores[0, 0], k[0, 1] @ q[0, 1, 3] / 8**0.5)
    torch.testing.assert_close(steps.output[0, 0], head.output[0, 3])


def test_query_key_and_value_are_the_models_own():
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 8, seed=2)
    head = recorded(q, k, v, enable_gqa=True)[0, 3]
    assert torch.equal(head.query, q[:, 3])
    assert torch.equal(head.key, k[:, 1])
    assert torch.equal(head.value, v[:, 1])


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 4, 5, 8)], ids=["no batch", "no heads", "two batch dimensions"])
def test_other_numbers_of_dimensions_give_one_batch(shape):
    q = normal(*shape)
    head = recorded(q)[0, 0]
    weights = by_hand(q, q)
    expected = weights[..., 0, :, :] if len(shape) > 3 else weights
    torch.testing.assert_close(head.weights(), expected.reshape(-1, 5, 5))
    assert head.entropy().shape == expected.reshape(-1, 5, 5).shape[:2]


def test_a_long_head_is_summarised_without_all_its_weights(monkeypatch):
    head = recorded(normal(1, 1, 600, 8))[0, 0]
    monkeypatch.setattr(Head, "weights", lambda *_: pytest.fail("all weights were asked for"))
    monkeypatch.setattr("overt.attention.kernels.blocked.BLOCK", 6000)
    assert head.entropy().shape == (1, 600)
    assert head.map(4).shape == (1, 4, 4)


def positions(length, step):
    """Queries and keys by which every place attends to the one `step` away: one-hot, and shifted."""
    hot = 40 * torch.eye(length)
    return hot[None, None], hot.roll(-step, 0)[None, None]


@pytest.mark.parametrize(("step", "name"), [(-1, "previous token"), (1, "next token"), (0, "same token")])
def test_heads_that_follow_a_place_are_named_for_it(step, name):
    q, k = positions(6, -step)
    (role,) = recorded(q, k, k).roles()
    assert (role.role, role.layer, role.number, role.head) == (name, "Plain", 0, 0)
    assert role.score > 0.99


def test_a_head_that_looks_at_the_first_token_is_named_for_it():
    q = torch.ones(1, 1, 6, 4)
    k = torch.zeros(1, 1, 6, 4)
    k[..., 0, :] = 10
    (role,) = recorded(q, k, k).roles()
    assert role.role == "first token"
    assert role.score > 0.99


def test_equal_weights_are_uniform_and_causal_ones_too():
    q = torch.zeros(1, 1, 6, 4)
    for options in ({}, {"is_causal": True}):
        (role,) = recorded(q, **options).roles()
        assert (role.role, round(role.score, 6)) == ("uniform", 1.0)


def test_same_words_and_separators_are_told_by_the_tokens():
    tokens = ["a", "b", ".", "a", "b", "."]
    hot = 40 * torch.eye(3)[[0, 1, 2, 0, 1, 2]][None, None]
    (role,) = recorded(hot, tokens=tokens).roles()
    assert role.role == "same token"
    assert role.score == pytest.approx(1)
    toward = 40 * torch.eye(3)[[2] * 6][None, None]
    (role,) = recorded(toward, hot, hot, tokens=tokens).roles()
    assert role.role == "separator"
    assert role.score == pytest.approx(1)


def test_a_head_that_follows_no_place_follows_content():
    order = torch.tensor([3, 5, 4, 1, 0, 2])
    hot = 40 * torch.eye(6)
    (role,) = recorded(hot[order][None, None], hot[None, None], hot[None, None]).roles()
    assert role.role == "content"
    assert role.score == pytest.approx(1 - max(role.scores[name] for name in role.scores if name != "uniform"))


def test_tokens_that_do_not_fit_are_refused():
    recording = recorded(normal(1, 1, 5, 8), tokens=["a", "b"])
    with pytest.raises(InputError, match=r"one token for each key.*got \[2\] tokens for 5 keys of Plain"):
        recording.roles()


def test_a_head_says_what_it_is():
    recording = recorded(normal(1, 2, 5, 8))
    assert repr(recording[0, 1]) == "<head 1 of Plain: 5 queries, 5 keys>"
    assert str(recording.roles()[1]).startswith("L0H1  Plain  ")


@pytest.mark.parametrize("row", [1, np.int64(1), torch.tensor(1)])
def test_a_row_may_be_a_number_of_numpy_or_torch(row):
    with record(attention := nn.MultiheadAttention(8, 2, batch_first=True)) as recording:
        attention(*[torch.randn(1, 3, 8)] * 3)
    head = recording[0, 1]
    assert torch.equal(head.weights(row), head.weights([1]))
    assert torch.equal(head.top(row).weights, head.top(1).weights)
    assert torch.equal(head.steps(row).weights, head.steps(1).weights)
