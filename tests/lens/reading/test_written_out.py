import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import GPTJConfig, GPTJModel, GPTNeoConfig, GPTNeoModel

from families import FAMILIES
from overt.attention.normalizers import Entmax, Sigmoid, Sparsemax, Sum
from overt.lens import record
from overt.lens.capture.written_out.weighted import ExpOfLogWeights

KEPT = ("query and key are unknown here, so the model's own weights are recorded",)
OF_EIGHT = "these are the weights of keys 0 to 6 of a softmax over 8: the others have other values, or none"
BARRED = ~torch.ones(7, 7, dtype=torch.bool).tril()
HEADS = (2, 4, 7, 8)  # B, H, Q, D


def vectors(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(HEADS, generator=draw) for _ in range(3)]


class Written(nn.Module):
    """A module that attends by the lines that it is given; it has four heads."""

    def __init__(self, lines):
        super().__init__()
        self.lines, self.num_heads, self.weights = lines, 4, None

    def forward(self, query, key, value):
        return self.lines(self, query, key, value)


def stored(self, weights):
    """Remember the weights, to compare with."""
    self.weights = weights.detach().clone()
    return weights


def plain(self, q, k, v):
    return stored(self, torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), dim=-1)) @ v


def masked_fill(self, q, k, v):
    scores = (torch.matmul(q, k.mT) * 0.3).masked_fill(BARRED, -math.inf)
    return torch.matmul(stored(self, functional.softmax(scores, dim=-1, dtype=torch.float32)).to(v.dtype), v)


def where(self, q, k, v):
    scores = torch.where(~BARRED, q @ k.mT, torch.tensor(torch.finfo(q.dtype).min))
    return stored(self, scores.softmax(-1)).contiguous().matmul(v)


def added(self, q, k, v):
    scores = 0.2 * (q @ k.mT)
    scores += torch.linspace(-1, 1, 7, dtype=q.dtype)
    scores = scores + torch.zeros(7, 7, dtype=q.dtype).masked_fill(BARRED, -math.inf)
    return stored(self, nn.Softmax(dim=-1)(scores)) @ v


def merged(self, q, k, v):
    q, k, v = (tensor.reshape(8, 7, 8) for tensor in (q, k, v))
    scores = torch.baddbmm(torch.empty(8, 7, 7), q, k.mT, beta=0, alpha=0.3)
    weights = torch.softmax(scores, dim=-1)
    stored(self, weights.view(2, 4, 7, 7))
    return torch.bmm(weights, v).view(HEADS)


def named(self, q, k, v):
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))  # (B, N, H, D)
    scores = torch.einsum("bqhd,bkhd->bhqk", q * 8**-0.5, k)
    return torch.einsum("bhqk, bkhe -> bqhe", stored(self, scores.softmax(dim=-1)), v)


def filled_by_assignment(self, q, k, v):
    scores = torch.matmul(input=q, other=k.mT).div_(2.0)
    scores.masked_fill_(mask=BARRED, value=-math.inf)
    return torch.matmul(stored(self, torch.softmax(input=scores, dim=-1)), v)


def shifted(self, q, k, v):
    scores = q @ k.mT
    scores = scores - scores.amax(-1, keepdim=True)
    return stored(self, scores.softmax(-1)) @ v


def scaled_at_last(self, q, k, v):
    scores = q @ k.mT + torch.linspace(-1, 1, 7, dtype=q.dtype)
    return stored(self, (scores / 2.0).softmax(-1)) @ v


def grouped(self, q, k, v):
    """The heads of a group in a dimension of their own."""
    q, k, v = q.unflatten(1, (2, 2)), k[:, :2, None], v[:, :2, None]  # (B, Hk, H/Hk, Q, D), (B, Hk, 1, K, D)
    weights = torch.softmax(q @ k.mT, dim=-1)
    stored(self, weights.flatten(1, 2))
    return (weights @ v).flatten(1, 2)


def exponentials(self, q, k, v):
    scores = (q @ k.mT).masked_fill(BARRED, -math.inf)
    return stored(self, torch.exp(scores - scores.logsumexp(-1, keepdim=True))) @ v


def divided(self, q, k, v):
    raised = (q @ k.mT).exp()
    return stored(self, raised / raised.sum(-1, keepdim=True)) @ v


