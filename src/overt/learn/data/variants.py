"""Altered copies of training pairs, for input that the data lack: new names and numbers, careless typing, single words, long texts.

Names and numbers are copied rather than translated; a model learns that from names it has never seen (Currey et al. 2017 copy whole
sentences for the same end).
"""

import random
import re
from collections.abc import Callable

from overt.learn.data.corpora import Example
from overt.learn.data.word_pairs import word_pairs

MAX_WORDS = 60  # of a text that is joined from several

_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w+")  # a capital letter that begins no sentence
_VOWELS, _CONSONANTS = "aeiou", "bcdfgklmnprstvz"
# One character of each script in turn: Latin with marks, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, kana, Han, Hangul, emoji.
_SCRIPTS = (
    (0xC0, 0x17F),
    (0x3B1, 0x3C9),
    (0x430, 0x44F),
    (0x5D0, 0x5EA),
    (0x627, 0x64A),
    (0x905, 0x939),
    (0xE01, 0xE2E),
    (0x3041, 0x30FA),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F64F),
)


def with_variants(examples: list[Example], share: float, seed: int) -> list[Example]:
    """The examples, and `share` times as many altered ones: a quarter of each kind, as far as the data allow.

    - copied: the names and numbers that stand on both sides are replaced on both by new ones, some of them in other scripts
    - careless: the source in lower case (sometimes in capitals), without its last sign; the target stays as it is
    - short: words and openings ("Hello") with their translations, from the examples themselves, half of them in lower case
    - joined: up to five examples one after another, of at most 60 words

    >>> pairs = [Example("I saw Ann in 1999.", "J'ai vu Ann en 1999."), Example("Sit down.", "Assieds-toi.")]
    >>> for example in with_variants(pairs, 2.0, seed=0)[2:]:
    ...     print(example.source, "→", example.target)
    I saw Zizkut in 663. → J'ai vu Zizkut en 663.
    i saw ann in 1999 → J'ai vu Ann en 1999.
    Sit down. Sit down. Sit down. → Assieds-toi. Assieds-toi. Assieds-toi.
    """
    generator = random.Random(seed)
    count = round(share * len(examples) / 4)
    short = word_pairs(examples)
    shared = [example for example in examples if _shared_parts(example)]
    makers: list[tuple[list[Example], Callable[[Example], Example]]] = [
        (shared, lambda example: _copied(example, generator)),
        (examples, lambda example: _careless(example, generator)),
        (short, lambda example: Example(example.source.lower(), example.target) if generator.random() < 0.5 else example),
        (examples, lambda example: _joined(example, examples, generator)),
    ]
    altered = [make(generator.choice(sources)) for sources, make in makers if sources for _ in range(count)]
    return examples + altered


def _shared_parts(example: Example) -> list[str]:
    """The numbers and the names within a sentence that both sides hold equally often."""
    parts = dict.fromkeys(_NUMBER.findall(example.source) + _NAME.findall(example.source))
    return [part for part in parts if _count(part, example.source) == _count(part, example.target)]


def _count(part: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(part)}\b", text))


def _copied(example: Example, generator: random.Random) -> Example:
    source, target = example
    for part in _shared_parts(example):
        # No vowel after "de" and the like, which would be elided: "d'Anna".
        elided = re.search(rf"\b\w*[ea] {re.escape(part)}\b", target)
        new = _number(generator) if part.isdigit() else _name(generator, vowel=not elided)
        source, target = (re.sub(rf"\b{re.escape(part)}\b", lambda _: new, side) for side in (source, target))  # noqa: B023
    return Example(source, target)


def _number(generator: random.Random) -> str:
    return str(generator.randrange(10 ** generator.randint(1, 6)))


def _name(generator: random.Random, *, vowel: bool) -> str:
    """A name of random syllables; one in five is of another script."""
    if generator.random() < 0.2:
        first, last = generator.choice(_SCRIPTS)
        return "".join(chr(generator.randint(first, last)) for _ in range(generator.randint(1, 5)))
    letters = [generator.choice(_VOWELS)] if vowel and generator.random() < 0.3 else []
    for _ in range(generator.randint(1, 3)):
        letters += [
            generator.choice(_CONSONANTS),
            generator.choice(_VOWELS),
            *generator.choices(["", *_CONSONANTS], [12, *[1] * 15]),
        ]
    return "".join(letters).capitalize()


def _careless(example: Example, generator: random.Random) -> Example:
    source = example.source.rstrip(" .!?")
    return Example(source.upper() if generator.random() < 0.1 else source.lower(), example.target)


def _joined(example: Example, examples: list[Example], generator: random.Random) -> Example:
    group = [example, *generator.choices(examples, k=generator.randint(1, 4))]
    while len(group) > 1 and max(sum(len(text.split()) for text in side) for side in zip(*group, strict=True)) > MAX_WORDS:
        group.pop()
    return Example(*(" ".join(side) for side in zip(*group, strict=True)))
