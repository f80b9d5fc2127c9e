"""A tag for each word, such as its part of speech."""

from typing import Any

from torch import Tensor, nn

from overt.attention.typing import LengthsLike
from overt.layers.parts.checks import widths
from overt.models.config import constructor_arguments
from overt.models.reader import Reader


class Tagger(nn.Module):
    """Read a text, then score each word's tags by its state: scores_i = W s_i + b, with s_i = h_i or [h_i, c_i].

    `overt.models.reader.Reader` makes the states: recurrence ("lstm", "gru", "rnn"), recurrence with self-attention after it
    (`self_attention="additive"`), self-attention instead ("attention", "transformer"), or the words alone ("embeddings").

    Shapes: tokens (B, n), or (B, n, P) with the parts of each word → scores (B, n, tags); `lengths` (B,) exclude padding,
    and the scores at padding are those of a state of zeros.

    >>> import torch
    >>> tagger = Tagger(1000, 17, width=32, self_attention="additive")
    >>> tagger(torch.randint(1000, (2, 5)), lengths=torch.tensor([5, 3])).shape
    torch.Size([2, 5, 17])
    """

    def __init__(
        self,
        words: int,
        tags: int,
        width: int = 128,
        *,
        encoder: str = "lstm",
        layers: int = 1,
        embedding: int | None = None,
        self_attention: str | None = None,
        positions: str | None = None,
        heads: int = 4,
        dropout: float = 0.0,
    ):
        self.config: dict[str, Any] = constructor_arguments(locals())
        super().__init__()
        widths("Tagger", tags=tags)
        self.reader: Reader = Reader(**{name: value for name, value in self.config.items() if name != "tags"})
        self.output: nn.Linear = nn.Linear(self.reader.features, tags)

    def forward(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> Tensor:
        """The scores of each word's tags: (B, n, tags)."""
        return self.output(self.states(tokens, lengths=lengths))

    def states(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> Tensor:
        """The input of `output`: (B, n, features)."""
        return self.reader(tokens, lengths=lengths)

    def weights(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> dict[str, list[Tensor]]:
        """The weights of each attention: "encoder" [(B, H, n, n)]."""
        return {"encoder": self.reader.weights(tokens, lengths=lengths)}
