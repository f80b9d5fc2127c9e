"""Layers that attend over edges, each with the list of its edges and weights as it computed them.

`FIRST` were used while the rules were made; `FROZEN` were written down before they were run once, and not changed.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LENGTH = 8, 2, 6
# Self-loops, an edge that comes twice, token 5 without any edge to it.
SOURCES, TARGETS = torch.tensor([0, 1, 2, 3, 4, 5, 0, 2, 2, 3]), torch.tensor([0, 2, 1, 4, 3, 2, 1, 1, 1, 3])


class Edges(nn.Module):
    """A layer of one function, which notes its edges: weights (B, H, E), queries and keys (B, E), and how many there are of each."""

    def __init__(self, run):
        super().__init__()
        self.run, self.qkv, self.edges = run, nn.Linear(WIDTH, 3 * WIDTH), None

    def forward(self, x):
        return self.run(self, x)

    def note(self, weights, query, key, queries=LENGTH, keys=LENGTH):
        self.edges = (*(np.array(each.detach().double().tolist()) for each in (weights, query, key)), queries, keys)

    def dense(self):
        """The weights (B, H, Q, K) of the edges, added up one by one."""
        weights, query, key, queries, keys = self.edges
        result = np.zeros((*weights.shape[:2], queries, keys))
        for (entry, head, edge), weight in np.ndenumerate(weights):
            result[entry, head, int(query[entry % len(query), edge]), int(key[entry % len(key), edge])] += weight
        return result


def heads_first(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, H, N, D)


def ring(self, x):
    """Each token attends to the next three; heads first, by einsum."""
    query, key, value = map(heads_first, self.qkv(x).chunk(3, -1))
    near = (torch.arange(LENGTH)[:, None] + torch.arange(3)) % LENGTH
    weights = torch.einsum("bhid,bhijd->bhij", query, key[:, :, near]).softmax(-1)
    self.note(weights.flatten(2), torch.arange(LENGTH).repeat_interleave(3)[None], near.reshape(1, -1))
    return torch.einsum("bhij,bhijd->bhid", weights, value[:, :, near]).transpose(1, 2).flatten(2)


def ring_summed(self, x):
    query, key, value = self.qkv(x).chunk(3, -1)
    near = (torch.arange(LENGTH)[:, None] + 2 * torch.arange(3)) % LENGTH  # dilated
    weights = (query[:, :, None] * key[:, near]).sum(-1).softmax(-1)
    self.note(weights.flatten(1)[:, None], torch.arange(LENGTH).repeat_interleave(3)[None], near.reshape(1, -1))
    return x + (weights[..., None] * value[:, near]).sum(2)


def nearest(self, x):
    """Nearest neighbours of each sequence, by gather."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = torch.cdist(x, x).topk(3, largest=False).indices  # (B, N, k)
    index = near.reshape(len(x), -1, 1).expand(-1, -1, WIDTH)
    keys, values = (each.gather(1, index).view(*near.shape, WIDTH) for each in (key, value))
    weights = (query.unsqueeze(2) @ keys.mT).div(WIDTH**0.5).softmax(-1)  # (B, N, 1, k)
    self.note(weights.reshape(len(x), 1, -1), torch.arange(LENGTH).repeat_interleave(3)[None], near.flatten(1))
    return (weights @ values).squeeze(2)


def softmax_over_edges(scores, index, count, dim):
    """The softmax of torch_geometric, with torch's own functions."""
    shape = [count if each == dim else size for each, size in enumerate(scores.shape)]
    index = index.view([-1 if each == dim else 1 for each in range(scores.ndim)]).expand_as(scores)
    largest = scores.new_zeros(shape).scatter_reduce_(dim, index, scores.detach(), "amax", include_self=False)
    powers = (scores - largest.gather(dim, index)).exp()
    sums = scores.new_zeros(shape).scatter_add_(dim, index, powers) + 1e-16
    return powers / sums.gather(dim, index)


