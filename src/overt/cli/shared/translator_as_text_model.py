"""A translator as a text model of `overt explain`, and the attention of its decoder while it writes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from overt.errors import InputError
from overt.explain.encoded import Encoded, choose, fitting, require_words
from overt.explain.explanation import Explanation
from overt.explain.recipes.encoder_decoder import Written, between
from overt.learn.data.tokenizer import END
from overt.learn.processing.edits import token_spans
from overt.learn.translator import Translation, Translator
from overt.lens.recording import record
from overt.models import Seq2Seq, Transformer, TransformerEncoder


class TranslatorTextModel:
    """The encoder of a translator, as a text model of the lens."""

    def __init__(self, translator: Translator, *notes: str):
        model = translator.model
        if not isinstance(model, Transformer):
            raise InputError(
                "a model whose layers attend over the text's tokens",
                got=f"{translator.name}, a {type(model).__name__}",
                fix="choose a Transformer",
            )
        self.translator = translator
        self.network: TransformerEncoder = model.encoder
        self.name: str = translator.name
        self.notes: list[str] = [*notes, f"{self.name} reads with an encoder and writes with a decoder; this is its encoder."]
        self.limit: int | None = model.config["longest"] if model.config["positions"] == "learned" else None

    def encode(self, text: str, truncate: bool = False) -> Encoded:
        """Split a text into the translator's tokens, followed by the end token; refuse an empty text."""
        ids = self.translator.encode(require_words(text))
        if truncate and self.limit is not None and len(ids) > self.limit:
            ids = [*ids[: self.limit - 1], ids[-1]]
        prepared = self.translator.prepare(text)
        tokens = prepared.labels(self.translator.tokenizer.tokens(ids))
        return fitting(_encoded(text, ids, tokens, prepared.gap), self.limit, self.name)

    def run(self, encoded: Encoded) -> None:
        """Let the encoder read the tokens."""
        with torch.no_grad():
            self.network(torch.tensor([encoded.ids]))

    def word_vectors(self, ids: Sequence[int]) -> np.ndarray:
        """The tokens' own vectors (N, width), before any layer."""
        return self.network.embedding.table.weight.detach()[list(ids)].double().numpy()


class CrossAttentionMap(NamedTuple):
    """A name of the weights, the written tokens, the tokens read, and the weight of each written token on each token read."""

    caption: str
    query_tokens: list[str]
    key_tokens: list[str]
    weights: list[list[float]]


def cross_attention_map(translator: Translator, text: str, translation: Translation) -> CrossAttentionMap:
    """The weights of each written token: in a recurrent decoder's only head, or in the head that covers the source text best."""
    if isinstance(translator.model, Seq2Seq):
        return _map_of_recurrent(translator, text, translation)
    first = between(written(translator, text, translation))
    return CrossAttentionMap(f"{first.name} of {first.source}: {first.why}", first.query_tokens, first.tokens, first.matrix)


def explained(translator: Translator, text: str, translation: Translation, word: str | None = None) -> Explanation:
    """Explain a written token in the head that covers the source text best; refuse a recurrent decoder."""
    if isinstance(translator.model, Seq2Seq):
        raise InputError(
            "a decoder with queries and keys",
            got=f"{translator.name}, whose decoder is recurrent, with one query for each word",
            fix="show what each word attended to as a map: --map",
        )
    text_written = written(translator, text, translation)
    return between(text_written, None if word is None else choose(text_written.text, word).index)


@torch.no_grad()
def _map_of_recurrent(translator: Translator, text: str, translation: Translation) -> CrossAttentionMap:
    weights = translator.model.weights(*translator.teacher_forced(text, translation)).get("cross")
    if weights is None:
        raise InputError(
            "a decoder that attends to its encoder",
            got=f"{translator.name}, whose decoder reads one context vector and attends to nothing",
            fix="choose a model with attention",
        )
    read, wrote = _both(translator, text, translation)
    query = (
        "the query is the decoder's previous state"
        if translator.model.score_with == "previous"
        else "the query is the decoder's current state"
    )
    caption = f"{translator.name}: the weights of each word on the source text; {query}"
    return CrossAttentionMap(caption, wrote.tokens, read.tokens, weights[0][0, 0].tolist())


def written(translator: Translator, text: str, translation: Translation) -> Written:
    """Let the model write this translation again, in one pass, and record its attention."""
    source, target = translator.teacher_forced(text, translation)
    with torch.no_grad(), record(translator.model) as recording:
        translator.model(source, target)
    return Written(f"{translator.name}, decoder", *_both(translator, text, translation), recording)


def _both(translator: Translator, text: str, translation: Translation) -> tuple[Encoded, Encoded]:
    """The source and the translation, each with its end token, and with protected spans unchanged."""
    if not translation.ids:
        got = f"{text!r}, which is copied"
        raise InputError("a text with words, which the model translates", got=got, fix="pass a sentence")
    (read, wrote), gap = translator.labels(text, translation), translator.prepare(text).gap
    return _encoded(text, translator.encode(text), read, gap), _encoded(translation.text, [*translation.ids, END], wrote, gap)


def _encoded(text: str, ids: list[int], tokens: list[str], gap: int) -> Encoded:
    spans = [*token_spans(text, tokens[:-1], gap), (0, 0)]
    return Encoded.from_pieces(text, tokens, ids, spans, [len(ids) - 1])