def by_logarithms(self, q, k, v):
    return stored(self, functional.log_softmax(q @ k.mT, dim=-1).exp()) @ v


def multiplied_with_a_mask(self, q, k, v):
    """As GPT does: scores times ones and zeros, and a low number where the zeros are."""
    open_keys = (~BARRED).to(q.dtype)
    scores = (q @ k.mT) * open_keys + -1e4 * (1 - open_keys)
    return stored(self, torch.softmax(scores + torch.linspace(-1, 1, 7, dtype=q.dtype), dim=-1)) @ v


def with_a_floor(self, q, k, v):
    """As XGLM and OPT do: masked scores are raised to the lowest number."""
    lowest = torch.finfo(q.dtype).min
    scores = q @ k.mT + torch.zeros(7, 7, dtype=q.dtype).masked_fill(BARRED, lowest)
    return stored(self, torch.softmax(torch.max(scores, torch.tensor(lowest, dtype=q.dtype)), dim=-1)) @ v


def filled_from_a_tensor(self, q, k, v):
    return stored(self, torch.where(~BARRED, q @ k.mT, torch.full((7, 7), -math.inf, dtype=q.dtype)).softmax(-1)) @ v


def scored_in_float32(self, q, k, v):
    """As GPT-J and CodeGen do in half precision."""
    return stored(self, torch.softmax(q.float() @ k.float().mT, dim=-1).to(v.dtype)) @ v


WHOLE = [
    plain,
    scored_in_float32,
    multiplied_with_a_mask,
    with_a_floor,
    filled_from_a_tensor,
    masked_fill,
    where,
    added,
    merged,
    named,
    filled_by_assignment,
    shifted,
    scaled_at_last,
    grouped,
    exponentials,
    divided,
    by_logarithms,
]


def capped(self, q, k, v):
    return stored(self, torch.softmax(torch.tanh(q @ k.mT), dim=-1)) @ v


def multiplied_alone(self, q, k, v):
    """Scores that a mask makes zero, and that nothing makes low, keep their weight."""
    return stored(self, torch.softmax((q @ k.mT) * (~BARRED).to(q.dtype), dim=-1)) @ v


def raised(self, q, k, v):
    return stored(self, torch.softmax(torch.maximum(q @ k.mT, torch.tensor(0.5, dtype=q.dtype)), dim=-1)) @ v


def cut(self, q, k, v):
    """A column beside the keys takes its share, and is cut off."""
    scores = torch.cat([q @ k.mT, torch.zeros(2, 4, 7, 1)], dim=-1)
    return stored(self, torch.softmax(scores, dim=-1)[..., :-1]) @ v


def turned(self, q, k, v):
    weights = torch.softmax(torch.tanh(k @ q.mT), dim=-2)  # (B, H, K, Q)
    stored(self, weights.mT)
    return (v.mT @ weights).mT


def one_head_over(self, q, k, v):
    weights = torch.softmax(torch.sin(q @ k.mT), dim=-1).mean(1, keepdim=True)
    return stored(self, weights) @ v


def summed(self, q, k, v):
    return (stored(self, torch.softmax(torch.tanh(q @ k.mT), dim=-1)).unsqueeze(-1) * v.unsqueeze(-3)).sum(-2)


def batch_last(self, q, k, v):
    weights = torch.einsum("bhqd,bhkd->hqkb", q, k).softmax(2)
    stored(self, weights.permute(3, 0, 1, 2))
    return torch.einsum("hqkb,bhke->bhqe", weights, v)


BY_WEIGHTS = [capped, multiplied_alone, raised, cut, turned, one_head_over, summed, batch_last]


