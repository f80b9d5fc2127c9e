"""One vector for a whole sequence: attention with a single learned query."""

from typing import Any

from torch import Tensor, nn

from overt.attention import check
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.trace import steps
from overt.attention.typing import BiasLike, LearnedScoreLike, LengthsLike, MaskLike, NormalizerLike, Refused
from overt.layers.parts import checks
from overt.layers.parts.learned_scores import Scoring, scoring, vector
from overt.layers.parts.padding import checked_lengths, combine_masks, lengths_mask, zero_masked_keys, zero_padding
from overt.layers.parts.registered import RegisteredPiece


class AttentionPool(nn.Module):
    """One learned query attends to every position: c = Σ_j a_j x_j with a_j = softmax_j f(query, x_j).

    Yang et al. 2016 (hierarchical attention networks), section 2.2: with "additive", f is v · tanh(q + U x_j), where the paper calls
    v the word context vector u_w and q the bias b. The other names are in `overt.layers.parts.learned_scores`, without the
    query's matrix; with `projections=False` only the query is learned. It starts like the vectors there.

    Shapes: x (..., n, features) → (..., features). `lengths` (B,) excludes padding; a sequence of length 0 gives zeros. A mask
    or bias broadcasts against (..., 1, n). Raises InputError and KindError for inputs that do not fit.

    >>> import torch
    >>> pool = AttentionPool(8)
    >>> pool(torch.randn(2, 5, 8), lengths=torch.tensor([5, 3])).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        features: int,
        score: LearnedScoreLike = "additive",
        *,
        projections: bool | None = None,
        width: int | None = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        checks.widths("AttentionPool", features=features, width=width)
        check.probability("dropout", dropout)
        self.features = features
        self.dropout = dropout
        self.score_name: str = score if isinstance(score, str) else type(score).__name__
        self.scoring: Scoring = scoring(score, None, features, width, projections)
        self.query: nn.Parameter = vector(self.scoring.query_width)
        self.normalizer: RegisteredPiece = RegisteredPiece(Softmax() if normalizer is None else normalizer)

    def forward(
        self,
        x: Tensor,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The context of each sequence: (..., features)."""
        return attend(**self._arguments(x, mask, bias, lengths, unknown)).squeeze(-2)

    def weights(
        self,
        x: Tensor,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The weight of each position: (..., n)."""
        return steps(**self._arguments(x, mask, bias, lengths, unknown)).weights.squeeze(-2)

    def _arguments(self, x: Tensor, mask: Any, bias: Any, lengths: Any, unknown: dict[str, Any]) -> dict[str, Any]:
        checks.refuse_torch_keywords("AttentionPool", unknown, causal=False)
        checks.states("AttentionPool", "x", x, self.features)
        lengths = None if lengths is None else checked_lengths(lengths, x)
        x = zero_masked_keys(zero_padding(x, lengths), mask, tuple(x.shape[:-2]))
        return {
            "query": self.query[None],
            "key": self.scoring.keys(x),
            "value": x,
            "score": self.scoring.score(),
            "mask": combine_masks(mask, lengths_mask(lengths)),
            "bias": bias,
            "normalizer": self.normalizer.current(),
            "dropout": self.dropout if self.training else 0.0,
        }

    def extra_repr(self) -> str:
        """The non-default options."""
        return f"{self.features}, score={self.score_name!r}" + (f", dropout={self.dropout}" if self.dropout else "")
