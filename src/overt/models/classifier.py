"""One class for a whole text, such as the kind of a question."""

from typing import Any

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.typing import LengthsLike
from overt.layers import AttentionPool
from overt.layers.parts.checks import widths
from overt.layers.parts.padding import checked_lengths, within_lengths
from overt.models.config import constructor_arguments
from overt.models.reader import Reader


class Classifier(nn.Module):
    """Read a text, make one vector of its states, score the classes by it: scores = W pool(s_1 … s_n) + b, with s_i = h_i or [h_i, c_i].

    `overt.models.reader.Reader` makes the states. `pool` is "mean", "max" (of each feature, over the words), or "attention":
    a learned query attends to all states (`overt.layers.AttentionPool`).

    Shapes: tokens (B, n), or (B, n, P) with the parts of each word → scores (B, classes). `lengths` (B,) exclude padding;
    a text of length 0 has a vector of zeros.

    >>> classifier = Classifier(1000, 6, width=32, encoder="embeddings", self_attention="plain")
    >>> classifier(torch.randint(1000, (2, 5)), lengths=torch.tensor([5, 3])).shape
    torch.Size([2, 6])
    """

    def __init__(
        self,
        words: int,
        classes: int,
        width: int = 128,
        *,
        encoder: str = "lstm",
        layers: int = 1,
        embedding: int | None = None,
        self_attention: str | None = None,
        positions: str | None = None,
        heads: int = 4,
        pool: str = "mean",
        dropout: float = 0.0,
    ):
        self.config: dict[str, Any] = constructor_arguments(locals())
        super().__init__()
        widths("Classifier", classes=classes)
        check.choice("pool", pool, ("mean", "max", "attention"))
        self.reader: Reader = Reader(**{name: value for name, value in self.config.items() if name not in {"classes", "pool"}})
        self.pool: AttentionPool | None = AttentionPool(self.reader.features) if pool == "attention" else None
        self.output: nn.Linear = nn.Linear(self.reader.features, classes)

    def forward(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> Tensor:
        """The scores of each text's classes: (B, classes)."""
        return self.output(self.states(tokens, lengths=lengths))

    def states(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> Tensor:
        """The vector of each text, the input of `output`: (B, features)."""
        states = self.reader(tokens, lengths=lengths)  # (B, n, features)
        lengths = [states.shape[1]] * len(states) if lengths is None else lengths
        lengths = checked_lengths(lengths, states)
        if self.pool is not None:
            return self.pool(states, lengths=lengths)
        if self.config["pool"] == "mean":  # padding's states are zeros
            return states.sum(1) / lengths.clamp(min=1)[:, None]
        maximum = torch.where(within_lengths(lengths, states), states, -torch.inf).amax(1)
        return torch.where(lengths[:, None] > 0, maximum, 0)

    def weights(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> dict[str, list[Tensor]]:
        """The weights of each attention, "encoder" [(B, H, n, n)], and of the pool, "pool" [(B, n)]."""
        weights = {"encoder": self.reader.weights(tokens, lengths=lengths)}
        if self.pool is not None:
            weights["pool"] = [self.pool.weights(self.reader(tokens, lengths=lengths), lengths=lengths)]
        return weights