@pytest.mark.parametrize("lines", [*WHOLE, *BY_WEIGHTS], ids=lambda lines: lines.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_are_the_modules_own_and_its_output_is_the_same_to_the_bit(lines, dtype):
    if dtype is torch.bfloat16 and lines in (merged, cut):  # they mix their scores with a float32 tensor
        dtype = torch.float64
        torch.set_default_dtype(dtype)
    try:
        model, (q, k, v) = Written(lines), [tensor.to(dtype) for tensor in vectors()]
        plain_output = model(q, k, v)
        with record(model) as recording:
            output = model(q, k, v)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(output, plain_output)
    assert recording.layers == ["Written"]
    assert recording.missing == []
    total = model.weights.shape[1]
    weights = torch.stack([recording[0, head].weights() for head in range(total)], dim=1)
    torch.testing.assert_close(weights, model.weights.to(weights.dtype), rtol=0, atol=2e-2 if dtype is torch.bfloat16 else 1e-6)
    assert recording.calls[0].notes == (() if lines in WHOLE else (*KEPT, OF_EIGHT) if lines is cut else KEPT)
    assert recording.calls[0].source == "softmax and product"
    assert recording.verify().holds, str(recording.verify())


@pytest.mark.parametrize("lines", WHOLE, ids=lambda lines: lines.__name__)
def test_query_and_key_are_found_where_only_scales_and_masks_came_between(lines):
    model, (q, k, v) = Written(lines), vectors()
    with record(model) as recording:
        model(q, k, v)
    head = recording[0, 3]
    factor = 8**-0.5 if lines is named else 1.0  # that one scales the query itself
    torch.testing.assert_close(head.query, q[:, 3] * factor)
    shared = 1 if lines is grouped else 3
    assert torch.equal(head.key, k[:, shared])
    assert torch.equal(head.value, v[:, shared])


def test_kept_weights_are_looked_at_like_any_others():
    model, (q, k, v) = Written(capped), vectors()
    with record(model) as recording:
        model(q, k, v)
    head, weights = recording[0, 1], model.weights[:, 1]
    assert head.query.shape == (2, 7, 0)
    torch.testing.assert_close(head.entropy(), torch.special.entr(weights).sum(-1), rtol=0, atol=1e-6)
    torch.testing.assert_close(head.received(), weights.mean(-2), rtol=0, atol=1e-6)
    assert torch.equal(head.top(3, 2).keys, weights[:, 3].topk(2).indices)
    torch.testing.assert_close(head.steps(2).output[:, 0], (weights @ v[:, 1])[:, 2])


def test_kept_weights_count_toward_the_limit():
    model, tensors = Written(capped), vectors()
    size = 4 * (2 * 4 * 7 * 7 + 2 * 2 * 4 * 7 * 8)  # float32 weights, value and output
    with record(model, limit=size) as recording:
        model(*tensors)
    assert len(recording) == 1
    with record(model, limit=size - 1) as recording:
        model(*tensors)
    assert len(recording) == 0
    assert recording.missing[0][1].startswith("Expected a recording of at most")


@pytest.mark.parametrize("by_assignment", [False, True])
@pytest.mark.parametrize("scored", [True, False], ids=["query and key", "weights"])
def test_weights_are_those_before_dropout(by_assignment, scored):
    def dropped(self, q, k, v):
        scores = q @ k.mT if scored else torch.tanh(q @ k.mT)
        weights = stored(self, scores.softmax(-1))
        return functional.dropout(weights, 0.5, training=self.training, inplace=by_assignment).to(v.dtype) @ v

    model, tensors = Written(dropped), vectors()
    torch.manual_seed(0)
    plain_output = model(*tensors)
    torch.manual_seed(0)
    with record(model) as recording:
        assert torch.equal(model(*tensors), plain_output)
    torch.testing.assert_close(recording[0, 2].weights(), model.weights[:, 2], rtol=0, atol=1e-6)
    assert "dropout 0.5 was drawn at random" in str(recording.verify())
    with record(model.eval()) as recording:
        model(*tensors)
    assert recording.verify().holds


def test_a_query_that_may_attend_to_nothing_has_no_weights():
    def barred(self, q, k, v):
        scores = (q @ k.mT).masked_fill(torch.arange(7)[:, None] == 3, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    model = Written(barred)
    with record(model) as recording:
        model(*vectors())
    assert not recording[0, 0].weights()[:, 3].any()
    assert "the model's own output is NaN for" in str(recording.verify())


def test_scores_that_are_written_over_are_not_believed():
    def overwritten(self, q, k, v):
        weights = torch.softmax(q @ k.mT, dim=-1)
        q.zero_()
        return stored(self, weights) @ v

    model = Written(overwritten)
    with record(model) as recording:
        model(*vectors())
    torch.testing.assert_close(recording[0, 0].weights(), model.weights[:, 0], rtol=0, atol=1e-6)
    assert recording.calls[0].notes == KEPT


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (lambda self, q, k, v: ((q @ k.mT).softmax(-1).unsqueeze(-1) * v.unsqueeze(-3)).mean(-2), "an order that is not"),
        (
            lambda self, q, k, v: functional.pad((q @ k.mT).softmax(-1), (0, 1)) @ functional.pad(v, (0, 0, 0, 1)),
            "weights are rearranged by pad, and not tracked from there",
        ),
        (lambda self, q, k, v: (1 - (q @ k.mT).softmax(-1) * 2) @ v, "makes weights negative"),
        (
            lambda self, q, k, v: torch.einsum("bhqk,bhke,eo->bhqo", (q @ k.mT).softmax(-1), v, torch.eye(8)),
            "weights are multiplied with their values by einsum, which is not tracked",
        ),
        (
            lambda self, q, k, v: torch.baddbmm(v[:, 0], (q @ k.mT).softmax(-1)[:, 0], v[:, 0]),
            "an order that is not recognised",
        ),
        (
            lambda self, q, k, v: ((raised := (q @ k.mT).exp()) @ v) / raised.sum(-1, keepdim=True),
            "before they are divided by their sum",
        ),
    ],
    ids=["averaged", "padded", "negative", "three at once", "added", "divided at last"],
)
def test_what_cannot_be_matched_is_missing_with_the_reason(lines, reason):
    model = Written(lines)
    with record(model) as recording:
        model(*vectors())
    assert len(recording.calls) == 0
    [(layer, said)] = recording.missing
    assert layer == "Written"
    assert reason in said


