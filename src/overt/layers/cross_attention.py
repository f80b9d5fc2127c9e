"""Attention between two sequences: the queries of a decoder attend to the states of an encoder."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from overt.attention import check
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.trace import Steps, steps
from overt.attention.typing import BiasLike, LearnedScoreLike, LengthsLike, MaskLike, NormalizerLike, Refused
from overt.errors import InputError
from overt.layers.parts import checks
from overt.layers.parts.learned_scores import Scoring, has_value_matrix, matrix, scoring
from overt.layers.parts.padding import checked_lengths, combine_masks, joint_batch, lengths_mask, zero_masked_keys, zero_padding
from overt.layers.parts.registered import RegisteredPiece


class Prepared(NamedTuple):
    """Keys and values, projected once for many queries: key (..., K, A), value (..., K, E), lengths (B,) or None.

    >>> import torch
    >>> prepared = CrossAttention(16, 8).prepare(torch.randn(2, 5, 8))
    >>> prepared.key.shape, prepared.value.shape, prepared.lengths
    (torch.Size([2, 5, 8]), torch.Size([2, 5, 8]), None)
    """

    key: Tensor
    value: Tensor
    lengths: Tensor | None


class CrossAttention(nn.Module):
    """A decoder's state s_i attends to the states h_j of an encoder: c_i = Σ_j a_ij h_j with a_ij = softmax_j f(s_i, h_j).

    Bahdanau et al. 2015, sections 3.1 and A.1.2, with the additive score, a small fully connected layer, v · tanh(W s_i + U h_j);
    the other names, and what each learns, are in the table of `overt.layers.parts.learned_scores`. The values are the
    encoder's states, except with "dot", which has a value matrix as the Transformer's encoder–decoder attention does;
    `project_values` changes this for any score. The other options are `SelfAttention`'s.

    Shapes: query (..., query_features), one step of the decoder, → (..., key_features); or a whole pass,
    (..., Q, query_features) → (..., Q, key_features); states (..., K, key_features). A query with one dimension fewer than the states
    is one step. A mask or bias broadcasts against (..., Q, K), with Q = 1 for a step; `lengths` (B,) excludes the states' padding.

    A decoder that takes many steps projects the states once: `prepared = layer.prepare(states)`, then `layer(query, prepared)`.

    >>> import torch
    >>> layer = CrossAttention(16, 8)
    >>> states = torch.randn(2, 5, 8)
    >>> layer(torch.randn(2, 16), states).shape, layer(torch.randn(2, 3, 16), layer.prepare(states)).shape
    (torch.Size([2, 8]), torch.Size([2, 3, 8]))
    """

    def __init__(
        self,
        query_features: int,
        key_features: int,
        score: LearnedScoreLike = "additive",
        *,
        projections: bool | None = None,
        project_values: bool | None = None,
        width: int | None = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        checks.widths("CrossAttention", query_features=query_features, key_features=key_features, width=width)
        check.probability("dropout", dropout)
        if isinstance(score, str) and projections is False and query_features != key_features:
            raise InputError(
                "query_features equal to key_features where no projections join the two widths",
                got=f"query_features={query_features}, key_features={key_features}",
                fix='keep the projections, or use "general", whose matrix joins the two widths',
            )
        self.query_features = query_features
        self.key_features = key_features
        self.dropout = dropout
        self.score_name: str = score if isinstance(score, str) else type(score).__name__
        self.scoring: Scoring = scoring(score, query_features, key_features, width, projections)
        with_matrix = has_value_matrix(score, projections) if project_values is None else project_values
        self.value: nn.Linear | None = matrix(key_features, key_features) if with_matrix else None
        self.normalizer: RegisteredPiece = RegisteredPiece(Softmax() if normalizer is None else normalizer)

    def forward(
        self,
        query: Tensor,
        states: Tensor | Prepared,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The context of each query: (..., key_features), or (..., Q, key_features)."""
        arguments, one_step = self._arguments(query, states, mask, bias, lengths, unknown)
        context = attend(**arguments)
        return context.squeeze(-2) if one_step else context

    def steps(
        self,
        query: Tensor,
        states: Tensor | Prepared,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Steps:
        """Scores, masked scores, weights and output; the first three are Q × K, with Q = 1 for one step."""
        return steps(**self._arguments(query, states, mask, bias, lengths, unknown)[0])

    def weights(
        self,
        query: Tensor,
        states: Tensor | Prepared,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The weights of the states for each query: (..., K), or (..., Q, K)."""
        arguments, one_step = self._arguments(query, states, mask, bias, lengths, unknown)
        weights = steps(**arguments).weights
        return weights.squeeze(-2) if one_step else weights

    def prepare(self, states: Tensor, *, lengths: LengthsLike | None = None) -> Prepared:
        """The states as keys and values, projected once; the lengths apply to every call that uses them."""
        checks.states("CrossAttention", "states", states, self.key_features)
        lengths = None if lengths is None else checked_lengths(lengths, states)
        return self._projected(zero_padding(states, lengths), lengths)

    def _projected(self, states: Tensor, lengths: Tensor | None) -> Prepared:
        return Prepared(self.scoring.keys(states), states if self.value is None else self.value(states), lengths)

    def _arguments(
        self, query: Tensor, states: Tensor | Prepared, mask: Any, bias: Any, lengths: Any, unknown: dict[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        checks.refuse_torch_keywords("CrossAttention", unknown, causal=False)
        checks.states("CrossAttention", "query", query, self.query_features, min_dimensions=1)
        if not isinstance(states, Prepared):
            checks.states("CrossAttention", "states", states, self.key_features)
        one_step = query.ndim == (states.value if isinstance(states, Prepared) else states).ndim - 1
        queries = query.unsqueeze(-2) if one_step else query
        if isinstance(states, Prepared):
            if lengths is not None:
                raise InputError(
                    "prepared states alone, since they have their lengths",
                    got="lengths beside them",
                    fix="pass the lengths to layer.prepare(states, lengths=lengths)",
                )
            prepared = states
        else:
            lengths = None if lengths is None else checked_lengths(lengths, states)
            states = zero_masked_keys(zero_padding(states, lengths), mask, joint_batch(queries, states))
            prepared = self._projected(states, lengths)
        return {
            "query": self.scoring.queries(queries),
            "key": prepared.key,
            "value": prepared.value,
            "score": self.scoring.score(),
            "mask": combine_masks(mask, lengths_mask(prepared.lengths)),
            "bias": bias,
            "normalizer": self.normalizer.current(),
            "dropout": self.dropout if self.training else 0.0,
        }, one_step

    def extra_repr(self) -> str:
        """The non-default options."""
        widths = f"{self.query_features}, {self.key_features}, score={self.score_name!r}"
        return widths + (f", dropout={self.dropout}" if self.dropout else "")
