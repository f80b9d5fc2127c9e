"""Altered copies of training pairs, for input that the data lack: new names and numbers, careless typing, single words, long texts.

Names and numbers are copied rather than translated; a model learns that from names it has never seen (Currey et al. 2017 copy whole
sentences for the same end).
"""

import random
import re
from collections.abc import Callable

from overt.learn.data.corpora import Example
from overt.learn.data.referring import antecedents
from overt.learn.data.word_pairs import word_pairs

MAX_WORDS = 60  # of a text that is joined from several

_NUMBER = re.compile(r"\d+")
_CAPITALIZED = re.compile(r"\b[A-Z]\w+")
_LOWER = re.compile(r"\b[a-z]\w+")
# The sounds of a syllable of a new name, the commoner ones more often, and those that neither language has: Kowalczyk, Reykjavik, Nguyen.
_ONSETS = "b bl br c ch d dr f g gr h j k kj kl kr l m n ng p pr q r s sh sk st sz t th tr v w x y z zh"
_VOWELS = "a e i o u a e i o u a e i o u y ai ei ey ia ie oa ou uy é á ö ü ø"
_CODAS = "l m n r s t k d p x ck cz ng nd rt sz tz w ll mm nn ss tt"
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
    """The examples, and `share` times as many altered ones, as far as the data allow: two parts copied, one of each other kind.

    - copied: the names and numbers that stand on both sides are replaced on both by new ones, some of them in other scripts
    - careless: the source in lower case (sometimes in capitals), without its last sign; the target stays as it is
    - short: words and openings ("Hello") with their translations, from the examples themselves, half of them in lower case
    - joined: up to five examples one after another, of at most 60 words
    - referring: English to French alone, a sentence that goes on with a pronoun for a thing in it (`referring.antecedents`)

    >>> pairs = [Example("I saw Ann in 1999.", "J'ai vu Ann en 1999."), Example("Sit down.", "Assieds-toi.")]
    >>> for example in with_variants(pairs, 2.5, seed=0)[2:5]:
    ...     print(example.source, "→", example.target)
    I saw Ngyvuk in 663. → J'ai vu Ngyvuk en 663.
    I saw Pryn in 931 68. → J'ai vu Pryn en 931 68.
    i saw ann in 1999 → J'ai vu Ann en 1999.
    """
    generator = random.Random(seed)
    short = word_pairs(examples)
    names = _names(examples)
    shared = [example for example in examples if _shared_parts(example, names)]
    makers: list[tuple[list[Example], Callable[[Example], Example]]] = [
        *[(shared, lambda example: _copied(example, names, generator))] * 2,
        (examples, lambda example: _careless(example, generator)),
        (short, lambda example: Example(example.source.lower(), example.target) if generator.random() < 0.5 else example),
        (examples, lambda example: _joined(example, examples, generator)),
    ]
    if parts := antecedents(examples):
        makers.append((examples, lambda example: parts.pick(generator)))
    count = round(share * len(examples) / len(makers))
    altered = [make(generator.choice(sources)) for sources, make in makers if sources for _ in range(count)]
    return examples + altered


def _names(examples: list[Example]) -> set[str]:
    """The words of the sources that begin with a capital letter and are never written without one."""
    sources = [example.source for example in examples]
    lower = {word for source in sources for word in _LOWER.findall(source)}
    return {word for source in sources for word in _CAPITALIZED.findall(source) if word.lower() not in lower}


def _shared_parts(example: Example, names: set[str]) -> list[str]:
    """The numbers and the names that both sides hold equally often."""
    parts = dict.fromkeys([*_NUMBER.findall(example.source), *(w for w in _CAPITALIZED.findall(example.source) if w in names)])
    return [part for part in parts if _count(part, example.source) == _count(part, example.target)]


def _count(part: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(part)}\b", text))


def _copied(example: Example, names: set[str], generator: random.Random) -> Example:
    source, target = example
    for part in _shared_parts(example, names):
        # No vowel after "de" and the like, which would be elided: "d'Anna".
        elided = re.search(rf"\b\w*[ea] {re.escape(part)}\b", target)
        new = _number(generator) if part.isdigit() else _name(generator, vowel=not elided)
        source, target = (re.sub(rf"\b{re.escape(part)}\b", lambda _: new, side) for side in (source, target))  # noqa: B023
    return Example(source, target)


def _number(generator: random.Random) -> str:
    """A number of up to six digits, or one in four groups of two to four digits, as those of telephones."""
    if generator.random() < 0.25:
        return " ".join(
            str(generator.randrange(10**size)).zfill(size) for size in generator.choices((2, 3, 4), k=generator.randint(2, 4))
        )
    return str(generator.randrange(10 ** generator.randint(1, 6)))


def _name(generator: random.Random, *, vowel: bool) -> str:
    """A name of random syllables; one in ten is of another script."""
    if generator.random() < 0.1:
        first, last = generator.choice(_SCRIPTS)
        return "".join(chr(generator.randint(first, last)) for _ in range(generator.randint(1, 5)))
    sounds = [generator.choice(_VOWELS.split())] if vowel and generator.random() < 0.3 else []
    for _ in range(generator.randint(1, 3)):
        coda = generator.choice(_CODAS.split()) if generator.random() < 0.5 else ""
        sounds += [generator.choice(_ONSETS.split()), generator.choice(_VOWELS.split()), coda]
    return "".join(sounds).capitalize()


def _careless(example: Example, generator: random.Random) -> Example:
    source = example.source.rstrip(" .!?")
    return Example(source.upper() if generator.random() < 0.1 else source.lower(), example.target)


def _joined(example: Example, examples: list[Example], generator: random.Random) -> Example:
    group = [example, *generator.choices(examples, k=generator.randint(1, 4))]
    while len(group) > 1 and max(sum(len(text.split()) for text in side) for side in zip(*group, strict=True)) > MAX_WORDS:
        group.pop()
    return Example(*(" ".join(side) for side in zip(*group, strict=True)))