def test_blocks_of_queries_and_keys_are_batch_entries():
    def in_blocks(self, q, k, v):
        q, k, v = (each[:, :, :6].unflatten(2, (3, 2)) for each in (q, k, v))  # (B, H, blocks, 2, D)
        return stored(self, (q @ k.mT).softmax(-1)) @ v[:, :, :1].expand_as(v)

    model = Written(in_blocks)
    with record(model) as recording:
        model(*vectors())
    assert recording.missing == []
    assert recording.verify().holds
    for head in range(4):
        torch.testing.assert_close(recording[0, head].weights(), model.weights[:, head].flatten(0, 1), rtol=0, atol=1e-6)
    assert "cut into 3 blocks, which are batch entries here: entry 3 · input + block" in " ".join(recording.calls[0].notes)


class Streams(nn.Module):
    """Mixes the streams of each token, parts of its features, with weights that a linear layer computes of the token."""

    def __init__(self):
        super().__init__()
        self.weigh = nn.Linear(8, 16)

    def forward(self, tokens):
        weights = self.weigh(tokens).unflatten(-1, (4, 4)).softmax(-1)
        weights = weights / weights.sum(-2, keepdim=True)
        return (weights.mT @ tokens.unflatten(-1, (4, 2))).flatten(-2)


def test_streams_of_a_token_that_a_softmax_mixes_are_neither_recorded_nor_missing():
    model = Streams()
    with torch.no_grad(), record(model) as recording:
        model(torch.randn(2, 5, 8))
    assert len(recording.calls) == 0
    assert recording.missing == []


@pytest.mark.parametrize(
    "lines",
    [
        lambda self, q, k, v: q.softmax(-1),
        lambda self, q, k, v: q[0, 0].softmax(-1) @ torch.ones(8, 3),
    ],
    ids=["softmax alone", "a classifier's answer"],
)
def test_what_is_not_attention_is_neither_recorded_nor_missing(lines):
    model = Written(lines)
    with record(model) as recording:
        model(*vectors())
    assert len(recording.calls) == 0
    assert recording.missing == []


def test_attention_without_a_batch_is_recorded():
    def alone(self, q, k, v):
        return stored(self, torch.softmax(q @ k.T / math.sqrt(8), dim=-1)) @ v

    model, tensors = Written(alone), [tensor[0, 0] for tensor in vectors()]
    with record(model) as recording:
        model(*tensors)
    torch.testing.assert_close(recording[0, 0].weights()[0], model.weights)


