"""A translator as the lens sees it: a text model for `overt explain`, and what its decoder attends to while it writes."""

from collections.abc import Sequence

import numpy as np
import torch

from overt.errors import InputError
from overt.learn.tokenizer import END
from overt.learn.translator import Translation, Translator
from overt.lens.recipes.between import Written
from overt.lens.recording import record
from overt.lens.text_model import Encoded, fitting, readable
from overt.models import Transformer

# What may lie between a token and the next one in the text: spaces, and a letter that the vocabulary lacks.
_GAP = 4


class SeenTranslator:
    """The encoder of a translator, as a text model of the lens."""

    def __init__(self, translator: Translator, *notes: str):
        model = translator.model
        if not isinstance(model, Transformer):
            raise InputError(
                "explain needs a model whose layers attend over the text's tokens",
                got=f"{translator.name}, a {type(model).__name__}",
                cure="choose a Transformer",
            )
        self.translator, self.network, self.name = translator, model.encoder, translator.name
        self.notes = [*notes, f"{self.name} reads with an encoder and writes with a decoder; this is its encoder."]
        self.limit = model.config["longest"] if model.config["positions"] == "learned" else None

    def encode(self, text: str, truncate: bool = False) -> Encoded:
        """Cut a text into the translator's tokens, the end's mark behind them; refuse an empty one."""
        if not text.strip():
            raise InputError("a text needs at least one word", got=repr(text), cure="pass a sentence")
        ids = self.translator.read(text)
        if truncate and self.limit is not None and len(ids) > self.limit:
            ids = [*ids[: self.limit - 1], ids[-1]]
        return fitting(_encoded(self.translator, text, ids), self.limit, self.name)

    def run(self, encoded: Encoded) -> None:
        """Let the encoder read the tokens."""
        with torch.no_grad():
            self.network(torch.tensor([encoded.ids]))

    def word_vectors(self, ids: Sequence[int]) -> np.ndarray:
        """The tokens' own vectors (N, width), before any layer."""
        return self.network.embedding.table.weight.detach()[list(ids)].double().numpy()


def written(translator: Translator, text: str, translation: Translation) -> Written:
    """Let the model write this translation again, in one pass, and record what it attends to."""
    source, target = translator.forced(text, translation)
    with torch.no_grad(), record(translator.model) as recording:
        translator.model(source, target)
    read = _encoded(translator, text, source[0].tolist())
    wrote = _encoded(translator, translation.text, [*translation.ids, END])
    return Written(f"{translator.name}, decoder", read, wrote, recording)


def _encoded(translator: Translator, text: str, ids: list[int]) -> Encoded:
    tokens = translator.tokenizer.tokens(ids)
    spans = [*spans_of(text, tokens[:-1]), (0, 0)]
    return Encoded(text, readable(text, tokens, spans), ids, spans, [len(ids) - 1])


def spans_of(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where each token stands in the text; a token that is not found there has no letters of it.

    >>> spans_of("I am happy", ["▁i", "▁am", "▁hap", "py"])
    [(0, 1), (2, 4), (5, 8), (8, 10)]
    """
    lowered, start, spans = text.lower(), 0, []
    for token in tokens:
        letters = token.removeprefix("▁").removesuffix("</w>").lower()
        place = lowered.find(letters, start, start + len(letters) + _GAP)
        start, end = (start, start) if place < 0 else (place, place + len(letters))
        spans.append((start, end))
        start = end
    return spans
