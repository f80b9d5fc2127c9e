"""The kinds of altered training pairs, and as many of each.

Names and numbers are copied rather than translated; a model learns that from names it has never seen (Currey et al. 2017 copy whole
sentences for the same end).
"""

import random
from collections.abc import Callable

from overt.learn.data.corpora import CorpusExample
from recipes.variants.copied import capitalized_names, copied, shared_parts
from recipes.variants.dates import dated
from recipes.variants.referring import antecedents
from recipes.variants.statements import statements
from recipes.variants.word_pairs import word_pairs

MAX_WORDS = 60  # of a text that is joined from several


def with_variants(examples: list[CorpusExample], share: float, seed: int) -> list[CorpusExample]:
    """The examples, and `share` times as many altered ones, as far as the data allow: two parts copied, one of each other kind.

    - copied: the names and numbers that stand on both sides are replaced on both by new ones, some of them in other scripts
    - careless: the source in lower case (sometimes in capitals), without its last sign; the target stays as it is
    - short: words and openings ("Hello") with their translations, from the examples themselves, half of them in lower case
    - joined: up to five examples one after another, of at most 60 words

    And from English to French alone:

    - dated: other times of day and dates (`dates.dated`)
    - named: a sentence about him, her, us or them, about people with names (`statements.Statements.named`)
    - coordinated: two or three statements in one sentence (`statements.Statements.coordinated`)
    - continued: a statement after a sentence that ends with a name: "I am Karl and I live in Oslo." (`statements.Statements.continued`)
    - referring: a sentence that goes on with a pronoun for a thing in it (`referring.antecedents`)

    >>> pairs = [CorpusExample("I saw Bob in 1999.", "J'ai vu Bob en 1999."), CorpusExample("Sit down.", "Assieds-toi.")]
    >>> for example in with_variants(pairs, 2.5, seed=0)[2:5]:
    ...     print(example.source, "→", example.target)
    sit down → Assieds-toi.
    I saw Áxougru in 366 9558 3578 8268. → J'ai vu Áxougru en 366 9558 3578 8268.
    I saw Kjeiletzya in 346236. → J'ai vu Kjeiletzya en 346236.
    """
    generator = random.Random(seed)
    short, times = word_pairs(examples), dated(examples)
    names = capitalized_names(examples)
    shared = [example for example in examples if shared_parts(example, names)]
    people = statements(examples)

    def copy(sources: list[CorpusExample]) -> CorpusExample:
        return copied(generator.choice(sources), names, generator, french=people is not None)

    makers: list[Callable[[], CorpusExample]] = [lambda: _careless(generator.choice(examples), generator)]
    makers += [lambda: copy(shared)] * (2 if shared else 0)
    makers += [lambda: _lowered(generator.choice(short), generator)] if short else []
    makers.append(lambda: _joined(generator.choices(examples, k=generator.randint(2, 5))))
    makers += [lambda: generator.choice(times).altered(generator)] if times else []
    if people:
        makers += [lambda: people.named(generator), lambda: people.coordinated(generator)]
        endings = [example for example in shared if _ends_with_name(example, names)]
        makers += [lambda: people.continued(copy(endings), generator)] if endings else []
    if things := antecedents(examples):
        makers.append(lambda: things.pick(generator))
    count = round(share * len(examples) / len(makers))
    return examples + [make() for make in makers for _ in range(count)]


def _ends_with_name(example: CorpusExample, names: set[str]) -> bool:
    """Whether both sides end with the same name and a full stop."""
    last = example.source.rpartition(" ")[2]
    return last.endswith(".") and last[:-1] in names and example.target.endswith(f" {last}")


def _careless(example: CorpusExample, generator: random.Random) -> CorpusExample:
    source = example.source.rstrip(" .!?")
    return CorpusExample(source.upper() if generator.random() < 0.1 else source.lower(), example.target)


def _lowered(example: CorpusExample, generator: random.Random) -> CorpusExample:
    return CorpusExample(example.source.lower(), example.target) if generator.random() < 0.5 else example


def _joined(group: list[CorpusExample]) -> CorpusExample:
    while len(group) > 1 and max(sum(len(text.split()) for text in side) for side in zip(*group, strict=True)) > MAX_WORDS:
        group.pop()
    return CorpusExample(*(" ".join(side) for side in zip(*group, strict=True)))