def graph(self, x):
    """A graph attention layer (GAT): all sequences as one graph, without a batch."""
    nodes = self.qkv(x)[..., :WIDTH].reshape(-1, HEADS, WIDTH // HEADS)
    source = torch.cat([SOURCES + LENGTH * number for number in range(len(x))])
    target = torch.cat([TARGETS + LENGTH * number for number in range(len(x))])
    mine, others = (nodes * nodes[:1]).sum(-1), (nodes * nodes[1:2]).sum(-1)
    scores = functional.leaky_relu(mine.index_select(0, target) + others.index_select(0, source), 0.2)
    weights = softmax_over_edges(scores, target, len(nodes), 0)
    self.note(weights.T[None], target[None], source[None], len(nodes), len(nodes))
    messages = nodes.index_select(0, source) * weights.unsqueeze(-1)
    out = nodes.new_zeros(nodes.shape).scatter_add_(0, target.view(-1, 1, 1).expand_as(messages), messages)
    return out.view(*x.shape)


def graph_of_batch(self, x):
    """The same edges in each sequence, one head, by index_add."""
    query, key, value = self.qkv(x).chunk(3, -1)
    powers = (query[:, TARGETS] * key[:, SOURCES]).sum(-1).exp()
    weights = powers / powers.new_zeros(len(x), LENGTH).index_add(1, TARGETS, powers)[:, TARGETS]
    self.note(weights[:, None], TARGETS[None], SOURCES[None])
    return x + torch.zeros_like(value).index_add(1, TARGETS, weights[..., None] * value[:, SOURCES])


def windows(self, x):
    """Local attention by unfold, with padding at both ends."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = lambda tensor: functional.pad(tensor, (0, 0, 1, 1)).unfold(1, 3, 1)  # noqa: E731
    weights = (query[..., None] * near(key)).sum(2).softmax(-1)
    origins = torch.arange(LENGTH)[:, None] + torch.arange(3) - 1
    inside = ((origins >= 0) & (origins < LENGTH)).float()
    self.note(
        (weights * inside).flatten(1)[:, None],
        torch.arange(LENGTH).repeat_interleave(3)[None],
        origins.clamp(0, 5).reshape(1, -1),
    )
    return (weights[:, :, None] * near(value)).sum(-1)


def by_matrix(self, x):
    """A softmax of a sparse matrix, and its product, of the first sequence."""
    query, key, value = self.qkv(x[0]).chunk(3, -1)
    target, source = torch.tensor([0, 0, 1, 2, 3, 3, 4]), torch.tensor([1, 2, 5, 2, 0, 4, 3])
    scores = torch.sparse_coo_tensor(torch.stack([target, source]), (query[target] * key[source]).sum(-1), (LENGTH, LENGTH))
    weights = torch.sparse.softmax(scores, dim=1)
    self.note(weights.coalesce().values()[None, None], target[None], source[None])
    return torch.sparse.mm(weights, value)


FIRST = {each.__name__: each for each in (ring, ring_summed, nearest, graph, graph_of_batch, windows, by_matrix)}


def by_product(self, x):
    """The next three, heads first, by a product with a row of weights."""
    query, key, value = map(heads_first, self.qkv(x).chunk(3, -1))
    near = (torch.arange(LENGTH)[:, None] + torch.arange(3)) % LENGTH
    weights = torch.matmul(query.unsqueeze(-2), key[:, :, near].transpose(-1, -2)).softmax(-1)
    self.note(weights.flatten(2), torch.arange(LENGTH).repeat_interleave(3)[None], near.reshape(1, -1))
    return torch.matmul(weights, value[:, :, near]).squeeze(-2).transpose(1, 2).flatten(2)


def nearest_flat(self, x):
    """Nearest neighbours by an index into all sequences joined, heads after the neighbours."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = torch.cdist(x, x).topk(3, largest=False).indices
    index = (near + LENGTH * torch.arange(len(x))[:, None, None]).flatten()
    take = lambda t: t.reshape(-1, HEADS, WIDTH // HEADS)[index].view(*near.shape, HEADS, -1)  # noqa: E731
    weights = torch.einsum("bnhd,bnkhd->bnkh", query.unflatten(-1, (HEADS, -1)), take(key)).softmax(2)
    self.note(weights.permute(0, 3, 1, 2).flatten(2), torch.arange(LENGTH).repeat_interleave(3)[None], near.flatten(1))
    return torch.einsum("bnkh,bnkhd->bnhd", weights, take(value)).flatten(2)


def batch_of_heads(self, x):
    """Edges of a batch with heads after them, by scatter_add."""
    query, key, value = (each.unflatten(-1, (HEADS, -1)) for each in self.qkv(x).chunk(3, -1))
    scores = (query[:, TARGETS] * key[:, SOURCES]).sum(-1)  # (B, E, H)
    weights = softmax_over_edges(scores, TARGETS, LENGTH, 1)
    self.note(weights.transpose(1, 2), TARGETS[None], SOURCES[None])
    messages = value[:, SOURCES] * weights[..., None]
    index = TARGETS[None, :, None, None].expand_as(messages)
    return torch.zeros_like(value).scatter_add(1, index, messages).flatten(2)


def bipartite(self, x):
    """The first four tokens of all sequences are read by three others."""
    nodes, others = x.reshape(-1, WIDTH)[:4], x.reshape(-1, WIDTH)[4:7]
    source, target = torch.tensor([0, 1, 2, 3, 3]), torch.tensor([0, 0, 2, 2, 0])
    value, query = self.qkv(nodes)[:, :WIDTH], self.qkv(others)[:, WIDTH : 2 * WIDTH]
    weights = softmax_over_edges((query[target] * value[source]).sum(-1), target, 3, 0)
    self.note(weights[None, None], target[None], source[None], 3, 4)
    return torch.zeros(3, WIDTH).index_add_(0, target, value[source] * weights[:, None])


def masked(self, x):
    """Neighbours of which some are barred."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = (torch.arange(LENGTH)[:, None] + torch.arange(-2, 3)).clamp(0, LENGTH - 1)
    barred = (torch.arange(LENGTH)[:, None] + torch.arange(-2, 3) < 0) | (
        torch.arange(LENGTH)[:, None] + torch.arange(-2, 3) > 5
    )
    scores = torch.einsum("bnd,bnkd->bnk", query, key[:, near]) * 0.3
    weights = scores.masked_fill(barred, -torch.inf).softmax(-1)
    self.note(weights.flatten(1)[:, None], torch.arange(LENGTH).repeat_interleave(5)[None], near.reshape(1, -1))
    return torch.einsum("bnk,bnkd->bnd", weights, value[:, near])


def on_a_grid(self, x):
    """Neighbours on a grid of 2 × 3, by unfold twice."""
    query, key, value = (each.unflatten(1, (2, 3)) for each in self.qkv(x).chunk(3, -1))
    near = lambda t: functional.pad(t, (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1)  # noqa: E731
    scores = torch.einsum("bhwd,bhwdij->bhwij", query, near(key)).flatten(-2)
    weights = scores.softmax(-1)
    row = torch.arange(2)[:, None, None, None] + torch.arange(3)[:, None] - 1  # (2, 1, 3, 1)
    column = torch.arange(3)[None, :, None, None] + torch.arange(3) - 1  # (1, 3, 1, 3)
    inside = (row >= 0) & (row < 2) & (column >= 0) & (column < 3)
    key_of = (row.clamp(0, 1) * 3 + column.clamp(0, 2)).reshape(1, -1)
    self.note((weights * inside.reshape(2, 3, 9)).flatten(1)[:, None], torch.arange(6).repeat_interleave(9)[None], key_of)
    return torch.einsum("bhwk,bhwdk->bhwd", weights, near(value).flatten(-2)).flatten(1, 2)


def heads_before_edges(self, x):
    """Heads in front of the edges of one graph."""
    query, key, value = (each.unflatten(-1, (HEADS, -1)).transpose(0, 1) for each in self.qkv(x[0]).chunk(3, -1))
    scores = torch.einsum("hed,hed->he", query[:, TARGETS], key[:, SOURCES])
    weights = softmax_over_edges(scores, TARGETS, LENGTH, 1)
    self.note(weights[None], TARGETS[None], SOURCES[None])
    return torch.zeros_like(value).index_add(1, TARGETS, weights.unsqueeze(-1) * value[:, SOURCES]).transpose(0, 1).flatten(1)


def put_with_accumulation(self, x):
    """Messages put into their places by index_put."""
    query, key, value = self.qkv(x[0]).chunk(3, -1)
    powers = (query[TARGETS] * key[SOURCES]).sum(-1).exp()
    sums = torch.zeros(LENGTH).index_put((TARGETS,), powers, accumulate=True)
    weights = powers / sums[TARGETS]
    self.note(weights[None, None], TARGETS[None], SOURCES[None])
    return torch.zeros_like(value).index_put((TARGETS,), weights[:, None] * value[SOURCES], accumulate=True)


def sorted_segments(self, x):
    """Edges in the order of their queries, summed segment by segment."""
    query, key, value = self.qkv(x[0]).chunk(3, -1)
    order = TARGETS.argsort(stable=True)
    target, source, lengths = TARGETS[order], SOURCES[order], torch.bincount(TARGETS, minlength=LENGTH)
    weights = softmax_over_edges((query[target] * key[source]).sum(-1), target, LENGTH, 0)
    self.note(weights[None, None], target[None], source[None])
    return torch.segment_reduce(weights[:, None] * value[source], "sum", lengths=lengths, initial=0.0)


def edges_as_rows(self, x):
    """Neighbours as one list of edges, then as rows again."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = (torch.arange(LENGTH)[:, None] + torch.tensor([0, 2, 5])) % LENGTH
    target = torch.arange(LENGTH).repeat_interleave(3)
    scores = (query[:, target] * key[:, near.flatten()]).sum(-1).view(len(x), LENGTH, 3)
    weights = scores.softmax(-1)
    self.note(weights.flatten(1)[:, None], target[None], near.reshape(1, -1))
    return (weights.unsqueeze(-1) * value[:, near.flatten()].view(len(x), LENGTH, 3, WIDTH)).sum(-2)


def along_a_dimension(self, x):
    """Nearest neighbours by take_along_dim, heads first."""
    query, key, value = map(heads_first, self.qkv(x).chunk(3, -1))
    near = torch.cdist(x, x).topk(2, largest=False).indices
    take = lambda t: t.take_along_dim(near.flatten(1)[:, None, :, None], dim=2).unflatten(2, (LENGTH, 2))  # noqa: E731
    weights = torch.einsum("bhnd,bhnkd->bhnk", query, take(key)).softmax(-1)
    self.note(weights.flatten(2), torch.arange(LENGTH).repeat_interleave(2)[None], near.flatten(1))
    return torch.einsum("bhnk,bhnkd->bhnd", weights, take(value)).transpose(1, 2).flatten(2)


def rolled_neighbours(self, x):
    """Three shifts of the sequence, stacked."""
    query, key, value = self.qkv(x).chunk(3, -1)
    near = lambda t: torch.stack([t.roll(1, 1), t, t.roll(-1, 1)], 2)  # noqa: E731
    weights = (query.unsqueeze(2) * near(key)).sum(-1).softmax(-1)
    origins = (torch.arange(LENGTH)[:, None] + torch.tensor([-1, 0, 1])) % LENGTH
    self.note(weights.flatten(1)[:, None], torch.arange(LENGTH).repeat_interleave(3)[None], origins.reshape(1, -1))
    return (weights[..., None] * near(value)).sum(2)


FROZEN = {
    each.__name__: each
    for each in (
        by_product,
        nearest_flat,
        batch_of_heads,
        bipartite,
        masked,
        on_a_grid,
        heads_before_edges,
        put_with_accumulation,
        sorted_segments,
        edges_as_rows,
        along_a_dimension,
        rolled_neighbours,
    )
}
