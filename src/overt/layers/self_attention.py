"""Self-attention with learned projections: queries, keys and values from one sequence."""

from typing import Any

from torch import Tensor, nn

from overt.attention import check
from overt.attention.kernels.call import as_normalizer
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.trace import Steps, steps
from overt.attention.typing import BiasLike, LearnedScoreLike, LengthsLike, MaskLike, NormalizerLike, Refused, WindowLike
from overt.layers.parts import checks
from overt.layers.parts.learned_scores import Scoring, has_value_matrix, matrix, scoring
from overt.layers.parts.padding import checked_lengths, combine_masks, lengths_mask, window_mask, zero_padding
from overt.layers.parts.registered import RegisteredPiece


class SelfAttention(nn.Module):
    """Every position of a sequence attends to every other: c_i = Σ_j a_ij v_j with a_ij = softmax_j f(x_i, x_j).

    `score` is "additive" (v · tanh(W x_i + U x_j)), "dot", "general", "concat", "cosine" or "gaussian", or a function of yours,
    (query, key) -> (..., Q, K). The table of `overt.layers.parts.learned_scores` says what each learns, with its source and
    initialisation. The values are the vectors themselves, v_j = x_j, so that c_i is a mixture of them; only "dot" has a value matrix, as
    in the Transformer (Vaswani et al. 2017, section 3.2). `project_values` changes this for any score.

    `projections=False` learns nothing: the vectors themselves are queries, keys and values ("dot" is then the plain x_i · x_j). A
    score object is used unchanged, or with `projections=True` on learned projections of queries and keys; its tensors
    train, move and are saved with the layer. `width` is the width of queries and keys after projection (`features`).

    `causal=True` excludes later positions; `window=w` positions farther than w, `window=(before, after)` with a limit for
    each side. `dropout` zeroes weights, in training only.

    Shapes: x (..., n, features) → (..., n, features). `lengths` (B,) excludes padding: it influences no other position, and its
    rows of the output are zeros. Raises InputError and KindError for inputs that do not fit.

    >>> import torch, overt
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    >>> SelfAttention(2, "dot", projections=False)(x)
    tensor([[1.5752, 0.0900],
            [0.6358, 0.5761],
            [1.8509, 0.0159]])
    """

    def __init__(
        self,
        features: int,
        score: LearnedScoreLike = "additive",
        *,
        projections: bool | None = None,
        project_values: bool | None = None,
        width: int | None = None,
        causal: bool = False,
        window: WindowLike = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        checks.widths("SelfAttention", features=features, width=width)
        check.probability("dropout", dropout)
        window_mask(causal, window)  # refuses an invalid window
        self.features = features
        self.causal = causal
        self.window = window
        self.dropout = dropout
        self.score_name: str = score if isinstance(score, str) else type(score).__name__
        self.scoring: Scoring = scoring(score, features, features, width, projections)
        with_matrix = has_value_matrix(score, projections) if project_values is None else project_values
        self.value: nn.Linear | None = matrix(features, features) if with_matrix else None
        self.normalizer: RegisteredPiece = RegisteredPiece(Softmax() if normalizer is None else as_normalizer(normalizer))

    def forward(
        self,
        x: Tensor,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The context of each position of x: (..., n, features)."""
        checks.refuse_torch_keywords("SelfAttention", unknown)
        checks.states("SelfAttention", "x", x, self.features)
        lengths = None if lengths is None else checked_lengths(lengths, x)
        return zero_padding(attend(**self._arguments(x, mask, bias, lengths)), lengths)

    def steps(
        self,
        x: Tensor,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Steps:
        """Scores, masked scores, weights and output; the first three are n × n."""
        checks.refuse_torch_keywords("SelfAttention", unknown)
        checks.states("SelfAttention", "x", x, self.features)
        lengths = None if lengths is None else checked_lengths(lengths, x)
        return steps(**self._arguments(x, combine_masks(mask, lengths_mask(lengths, queries=True)), bias, lengths))

    def weights(
        self,
        x: Tensor,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The weights: (..., n, n)."""
        return self.steps(x, mask=mask, bias=bias, lengths=lengths, **unknown).weights

    def _arguments(self, x: Tensor, mask: Any, bias: Any, lengths: Tensor | None) -> dict[str, Any]:
        x = zero_padding(x, lengths)
        return {
            "query": self.scoring.queries(x),
            "key": self.scoring.keys(x),
            "value": x if self.value is None else self.value(x),
            "score": self.scoring.score(),
            # Padded queries attend like the others, so that one row of the mask holds for all; `forward` zeroes their output.
            "mask": combine_masks(mask, lengths_mask(lengths), window_mask(self.causal, self.window)),
            "bias": bias,
            "normalizer": self.normalizer.current(),
            "dropout": self.dropout if self.training else 0.0,
        }

    def extra_repr(self) -> str:
        """The non-default options."""
        options = {"causal": self.causal, "window": self.window, "dropout": self.dropout}
        changed = [f"{name}={value}" for name, value in options.items() if value]
        return ", ".join([str(self.features), f"score={self.score_name!r}", *changed])