@pytest.mark.filterwarnings(
    "ignore:.*quantization is deprecated:DeprecationWarning", "ignore:.*quantize_per_tensor:UserWarning"
)
def test_quantised_projections_are_recorded():
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.attend = nn.Linear(8, 8), Written(plain)

        def forward(self, q, k, v):
            return self.attend(self.project(q), self.project(k), v)

    model = torch.ao.quantization.quantize_dynamic(Quantised().eval(), {nn.Linear})
    with record(model) as recording:
        model(*vectors())
    torch.testing.assert_close(recording["attend", 1].weights(), model.attend.weights[:, 1])
    assert recording.verify().holds


@pytest.mark.parametrize(
    "model",
    [
        lambda: GPTJModel(GPTJConfig(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, vocab_size=60)),
        lambda: GPTNeoModel(
            GPTNeoConfig(hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4)
        ),
    ],
    ids=["GPT-J", "GPT-Neo"],
)
def test_models_outside_the_registry_are_recorded_with_query_and_key(model):
    model = model().eval()
    ids, visible = torch.randint(0, 60, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    visible[0, :3] = 0
    with torch.no_grad(), record(model) as recording:
        expected = model(ids, attention_mask=visible, output_attentions=True).attentions
    for call, each in enumerate(expected):
        torch.testing.assert_close(recording[call, 3].weights(), each[:, 3], rtol=0, atol=1e-5)
        assert recording[call, 3].query.shape == (2, 9, 8)
    assert recording.missing == []
    assert recording.verify().holds


def test_blooms_slopes_stay_linear_beside_rows_that_drown():
    family = next(family for family in FAMILIES if family.name == "Bloom")
    model = family.build()
    with torch.no_grad(), record(model) as recording:
        model(**family.inputs("left"))
    bias = recording.calls[0].call.bias
    numbers = sum(leaf.numel() for leaf in torch.utils._pytree.tree_leaves(bias))
    assert numbers == 2 * 4 * 9 + 2 * 9  # a slope times each key's place, and a number a row
    assert not isinstance(recording.calls[0].call.normalizer, ExpOfLogWeights)


# One query's weights: scores squeezed to (B, K), as attention pooling and decoders of recurrent networks write them.


class Pooling(nn.Module):
    """Additive attention pooling: one query, whose scores a small network gives."""

    def __init__(self, lines):
        super().__init__()
        self.lines, self.score, self.weights = lines, nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1)), None

    def forward(self, x):
        return self.lines(self, self.score(x).squeeze(-1), x)


def squeezed(self, e, x):
    return torch.bmm(stored(self, functional.softmax(e, 1)).unsqueeze(1), x).squeeze(1)


def summed_by_hand(self, e, x):
    return (stored(self, e.softmax(1)).unsqueeze(-1) * x).sum(1)


def summed_with_dimension(self, e, x):
    return torch.sum(x * stored(self, nn.Softmax(dim=1)(e))[:, :, None], dim=1, keepdim=True)


def by_names(self, e, x):
    return torch.einsum("bk,bkd->bd", stored(self, torch.softmax(e, dim=-1)), x)


def values_first(self, e, x):
    return (x.transpose(1, 2) @ stored(self, e.softmax(-1)).unsqueeze(2)).squeeze(2)


def features_first(self, e, x):
    return (x.transpose(1, 2) * stored(self, e.softmax(-1)).unsqueeze(1)).sum(-1)


def one_score_a_key(self, e, x):
    weights = functional.softmax(e.unsqueeze(-1), dim=1)  # (B, K, 1)
    stored(self, weights.squeeze(-1))
    return (weights * x).sum(dim=1)


def barred_keys(self, e, x):
    return stored(self, e.masked_fill(torch.arange(7) > 4, -1e9).softmax(1)).unsqueeze(1).matmul(x)


def normalised_by_hand(self, e, x):
    raised = torch.exp(e)
    return (stored(self, raised / raised.sum(1, keepdim=True)).unsqueeze(2) * x).sum(1)


def log_then_exp(self, e, x):
    return torch.bmm(stored(self, functional.log_softmax(e, 1).exp()).unsqueeze(1), x)


ONE_QUERY = [
    squeezed,
    summed_by_hand,
    summed_with_dimension,
    by_names,
    values_first,
    features_first,
    one_score_a_key,
    barred_keys,
    normalised_by_hand,
    log_then_exp,
]


