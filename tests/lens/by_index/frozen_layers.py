"""More layers of both kinds, written down before the rules met them, and not used to make the rules."""

import torch
from torch.nn import functional

from tests.lens.by_index.layers import SOURCES, TARGETS, WIDTH


def edge_convolution(self, x):
    flat = x.reshape(-1, WIDTH)
    source = torch.cat([SOURCES + 7 * number for number in range(len(x))])
    target = torch.cat([TARGETS + 7 * number for number in range(len(x))])
    messages = self.out(torch.cat([flat[target], flat[source] - flat[target]], -1))
    out = flat.new_full(flat.shape, -9.0)
    out = out.scatter_reduce(0, target[:, None].expand_as(messages), messages, reduce="amax")
    return out.view_as(x)


def clusters(self, x):
    of = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    sums = torch.zeros(len(x), 3, WIDTH).index_add(1, of, x)
    return x + self.linear(sums)[:, of]


def both_directions(self, x):
    return (x + self.linear(x.flip([1]))) / 2


def merged(self, x):
    chosen_tokens, dropped = x[:, ::2], x[:, 1::2]
    to = torch.zeros(len(x), 3, 1, dtype=torch.long)
    return self.linear(chosen_tokens.scatter_reduce(1, to.expand(-1, -1, WIDTH), dropped, reduce="mean"))


def shuffled(self, x):
    values, order = self.linear(x)[..., 0].sort(dim=1)
    return self.linear(torch.gather(x, 1, order[..., None].expand(-1, -1, WIDTH))) * values[..., None]


def hypergraph(self, x):
    edges = x.new_zeros(len(x), 3, WIDTH).index_add_(1, TARGETS % 3, x[:, SOURCES])
    return x.new_zeros(x.shape).index_add_(1, SOURCES, self.linear(edges)[:, TARGETS % 3])


def interpolated(self, x):
    where = self.linear(x)[..., 0].sigmoid() * 5.5
    low = where.long()
    part = (where - low)[..., None]
    take = lambda index: x.gather(1, index[..., None].expand_as(x))  # noqa: E731
    return self.linear(take(low) * (1 - part) + take(low + 1) * part)


def segments(self, x):
    flat = x.reshape(-1, WIDTH)
    gathered = flat[torch.cat([SOURCES, SOURCES + 7])]
    order = torch.cat([TARGETS, TARGETS + 7]).argsort()
    lengths = torch.bincount(torch.cat([TARGETS, TARGETS + 7]), minlength=14)
    return self.linear(torch.segment_reduce(gathered[order], "sum", lengths=lengths, initial=0.0)).view_as(x)


def put_accumulated(self, x):
    out = torch.zeros_like(x)
    out.index_put_((torch.arange(len(x))[:, None], TARGETS[None]), self.linear(x[:, SOURCES]), accumulate=True)
    return out


def neighbours_on_a_grid(self, x):
    padded = functional.pad(x[:, :6].mT.reshape(-1, WIDTH, 2, 3), (1, 1, 1, 1))
    windows = padded.unfold(2, 3, 1).unfold(3, 3, 1).amax((-1, -2))
    return torch.cat([self.linear(windows.flatten(2).mT), x[:, 6:]], 1)


def stacked_shifts(self, x):
    return self.linear(torch.stack([x.roll(1, 1), x, x.roll(-1, 1)], 2).amax(2))


FROZEN_MIXED = {
    function.__name__: function
    for function in (
        edge_convolution,
        clusters,
        both_directions,
        merged,
        shuffled,
        hypergraph,
        interpolated,
        segments,
        put_accumulated,
        neighbours_on_a_grid,
        stacked_shifts,
    )
}


def capacity(self, x):
    flat = x.reshape(-1, WIDTH)
    expert = self.linear(flat)[:, :2].argmax(-1)
    rank = torch.stack([(expert[:number] == expert[number]).sum() for number in range(len(flat))])
    slots = torch.zeros(2 * 14, WIDTH)
    slots[expert * 14 + rank] = flat
    done = self.linear(slots.view(2, 14, WIDTH)).view(-1, WIDTH)
    return x + done[expert * 14 + rank].view_as(x)


def sorted_by_length(self, x):
    lengths = torch.tensor([5, 7])
    order = lengths.argsort(descending=True)
    y = self.linear(x[order])
    return x + y[order.argsort()]


def masked_out(self, x):
    x = x.clone()
    x[torch.arange(7)[None] > torch.tensor([[4], [6]])] = 0.0
    return self.linear(x)


def dense_batch(self, x):
    packed = torch.cat([x[0, :5], x[1]])
    batch, position = torch.tensor([0] * 5 + [1] * 7), torch.cat([torch.arange(5), torch.arange(7)])
    dense = packed.new_zeros(2 * 7, WIDTH)
    dense[batch * 7 + position] = packed
    dense = self.linear(dense.view(2, 7, WIDTH))
    return packed + dense[batch, position]


def patches_in_another_order(self, x):
    order = torch.tensor([2, 0, 1])
    y = x[:, :6].reshape(len(x), 3, 2, WIDTH)[:, order].reshape(len(x), 6, WIDTH)
    y = self.linear(y)
    return y.reshape(len(x), 3, 2, WIDTH)[:, order.argsort()].reshape(len(x), 6, WIDTH)


def merged_pictures(self, x):
    texts = x.clone()
    texts[:, 2:5] = self.linear(x)[:, 2:5]
    return texts.masked_scatter(torch.tensor([True] * 2 + [False] * 5)[None, :, None], torch.zeros(4, WIDTH))


def top_values(self, x):
    scores = self.linear(x)
    return scores.masked_fill(scores < scores.topk(4, dim=-1).values[..., -1:], 0.0)


FROZEN_UNMIXED = {
    function.__name__: function
    for function in (
        capacity,
        sorted_by_length,
        masked_out,
        dense_batch,
        patches_in_another_order,
        merged_pictures,
        top_values,
    )
}
