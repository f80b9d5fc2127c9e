"""Layers that bring tokens to others by an index, and layers that use an index and mix no tokens."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 16, 2
SOURCES, TARGETS = torch.tensor([0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 4]), torch.tensor([1, 2, 3, 4, 5, 6, 0, 0, 0, 2, 2])


class Layer(nn.Module):
    """A layer of one function, with linear maps."""

    def __init__(self, run, **modules):
        super().__init__()
        self.run, self.linear, self.qkv = run, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.run(self, x)


def permuted(self, x):
    return self.linear(x[:, torch.tensor([2, 0, 1, 4, 3, 6, 5])])


def permuted_and_added(self, x):
    return x + self.linear(x[:, torch.tensor([2, 0, 1, 4, 3, 6, 5])])


def selected(self, x):
    return x + self.linear(x.index_select(1, torch.tensor([6, 5, 4, 3, 2, 1, 0])))


def gathered(self, x):
    order = torch.stack([torch.randperm(7, generator=torch.Generator().manual_seed(each)) for each in range(len(x))])
    return self.linear(x.gather(1, order[..., None].expand_as(x)))


def taken_along(self, x):
    order = self.linear(x)[..., :1].argsort(dim=1)
    return x + self.linear(x.take_along_dim(order, dim=1))


def flipped(self, x):
    return self.linear(x.flip(1)) + x


def rolled(self, x):
    return self.linear(x.roll(1, dims=1))


def written(self, x):
    out = torch.zeros_like(x)
    out[:, torch.tensor([2, 0, 1, 4, 3, 6, 5])] = self.linear(x)
    return out


def shifted_by_writing(self, x):
    out = torch.zeros_like(x)
    out[:, 1:] = x[:, :-1]
    return x + self.linear(out)


def graph_convolution(self, x):
    return torch.zeros_like(x).index_add(1, TARGETS, self.linear(x)[:, SOURCES])


def scattered(self, x):
    index = TARGETS[None, :, None].expand(len(x), -1, x.shape[-1])
    return torch.zeros_like(x).scatter_add(1, index, self.linear(x)[:, SOURCES])


def reduced(self, x):
    index = TARGETS[None, :, None].expand(len(x), -1, x.shape[-1])
    return x.scatter_reduce(1, index, self.linear(x)[:, SOURCES], reduce="amax", include_self=False)


def isomorphism(self, x):
    return self.linear(x + torch.zeros_like(x).index_add_(1, TARGETS, x[:, SOURCES]))


def by_matrix(self, x):
    matrix = torch.sparse_coo_tensor(torch.stack([TARGETS, SOURCES]), torch.ones(len(SOURCES)), (7, 7))
    return torch.stack([torch.sparse.mm(matrix, self.linear(each)) for each in x])


def by_operator(self, x):
    matrix = torch.sparse_coo_tensor(torch.stack([TARGETS, SOURCES]), torch.ones(len(SOURCES)), (7, 7)).coalesce()
    return x + torch.stack([matrix @ each for each in x])


def nearest_maximum(self, x):
    nearest = torch.cdist(x, x).topk(3, largest=False).indices  # (B, N, 3)
    batch = torch.arange(len(x))[:, None, None]
    return self.linear((x[batch, nearest] - x[:, :, None]).amax(2))


def nearest_flat(self, x):
    flat = x.reshape(-1, WIDTH)
    nearest = torch.cdist(x, x).topk(3, largest=False).indices + 7 * torch.arange(len(x))[:, None, None]
    return self.linear(flat[nearest.flatten()].view(*x.shape[:2], 3, WIDTH).mean(2))


def in_time_first(self, x):
    y = x.transpose(0, 1)
    return (y + self.linear(y[torch.tensor([1, 0, 3, 2, 5, 4, 6])])).transpose(0, 1)


def copies_of_the_next(self, x):
    twice = x.repeat_interleave(2, dim=1)
    return x + self.linear(twice[:, torch.arange(14).roll(2)]).view(*x.shape[:2], 2, WIDTH).mean(2)


def copies_that_meet(self, x):
    twice = x.repeat_interleave(2, dim=1)
    return (twice + self.linear(twice[:, torch.arange(14).flip(0)])).view(*x.shape[:2], 2, WIDTH).mean(2)


def bag(self, x):
    return torch.stack(
        [functional.embedding_bag(torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 0]]), each) for each in x]
    )


MIXED = {
    "permuted": permuted,
    "permuted and added": permuted_and_added,
    "index_select": selected,
    "gather": gathered,
    "take_along_dim": taken_along,
    "flip": flipped,
    "roll": rolled,
    "written to other places": written,
    "written to the next place": shifted_by_writing,
    "index_add": graph_convolution,
    "scatter_add": scattered,
    "scatter_reduce": reduced,
    "index_add in place": isomorphism,
    "sparse matrix": by_matrix,
    "sparse operator": by_operator,
    "maximum of the nearest": nearest_maximum,
    "mean of the nearest, flat": nearest_flat,
    "copies of the next": copies_of_the_next,
    "copies that meet others": copies_that_meet,
    "time first": in_time_first,
    "embedding_bag": bag,
}


def experts(self, x):
    flat = x.reshape(-1, WIDTH)
    chosen, out = self.linear(flat)[:, :3].topk(2).indices, torch.zeros_like(flat)
    for expert in range(3):
        token, which = (chosen == expert).nonzero(as_tuple=True)
        out.index_add_(0, token, self.linear(flat[token]) * (which + 1)[:, None])
    return out.view_as(x)


def experts_sorted(self, x):
    flat = x.reshape(-1, WIDTH)
    chosen = self.linear(flat)[:, :3].topk(2).indices.flatten()
    order = chosen.argsort(stable=True)
    sent = self.linear(flat[order // 2])
    back = torch.empty_like(sent)
    back[order] = sent
    return x + back.view(-1, 2, WIDTH).sum(1).view_as(x)


def experts_before_and_after(self, x, sizes=None):
    flat = x.reshape(-1, WIDTH)
    chosen = self.linear(flat)[:, :3].topk(2).indices.flatten()
    order = chosen.argsort(stable=True)
    sizes = chosen.bincount(minlength=3).tolist() if sizes is None else sizes
    sent = torch.cat([self.linear(each) for each in flat[order // 2].split(sizes)])
    apart = torch.zeros_like(sent).index_add(0, order, sent).view(*x.shape[:2], 2, WIDTH)
    back = torch.cat([self.linear(each) for each in apart.tanh().view(-1, WIDTH)[order].split(sizes)])
    return x + torch.zeros_like(flat).index_add(0, order // 2, back).view_as(x)


def experts_of_one(self, x):
    return experts_before_and_after(self, x, [2 * x.shape[0] * x.shape[1] - 1, 1, 0])


def some_chosen(self, x):
    order = self.linear(x)[..., 0].argsort(1)
    chosen = x.gather(1, order[:, :4, None].repeat(1, 1, WIDTH))
    return self.linear(torch.cat([self.linear.bias.expand(len(x), 1, -1), chosen], dim=1))


def experts_repeated(self, x):
    flat = x.reshape(-1, WIDTH).repeat_interleave(2, dim=0)
    order = self.linear(flat)[:, 0].argsort()
    sent = self.linear(flat[order])
    return x + sent[order.argsort()].view(-1, 2, WIDTH).mean(1).view_as(x)


def unpadded(self, x):
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[0, 5:] = False
    indices = mask.flatten().nonzero().flatten()
    packed = self.linear(x.reshape(-1, WIDTH)[indices])
    padded = torch.zeros(x.shape[0] * x.shape[1], WIDTH)
    padded[indices] = packed
    return x + padded.view_as(x)


def unpadded_by_mask(self, x):
    mask = torch.arange(7)[None] < torch.tensor([[5], [7]])
    packed = self.linear(x[mask])
    out = torch.zeros_like(x)
    out[mask] = packed
    return x + out


def sorted_and_back(self, x):
    order = self.linear(x)[..., :1].argsort(dim=1)
    y = self.linear(x.gather(1, order.expand_as(x)))
    return x + y.gather(1, order.argsort(dim=1).expand_as(x))


def flipped_twice(self, x):
    return x + self.linear(x.flip(1)).flip(1)


def rolled_back(self, x):
    return x + self.linear(x.roll(-2, dims=1)).roll(2, dims=1)


def last_token(self, x):
    return self.linear(x[torch.arange(len(x)), torch.tensor([4, 6])])


def pooled_by_index(self, x):
    return self.linear(torch.zeros(len(x), 2, WIDTH).index_add(1, torch.tensor([0, 0, 0, 1, 1, 1, 1]), x))


def chosen(self, x):
    return self.linear(x.gather(1, self.linear(x)[..., :1].topk(3, dim=1).indices.expand(-1, -1, WIDTH)))


def positions(self, x):
    table = self.positions.weight
    return x + table[torch.arange(7)] + functional.embedding(torch.tensor([3, 1, 2, 0, 4, 5, 6]), table)


def relative_positions(self, x):
    distance = torch.arange(7)[None] - torch.arange(7)[:, None] + 6
    return x + self.linear(x) * self.positions.weight[distance].mean(1)


def in_order(self, x):
    return x + self.linear(x[:, torch.arange(7)])


def features(self, x):
    return x + self.linear(x[..., torch.arange(WIDTH).flip(0)])


def beams(self, x):
    return self.linear(x).index_select(0, torch.tensor([1, 1]))


def cached(self, x):
    cache = torch.zeros(len(x), 12, WIDTH)
    cache.index_copy_(1, torch.arange(7), self.linear(x))
    return x + cache[:, :7]


UNMIXED = {
    "experts": experts,
    "experts in one order": experts_sorted,
    "experts of repeated tokens": experts_repeated,
    "some chosen, by an index for each feature": some_chosen,
    "experts before and after": experts_before_and_after,
    "experts before and after, one of one token": experts_of_one,
    "unpadded": unpadded,
    "unpadded by a mask": unpadded_by_mask,
    "sorted and back": sorted_and_back,
    "flipped twice": flipped_twice,
    "rolled back": rolled_back,
    "last token": last_token,
    "pooled by index": pooled_by_index,
    "chosen": chosen,
    "positions": positions,
    "relative positions": relative_positions,
    "in order": in_order,
    "features": features,
    "beams": beams,
    "cache": cached,
}