@pytest.mark.parametrize("lines", ONE_QUERY, ids=lambda lines: lines.__name__)
def test_one_querys_weights_are_recorded_with_their_keys_and_values(lines):
    model, x = Pooling(lines), torch.randn(2, 7, 8)
    plain_output = model(x)
    with record(model) as recording:
        assert torch.equal(model(x), plain_output)
    assert (recording.layers, recording.missing) == (["Pooling"], [])
    call = recording.calls[0]
    assert (call.batch, call.queries, call.keys, call.notes) == (2, 1, 7, KEPT)
    torch.testing.assert_close(recording[0, 0].weights()[:, 0], model.weights)
    assert torch.equal(recording[0, 0].value, x)
    assert recording.verify().holds, str(recording.verify())


@pytest.mark.parametrize(
    "lines",
    [
        lambda self, e, x: (stored(self, e.softmax(0)).unsqueeze(2) * x).sum(0),
        lambda self, e, x: stored(self, functional.softmax(e, dim=0)).t().unsqueeze(1).bmm(x.transpose(0, 1)),
    ],
    ids=["summed", "bmm"],
)
def test_one_querys_weights_are_recorded_where_the_batch_comes_second(lines):
    model, x = Pooling(lines), torch.randn(7, 2, 8)
    with record(model) as recording:
        model(x)
    assert (recording.calls[0].batch, recording.calls[0].keys, recording.missing) == (2, 7, [])
    torch.testing.assert_close(recording[0, 0].weights()[:, 0], model.weights.T)


@pytest.mark.parametrize(
    "lines",
    [lambda self, e, x: stored(self, e.softmax(0)) @ x, lambda self, e, x: stored(self, e[None].softmax(1))[0] @ x],
    ids=["(K,)", "(1, K)"],
)
def test_one_querys_weights_are_recorded_without_a_batch(lines):
    model, x = Pooling(lines), torch.randn(7, 8)
    with record(model) as recording:
        model(x)
    torch.testing.assert_close(recording[0, 0].weights().flatten(), model.weights.flatten())
    assert recording.missing == []


def test_the_textbooks_decoder_is_recorded_at_every_step():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.a, self.b, self.v = nn.GRUCell(8, 8), nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(6, 1)

        def forward(self, states):
            h, weights = states[:, -1], []
            for _ in range(3):
                e = self.v(torch.tanh(self.a(h)[:, None] + self.b(states))).squeeze(-1)
                weights.append(functional.softmax(e, dim=-1))
                h = self.cell(torch.bmm(weights[-1].unsqueeze(1), states).squeeze(1), h)
            return h, torch.stack(weights)

    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Decoder()).eval()
    with record(model) as recording:
        _, weights = model(torch.randn(2, 7, 8))
    assert recording.layers == ["0.self_attn", "1", "1", "1"]
    torch.testing.assert_close(torch.stack([recording[call, 0].weights()[:, 0] for call in (1, 2, 3)]), weights)
    assert recording.missing == [
        ("1.cell", "GRUCell mixes tokens by a recurrence from step to step: no attention weights are recorded")
    ]


EXPERTS = {
    "a classifier": lambda self, x: self.c(x).softmax(-1),
    "soft labels": lambda self, x: self.c(x).softmax(-1) @ self.e.weight,
    "experts": lambda self, x: (self.c(x).softmax(-1).unsqueeze(2) * torch.stack([x * n for n in range(3)], -1)).sum(-1),
    "experts by names": lambda self, x: torch.einsum("bte,btde->btd", self.c(x).softmax(-1), torch.stack([x, x, x], -1)),
    "layers": lambda self, x: torch.einsum(
        "lbt,lbtd->btd", torch.stack([self.c(each)[..., 0] for each in (x, 2 * x)]).softmax(0), torch.stack([x, 2 * x])
    ),
    "features": lambda self, x: (self.f(x).softmax(-1) * x).sum(-1),
}


@pytest.mark.parametrize("lines", EXPERTS.values(), ids=EXPERTS)
def test_a_softmax_over_anything_but_tokens_is_neither_recorded_nor_missing(lines):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.f, self.e = nn.Linear(8, 3), nn.Linear(8, 8), nn.Embedding(3, 8)

        def forward(self, x):
            return lines(self, x)

    model = Model()
    with record(model) as recording:
        model(torch.randn(2, 7, 8))
    assert (len(recording.calls), recording.missing) == (0, [])


