"""A linear recurrence over positions, and the weights by which its outputs add up values."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from overt.errors import InputError, KindError
from overt.lens.linear.triangular import Stretch

READS = ("after", "before")


@dataclass(frozen=True, eq=False, repr=False)
class Recurrence:
    """Heads that keep a state S (D × E) over positions j = 0 … K − 1, which the last Q positions read:

        S_j = (diag(a_j) + u_j p_jᵀ) S_{j−1} + k_j v_jᵀ        o_t = S_tᵀ q_t + d_t v_t        (reads "after")
                                                               o_t = S_{t−1}ᵀ q_t + d_t v_t    (reads "before")

    The output is linear in the values: o_t = Σ_j W_tj v_j. The weights of a row are W_tj = k_j · r, where r begins as q_t and
    changes by r ← a_j ∘ r + p_j (u_j · r) for j = t, t − 1, …; they are signed and do not sum to one.

    Shapes: query (B, H, Q, D) with its scale multiplied in, key (B, H, K, D) with the strength of writing multiplied in, value
    (B, H, K, E), log_decay (B, H, K, 1 or D) of log a_j, erase and probe (B, H, K, D) of u_j and p_j, both or neither, diagonal
    (B, H, Q) of d_t, start (B, H, D, E) a state before position 0, from tokens that are not among the K. `normalizer` (B, H, Q) divides
    a row's weights and output. Tensors that heads share in groups may have fewer heads, a divisor of H: head h reads h // (H / fewer).
    None means no decay, no erasure, no diagonal, a start state of zeros, no normalizer. `kind` is the usual name of the mixer. Sums
    are in float32, or in float64 if a tensor is. Raises InputError for shapes that do not fit, KindError for other dtypes.

    >>> import torch
    >>> x = torch.ones(1, 1, 3, 1)
    >>> Recurrence(x, x, x, log_decay=torch.full((1, 1, 3, 1), 0.5).log(), kind="retention").weights([2])
    tensor([[[[0.2500, 0.5000, 1.0000]]]])
    """

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor | None = None
    erase: Tensor | None = None
    probe: Tensor | None = None
    diagonal: Tensor | None = None
    reads: str = "after"
    start: Tensor | None = None
    kind: str = "linear attention"
    normalizer: Tensor | None = None

    def __post_init__(self) -> None:
        for name, tensor in self.tensors.items():
            if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
                got = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
                raise KindError("floating-point tensors in a recurrence", got=f"{name} of {got}", fix=f"convert {name}")
        if self.reads not in READS:
            raise InputError('reads="after" or reads="before"', got=f"reads={self.reads!r}", fix="choose one of them")
        if (self.erase is None) != (self.probe is None):
            raise InputError("erase and probe, both or neither", got="one of them", fix="pass both")
        for name, shapes in self._shapes().items():
            shape = tuple(self.tensors[name].shape)
            if not any(_fits(shape, wanted) for wanted in shapes):
                raise InputError(
                    f"{name} of the shape {' or '.join(map(str, shapes))}, or with fewer heads, a divisor of {self.heads}",
                    got=f"{name} {shape}, in a recurrence of query {tuple(self.query.shape)} and value {tuple(self.value.shape)}",
                    fix="see the shapes of overt.lens.linear.Recurrence",
                )
        if self.queries > self.keys:
            got = f"{self.queries} queries and {self.keys} keys"
            raise InputError("at most as many queries as keys: they are the last positions", got=got, fix="pass all keys")

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are not None, by the names of their fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("reads", "kind")}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def batch(self) -> int:
        """B."""
        return self.value.shape[0]

    @property
    def heads(self) -> int:
        """H."""
        return max(tensor.shape[1] for tensor in self.tensors.values())

    @property
    def queries(self) -> int:
        """Q."""
        return self.query.shape[2]

    @property
    def keys(self) -> int:
        """K."""
        return self.key.shape[2]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of sums: float64 if any tensor is float64, else float32."""
        return torch.float64 if any(tensor.dtype == torch.float64 for tensor in self.tensors.values()) else torch.float32

    def _shapes(self) -> dict[str, list[tuple[int, ...]]]:
        if self.query.ndim != 4 or self.value.ndim != 4 or any(tensor.ndim < 3 for tensor in self.tensors.values()):
            shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in self.tensors.items())
            fix = "see the shapes of overt.lens.linear.Recurrence"
            raise InputError("tensors with batch and heads: query (B, H, Q, D), value (B, H, K, E)", got=shapes, fix=fix)
        (batch, heads), (queries, features) = (self.batch, self.heads), self.query.shape[2:]
        keys, width = self.value.shape[2:]
        by_key, by_query = [(batch, heads, keys, features)], [(batch, heads, queries)]
        shapes = {"query": [(batch, heads, queries, features)], "key": by_key, "value": [(batch, heads, keys, width)]}
        shapes |= {"erase": by_key, "probe": by_key, "diagonal": by_query, "normalizer": by_query}
        shapes |= {"log_decay": [(batch, heads, keys, 1), *by_key], "start": [(batch, heads, features, width)]}
        return {name: shapes[name] for name in self.tensors}

    def of_heads(self, heads: Sequence[int]) -> "Recurrence":
        """A copy of the recurrence with only these heads."""
        chosen = {}
        for name, tensor in self.tensors.items():
            group = self.heads // tensor.shape[1]
            index = torch.tensor([head // group for head in heads], device=tensor.device)
            chosen[name] = tensor.detach().index_select(1, index)
        return replace(self, **chosen)

    def ready(self) -> "Recurrence":
        """The recurrence with all heads in every tensor, as views, in the dtype of sums and without gradients."""
        chosen = {
            name: tensor.detach().to(self.dtype).repeat_interleave(self.heads // tensor.shape[1], dim=1)
            for name, tensor in self.tensors.items()
        }
        return replace(self, **chosen)

    def double(self) -> "Recurrence":
        """The recurrence in float64."""
        return replace(self, **{name: tensor.double() for name, tensor in self.tensors.items()})

    @torch.no_grad()
    def weights(self, rows: Sequence[int] | None = None) -> Tensor:
        """The weights of these queries (None: all) on every key: (B, H, rows, K), by the walk back from each row.

        The walk takes K steps of rows × D; only the result grows with K.
        """
        ready, offset, before = self.ready(), self.keys - self.queries, int(self.reads == "before")
        chosen = list(range(self.queries)) if rows is None else list(rows)
        index = torch.tensor(chosen, device=self.query.device, dtype=torch.long)
        asking = ready.query[:, :, index]  # r: (B, H, rows, D)
        weights = asking.new_zeros(*asking.shape[:-1], self.keys)
        last = index + offset - before  # the last position that each row's state has read
        for position in range(max(chosen, default=-1) + offset - before, -1, -1):
            reached = last >= position  # (rows,)
            weight, earlier = step_back(ready, position, asking)
            weights[..., position] = torch.where(reached, weight, 0)
            asking = torch.where(reached[:, None], earlier, asking)
        if ready.diagonal is not None:
            weights[..., torch.arange(len(chosen)), index + offset] += ready.diagonal[:, :, index]
        return weights if ready.normalizer is None else weights / ready.normalizer[:, :, index, None]

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """All weights at once, (B, H, Q, K), by one triangular system over all positions instead of the walk back (`Stretch`)."""
        ready, offset = self.ready(), self.keys - self.queries
        query = pad(ready.query, (0, 0, offset, 0))
        weights = Stretch(query, ready.key, ready.log_decay, ready.erase, ready.probe, self.reads).weights[:, :, offset:]
        if ready.diagonal is not None:
            weights.diagonal(offset, -2, -1).add_(ready.diagonal)
        return weights if ready.normalizer is None else weights / ready.normalizer[..., None]

    @torch.no_grad()
    def output(self) -> Tensor:
        """The outputs (B, H, Q, E), by the recurrence, position by position."""
        ready, offset = self.ready(), self.keys - self.queries
        state = ready.value.new_zeros(self.batch, self.heads, self.query.shape[-1], self.value.shape[-1])
        state = state if ready.start is None else ready.start
        output = []
        for position in range(self.keys):
            query = ready.query[:, :, position - offset, :, None] if position >= offset else None
            if query is not None and self.reads == "before":
                output.append((query * state).sum(-2))
            state = step_forward(ready, position, state)
            if query is not None and self.reads == "after":
                output.append((query * state).sum(-2))
        outputs = torch.stack(output, dim=-2) if output else ready.value[:, :, :0]  # (B, H, Q, E)
        if ready.diagonal is not None:
            outputs = outputs + ready.diagonal[..., None] * ready.value[:, :, offset:]
        return outputs if ready.normalizer is None else outputs / ready.normalizer[..., None]

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.heads} heads, {self.queries} queries, {self.keys} keys>"


def step_back(recurrence: Recurrence, position: int, asking: Tensor) -> tuple[Tensor, Tensor]:
    """The weight of a position for rows with the vectors r (B, H, rows, D), and their r for the positions before it."""
    at = (slice(None), slice(None), slice(position, position + 1))
    weight = (recurrence.key[at] * asking).sum(-1)  # (B, H, rows)
    earlier = asking if recurrence.log_decay is None else recurrence.log_decay[at].exp() * asking
    if recurrence.erase is not None and recurrence.probe is not None:
        earlier = earlier + recurrence.probe[at] * (recurrence.erase[at] * asking).sum(-1, keepdim=True)
    return weight, earlier


def step_forward(recurrence: Recurrence, position: int, state: Tensor) -> Tensor:
    """The state (B, H, D, E) after a position, from the one before it."""
    at = (slice(None), slice(None), position)
    after = state if recurrence.log_decay is None else recurrence.log_decay[at][..., None].exp() * state
    if recurrence.erase is not None and recurrence.probe is not None:
        read = (recurrence.probe[at][..., None] * state).sum(-2, keepdim=True)  # (B, H, 1, E)
        after = after + recurrence.erase[at][..., None] * read
    return after + recurrence.key[at][..., None] * recurrence.value[at][..., None, :]


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tensor has the wanted shape, or a number of heads that divides the wanted one."""
    heads_fit = len(shape) == len(wanted) and shape[1] > 0 and wanted[1] % shape[1] == 0
    return heads_fit and (shape[0], *shape[2:]) == (wanted[0], *wanted[2:])
