"""Pairs with other names and numbers than they had, the same on both sides."""

import random
import re

from overt.learn.data.corpora import CorpusExample
from recipes.variants.names import new_name

_NUMBER = re.compile(r"\d+")
_CAPITALIZED = re.compile(r"\b[A-Z]\w+")
_LOWER = re.compile(r"\b[a-z]\w+")
_TITLE = r"\b(?:Mr|Mrs|Ms|Miss|Dr)\.? "
_VOWELS = "AEIOUÀÂÄÁÅÆÉÈÊËÎÏÍÔÖÓŒÙÛÜÚ"
_ELIDED = r"(?:\b([Dd]|[Qq]u|[Jj]usqu|[Ll]orsqu|[Pp]uisqu)(?:e |['’]))?"  # French words that lose their e before a vowel


def capitalized_names(examples: list[CorpusExample]) -> set[str]:
    """The words of the sources that begin with a capital letter and are never written without one, and those after a title."""
    sources = [example.source for example in examples]
    lower = {word for source in sources for word in _LOWER.findall(source)}
    names = {word for source in sources for word in _CAPITALIZED.findall(source) if word.lower() not in lower}
    return names | {word for source in sources for word in re.findall(rf"{_TITLE}([A-Z]\w+)", source)}


def shared_parts(example: CorpusExample, names: set[str]) -> list[str]:
    """The numbers and the names that both sides hold equally often."""
    parts = dict.fromkeys([*_NUMBER.findall(example.source), *(w for w in _CAPITALIZED.findall(example.source) if w in names)])
    return [part for part in parts if _count(part, example.source) == _count(part, example.target)]


def copied(example: CorpusExample, names: set[str], generator: random.Random, *, french: bool) -> CorpusExample:
    """The example with a new number or name for each shared part; French elides before it what is elided before a vowel.

    From English to French a name's kind is kept (`new_name`); other languages have invented ones, which are the same in both.

    >>> copied(CorpusExample("Tom's car", "la voiture de Tom"), {"Tom"}, random.Random(6), french=True)
    CorpusExample(source="Athé's car", target="la voiture d'Athé")
    """
    source, target = example
    for part in shared_parts(example, names):
        like = None if not french else "Smith" if re.search(_TITLE + re.escape(part), source) else part
        new, translated = [_number(generator)] * 2 if part.isdigit() else new_name(like, generator)
        source = re.sub(rf"\b{re.escape(part)}\b", lambda _: new, source)  # noqa: B023
        target = re.sub(rf"{_ELIDED}\b{re.escape(part)}\b", lambda match: _elided(match.group(1), translated), target)  # noqa: B023
    return CorpusExample(source, target)


def _elided(before: str | None, name: str) -> str:
    """A name after "d", "qu" and the like, if there is one, with their end: "d'Anna", "de Ruth"."""
    return name if before is None else f"{before}'{name}" if name[0] in _VOWELS else f"{before}e {name}"


def _count(part: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(part)}\b", text))


def _number(generator: random.Random) -> str:
    """A number of up to six digits, or one in four groups of two to four digits, as those of telephones."""
    if generator.random() < 0.25:
        return " ".join(
            str(generator.randrange(10**size)).zfill(size) for size in generator.choices((2, 3, 4), k=generator.randint(2, 4))
        )
    return str(generator.randrange(10 ** generator.randint(1, 6)))