# Weights that are cut along their keys are part of a row.


@pytest.mark.parametrize(
    "cut",
    [
        lambda w: (w[..., :3], w[..., 3:]),
        lambda w: torch.split(w, [3, 4], dim=-1),
        lambda w: (w.narrow(-1, 0, 3), w.narrow(-1, 3, 4)),
        lambda w: w.tensor_split([3], dim=-1),
    ],
    ids=["slices", "split", "narrow", "tensor_split"],
)
def test_both_parts_of_one_softmax_are_recorded_with_the_keys_that_they_are_of(cut):
    def in_parts(self, q, k, v):
        first, second = cut(stored(self, torch.softmax(q @ k.mT, dim=-1)))
        return first @ v[..., :3, :] + second @ v[..., 3:, :]

    model, (q, k, v) = Written(in_parts), vectors()
    with record(model) as recording:
        model(q, k, v)
    assert recording.missing == []
    for call, (low, high) in enumerate([(0, 3), (3, 7)]):
        said = f"these are the weights of keys {low} to {high - 1} of a softmax over 7: the others have other values, or none"
        assert recording.calls[call].notes == (*KEPT, said)
        torch.testing.assert_close(recording[call, 1].weights(), model.weights[:, 1, :, low:high])
        assert torch.equal(recording[call, 1].value, v[:, 1, low:high])


def test_keys_that_are_chosen_after_the_softmax_are_listed():
    def chosen(self, q, k, v):
        return torch.softmax(q @ k.mT, dim=-1).index_select(-1, torch.tensor([1, 4])) @ v[..., [1, 4], :]

    with record(model := Written(chosen)) as recording:
        model(*vectors())
    assert len(recording.calls) == 0
    assert recording.missing == [("Written", "weights are rearranged by index_select, and not tracked from there")]


# Weights that no softmax makes.

EVERY = torch.ones(7, 7, dtype=torch.bool)
OTHERS = {
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "relu squared": (lambda scores: (scores / 7).relu().square(), "relu and square"),
    "relu to the power": (lambda scores: functional.relu(scores) ** 2, "relu and pow"),
    "masked sigmoid": (lambda scores: (scores - math.log(7)).sigmoid().masked_fill(BARRED, 0), "sigmoid and masked_fill"),
    "sparsemax": (lambda scores: Sparsemax()(scores, EVERY), "where"),
    "entmax": (lambda scores: Entmax(1.5)(scores, EVERY), "where and square"),
    "sigmoid of overt's": (lambda scores: Sigmoid()(scores, EVERY), "sigmoid"),
}


@pytest.mark.parametrize(("normalise", "says"), OTHERS.values(), ids=OTHERS)
def test_weights_by_another_function_are_recorded_and_said(normalise, says):
    def otherwise(self, q, k, v):
        return stored(self, normalise(q @ k.mT / math.sqrt(8))) @ v

    model, tensors = Written(otherwise), vectors()
    plain_output = model(*tensors)
    with record(model) as recording:
        assert torch.equal(model(*tensors), plain_output)
    assert recording.missing == []
    torch.testing.assert_close(recording[0, 2].weights(), model.weights[:, 2], rtol=0, atol=1e-6)
    assert recording.calls[0].notes[1].startswith(f"weights by {says}, not by a softmax: rows sum to ")
    assert recording.verify().holds


@pytest.mark.parametrize(
    ("normalise", "reason"),
    [
        (functional.silu, "weights by silu are negative in places, and not recorded"),
        (lambda scores: Sum()(scores, EVERY), "weights by division by a plain sum are negative in places, and not recorded"),
        (lambda scores: scores * ~BARRED, "products that sum over tokens, not tracked from a softmax"),
    ],
    ids=["silu", "plain sum", "linear attention"],
)
def test_weights_by_another_function_that_cannot_be_kept_are_listed(normalise, reason):
    with record(model := Written(lambda self, q, k, v: normalise(q @ k.mT / 3) @ v)) as recording:
        model(*vectors())
    assert len(recording.calls) == 0
    [(layer, said)] = recording.missing
    assert (layer, reason in said) == ("Written", True)
