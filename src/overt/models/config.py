"""The configuration of a model: its constructor's arguments as plain data, and the settings shared by a Transformer's layers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from overt.errors import InputError

EMBEDDING_POSITIONS = ("sinusoidal", "learned")  # added to the embeddings; other positions act in every attention


@dataclass(frozen=True)
class TransformerConfig:
    """The settings shared by a Transformer's layers; `Transformer`, `TransformerEncoder` and `LanguageModel` fill it from their arguments.

    `width` of the states, `heads` of each attention, `feed_forward`, the inner width of the feed-forward layers; `kv_heads`, a divisor
    of `heads`; `positions` "sinusoidal", "learned" (up to `longest`), "rotary", "alibi", "relative" or None; `norm` "pre" or "post";
    `activation` "relu", "gelu" or "silu"; `dropout` of embeddings and sublayers, `attention_dropout` of weights.
    Constructors list these arguments themselves, because `from_config` checks a recipe against their signatures.

    >>> config = TransformerConfig.from_arguments({"words": 100, "width": 16, "positions": "rotary"})
    >>> config.width, config.norm, config.attention_positions
    (16, 'pre', 'rotary')
    """

    width: int = 512
    heads: int = 8
    feed_forward: int = 2048
    kv_heads: int | None = None
    positions: str | None = "sinusoidal"
    norm: str = "pre"
    activation: str = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    longest: int = 512

    def __post_init__(self) -> None:
        # Other invalid widths are refused where they are used.
        whole = all(isinstance(number, int) and number >= 1 for number in (self.width, self.heads))
        if whole and self.width % self.heads:
            fewer = max(number for number in range(1, min(self.heads, 1025)) if self.width % number == 0)
            wider = self.width + -self.width % self.heads
            raise InputError(
                "heads that divide the width evenly",
                got=f"width={self.width}, heads={self.heads}",
                fix=f"choose heads={fewer}, or width={wider}",
            )

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "TransformerConfig":
        """The configuration from a model's arguments; other arguments, such as the number of words, are ignored."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls) if field.name in arguments})

    @property
    def attention_positions(self) -> str | None:
        """The positions that act in every attention; None for positions added to the embeddings."""
        return None if self.positions in EMBEDDING_POSITIONS else self.positions


def constructor_arguments(names: Mapping[str, Any]) -> dict[str, Any]:
    """A model's `config`: the arguments in the `locals()` of its `__init__`, which calls this before it assigns other names.

    >>> class Model:
    ...     def __init__(self, words, width=512):
    ...         self.config = constructor_arguments(locals())
    >>> Model(100).config
    {'words': 100, 'width': 512}
    """
    return {name: value for name, value in names.items() if name not in {"self", "__class__"}}
