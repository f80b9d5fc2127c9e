"""The Moses tokenizer; published translation scores are often computed on its words."""

import functools
from collections.abc import Callable
from typing import Any

from overt.errors import InputError, MissingExtra


class Moses:
    """Split text into the words of the Moses scripts (Koehn et al. 2007), and join words to text.

    The steps follow Multi30k's script: lower-case (with `lower`), normalize punctuation, split. `languages` are source and
    target, since abbreviations and apostrophes differ.

    >>> moses = Moses(("en", "fr"), lower=True)
    >>> moses.tokenize("Mr. Smith can't wait."), moses.tokenize("L’homme attend.", target=True)
    ("mr. smith can 't wait .", "l' homme attend .")
    >>> moses.detokenize("l' homme attend .")
    "l'homme attend."
    """

    def __init__(self, languages: tuple[str, ...] | list[str], lower: bool = False):
        if len(languages) != 2:
            got = ", ".join(map(repr, languages)) or "none"
            raise InputError(
                "the languages of source and target for the Moses tokenizer", got=got, fix='name both: ["en", "de"]'
            )
        try:
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
        except ImportError as error:
            raise MissingExtra("the Moses tokenizer", needs="sacremoses", extra="train") from error
        self.languages: tuple[str, str] = (languages[0], languages[1])
        self.lower = lower
        self._normalizers = [MosesPunctNormalizer(lang=language) for language in languages]
        self._splitters = [MosesTokenizer(lang=language) for language in languages]
        self._joiner = MosesDetokenizer(lang=languages[1])
        # Cached: it is slow, and each text is tokenized twice, to learn the pieces and to encode it.
        self.tokenize: Callable[..., str] = functools.lru_cache(2**18)(self._tokenize)

    def _tokenize(self, text: str, *, target: bool = False) -> str:
        """The text's words, separated by spaces."""
        text = self._normalizers[target].normalize(text.lower() if self.lower else text)
        return " ".join(self._splitters[target].tokenize(text, escape=False))

    def detokenize(self, words: str) -> str:
        """Join words to text in the target language."""
        return str(self._joiner.detokenize(words.split(), unescape=False))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments for an equal object."""
        return {"languages": list(self.languages), "lower": self.lower}
