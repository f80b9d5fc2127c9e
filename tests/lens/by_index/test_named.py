"""A layer that brings tokens to others by an index is listed and counted; one that puts them back, chooses or pools them is not."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from overt.lens import record
from tests.lens.by_index.frozen_layers import FROZEN_MIXED, FROZEN_UNMIXED
from tests.lens.by_index.layers import MIXED, UNMIXED, WIDTH, Layer


class Net(nn.Module):
    """An ordinary layer of attention, and another one."""

    def __init__(self, odd):
        super().__init__()
        self.first, self.odd = nn.MultiheadAttention(WIDTH, 2, batch_first=True), odd

    def forward(self, x):
        return self.odd(x + self.first(x, x, x, need_weights=False)[0])


def recorded(odd, x=None):
    torch.manual_seed(0)
    model, x = Net(odd).eval(), torch.randn(2, 7, WIDTH) if x is None else x
    with torch.no_grad():
        plain_output = model(x)
        with record(model) as recording:
            assert torch.equal(model(x), plain_output)
    return recording


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("run", (MIXED | FROZEN_MIXED).values(), ids=MIXED | FROZEN_MIXED)
def test_a_layer_that_brings_tokens_to_others_is_named_and_counted(run):
    recording = recorded(Layer(run))
    [(name, reason)] = recording.missing
    assert name == "odd"
    assert reason.startswith("Layer mixes tokens by ")
    assert "covers 1 of 2 token-mixing layers; 1 is listed in missing" in str(recording.verify())


@pytest.mark.parametrize("run", (UNMIXED | FROZEN_UNMIXED).values(), ids=UNMIXED | FROZEN_UNMIXED)
def test_a_layer_that_leaves_tokens_where_they_are_is_not_named(run):
    recording = recorded(Layer(run, positions=nn.Embedding(13, WIDTH)))
    assert recording.missing == []
    assert "covers all token-mixing layers that ran: 1" in str(recording.verify())


class Shuffled(nn.Module):
    """A layer that puts tokens into another order and does nothing else."""

    def forward(self, x):
        return x[:, torch.tensor([2, 0, 1, 4, 3, 6, 5])]


def test_a_layer_that_only_permutes_tokens_is_named_whoever_adds_its_output():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.shuffled = Shuffled()

        def forward(self, x):
            return x + self.shuffled(x)

    assert [name for name, _ in recorded(Around()).missing] == ["odd.shuffled"]


def test_tokens_are_those_that_a_sequence_counts_and_not_the_entries_of_a_batch():
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, 2)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0][torch.tensor([1, 0, 2, 3, 4])]

    x = torch.randn(5, 3, WIDTH)
    model = nn.Sequential(TimeFirst()).train()
    with record(model) as recording:
        model(x)
    assert any("another order" in reason for _, reason in recording.missing)


def test_a_packed_sequence_is_named_as_the_recurrence_that_it_is():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.tensor([4, 7]), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]

    assert [reason for _, reason in recorded(Packed()).missing] == [
        "Packed mixes tokens by an LSTM: no attention weights are recorded"
    ]


def test_a_graph_without_a_batch_is_one_of_tokens():
    class Convolution(nn.Module):
        def forward(self, x):
            source, target = torch.tensor([[0, 1, 2, 2, 3], [1, 0, 3, 1, 2]])
            return x + torch.zeros_like(x).index_add_(0, target, x.index_select(0, source))

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Convolution())
    with record(model) as recording:
        model(torch.randn(4, WIDTH))
    assert [name for name, _ in recording.missing] == ["1"]


class Buckets(nn.Module):
    """Attention inside buckets of tokens that are sorted by a hash, and put back."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        order = self.qkv(x)[..., :1].argsort(dim=1)
        query, key, value = self.qkv(x.gather(1, order.expand_as(x))).view(len(x), 2, -1, 3 * WIDTH).chunk(3, -1)
        weights = (query @ key.mT).softmax(-1)
        return (weights @ value).flatten(1, 2).gather(1, order.argsort(1).expand_as(x))


def test_attention_inside_sorted_buckets_is_recorded_and_its_sorting_is_not_listed():
    recording = recorded(Buckets(), torch.randn(2, 8, WIDTH))
    assert recording.missing == []
    assert recording.layers == ["first", "odd"]
    assert recording.verify().holds


