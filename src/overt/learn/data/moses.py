"""Moses's words: the splitting that published translation scores are counted on."""

import functools
from typing import Any

from overt.errors import InputError, MissingExtra


class Moses:
    """Split text into the words of the Moses scripts (Koehn et al. 2007), and put words together again.

    In the order of Multi30k's own script: lower-case if asked, make punctuation plain, split. `languages` are the source's and
    the target's, since abbreviations and apostrophes differ.

    >>> moses = Moses(("en", "fr"), lower=True)
    >>> moses.words("Mr. Smith can't wait."), moses.words("L’homme attend.", target=True)
    ("mr. smith can 't wait .", "l' homme attend .")
    >>> moses.text("l' homme attend .")
    "l'homme attend."
    """

    def __init__(self, languages: tuple[str, ...] | list[str], lower: bool = False):
        if len(languages) != 2:
            got = ", ".join(map(repr, languages)) or "none"
            raise InputError("Moses's words need the languages of source and target", got=got, fix='name both: ["en", "de"]')
        try:
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
        except ImportError as error:
            raise MissingExtra("splitting into Moses's words", needs="sacremoses", extra="train") from error
        self.languages, self.lower = (languages[0], languages[1]), lower
        self._normalizers = [MosesPunctNormalizer(lang=language) for language in languages]
        self._splitters = [MosesTokenizer(lang=language) for language in languages]
        self._joiner = MosesDetokenizer(lang=languages[1])
        # Splitting is slow, and a text is split twice: to learn its pieces, and to be cut into them.
        self.words = functools.lru_cache(2**18)(self._words)

    def _words(self, text: str, *, target: bool = False) -> str:
        """The text's words with a space between each two."""
        text = self._normalizers[target].normalize(text.lower() if self.lower else text)
        return " ".join(self._splitters[target].tokenize(text, escape=False))

    def text(self, words: str) -> str:
        """The target's text that these words make."""
        return str(self._joiner.detokenize(words.split(), unescape=False))

    def config(self) -> dict[str, Any]:
        """What builds the same again."""
        return {"languages": list(self.languages), "lower": self.lower}