def test_a_weight_for_each_channel_and_a_value_for_each_edge_are_named_with_the_reason():
    near = (torch.arange(7)[:, None] + torch.arange(3)) % 7

    def channels(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        source, target = near.flatten(), torch.arange(7).repeat_interleave(3)
        powers = (query[:, target] - key[:, source]).exp()
        sums = torch.zeros_like(value).index_add(1, target, powers)
        return torch.zeros_like(value).index_add(1, target, powers / sums[:, target] * value[:, source])

    def values(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        weights = (query[:, :, None] * key[:, near]).sum(-1).softmax(-1)
        return (weights[..., None] * (value[:, near] + torch.arange(3.0)[:, None])).sum(2)

    [(_, of_channels)] = recorded(Layer(channels)).missing
    assert "attention over edges that has a weight for each channel" in of_channels
    [(_, of_values)] = recorded(Layer(values)).missing
    assert "attention over edges that have values of their own" in of_values


def drops_by_roll(state, new):
    rolled = state.roll(-1, dims=1)
    rolled[:, torch.tensor([-1])] = new
    state.copy_(rolled)


def drops_by_index(state, new):
    state.copy_(state[:, torch.tensor([1, 2, 3, 4, 0])].index_copy(1, torch.tensor([4]), new))


@pytest.mark.parametrize("between", [lambda state: state, lambda state: state.index_select(0, torch.tensor([1, 1]))])
@pytest.mark.parametrize("drop", [drops_by_roll, drops_by_index])
def test_a_cache_that_drops_its_oldest_token_puts_none_of_a_pass_into_another_order(drop, between):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.states = nn.Linear(WIDTH, 3 * WIDTH), {}

        def forward(self, x):
            query, *new = self.project(x).chunk(3, dim=-1)
            for name, tensor in zip(("key", "value"), new, strict=True):
                if x.shape[1] > 1:
                    self.states[name] = tensor.clone()
                else:
                    drop(self.states[name], tensor)
            return nn.functional.scaled_dot_product_attention(query, self.states["key"], self.states["value"])

    model = Cached()
    with torch.no_grad(), record(model) as recording:
        model(torch.randn(2, 5, WIDTH))
        for _ in range(3):
            model.states = {name: between(state) for name, state in model.states.items()}
            model(torch.randn(2, 1, WIDTH))
    assert recording.missing == []


def test_an_input_of_every_pass_is_no_cache():
    model, x = Net(Shuffled()).eval(), torch.randn(2, 7, WIDTH)
    with torch.no_grad(), record(model) as recording:
        for _ in range(2):
            model(x)
    assert [name for name, _ in recording.missing] == ["odd"]


class Experts(nn.Module):
    """Each token goes to `choices` experts: as transformers' parallel experts, grouped by expert, split, joined and added back."""

    def __init__(self, experts):
        super().__init__()
        self.experts, self.weight = torch.tensor(experts), nn.Parameter(torch.randn(4, WIDTH, WIDTH) / WIDTH)

    def forward(self, x):
        flat, choices = x.reshape(-1, WIDTH), len(self.experts) // (x.shape[0] * x.shape[1])
        order, sizes = self.experts.argsort(stable=True), torch.bincount(self.experts, minlength=4).tolist()
        groups = flat[order.div(choices, rounding_mode="trunc")].split(sizes)
        joined = torch.cat([nn.functional.linear(group, self.weight[number]) for number, group in enumerate(groups)])
        return torch.zeros_like(flat).index_add(0, order.div(choices, rounding_mode="trunc"), joined).view_as(x)


@pytest.mark.parametrize(
    "experts",
    [
        [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
        [3, 0, 0, 1, 1, 1, 0, 0, 1, 1],
        [2, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [3, 2, 1, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
        *torch.randint(4, (8, 10), generator=torch.Generator().manual_seed(1)).tolist(),
        *torch.rand(6, 10, 4, generator=torch.Generator().manual_seed(2)).topk(2).indices.flatten(1).tolist(),
    ],
)
def test_experts_of_any_number_of_tokens_put_none_elsewhere(experts):
    assert recorded(Experts(experts), torch.randn(2, 5, WIDTH)).missing == []
