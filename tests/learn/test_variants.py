"""Altered training pairs: what is changed is changed on both sides, and nothing else is."""

import re

import pytest

from overt.errors import InputError
from overt.learn.config.settings import Data
from overt.learn.data.corpora import Example
from overt.learn.data.referring import antecedents
from overt.learn.data.variants import MAX_WORDS, with_variants
from overt.learn.data.word_pairs import word_pairs

PAIRS = [
    Example("Yesterday Ruth met Karl in 1950.", "Hier, Ruth a vu Karl en 1950."),
    Example("The friend of Ida is tall.", "L'ami de Ida est grand."),
    Example("Hello, how are you?", "Salut, comment ça va ?"),
    Example("Ruth sleeps.", "Ruth dort."),
    Example("the cat sleeps", "le chat dort"),
    Example("the cat eats", "le chat mange"),
    Example("a dog sleeps", "un chien dort"),
] * 6


@pytest.fixture(scope="module")
def altered():
    result = with_variants(PAIRS, 10.0, seed=3)
    assert result[: len(PAIRS)] == PAIRS
    return result[len(PAIRS) :]


def kind(altered, number):
    size = len(altered) // 5
    return altered[number * size : (number + 1) * size]


def test_there_are_as_many_as_the_share_says(altered):
    assert len(altered) == 10 * len(PAIRS)
    assert len(with_variants(PAIRS, 0.5, seed=3)) == len(PAIRS) + 5 * round(len(PAIRS) / 10)


def test_copies_have_the_same_new_names_and_numbers_on_both_sides(altered):
    first = [re.fullmatch(r"Yesterday (.+) met (.+) in (\d+)\.", each.source) for each in kind(altered, 0)]
    seconds = [re.fullmatch(r"Hier, (.+) a vu (.+) en (\d+)\.", each.target) for each in kind(altered, 0)]
    matches = [(a.groups(), b.groups()) for a, b in zip(first, seconds, strict=True) if a and b]
    assert matches
    assert all(source == target for source, target in matches)
    assert len({source for source, _ in matches}) == len(matches)
    assert ("Ruth", "Karl", "1950") not in {source for source, _ in matches}
    names = [name for (one, two, _), _ in matches for name in (one, two)]
    assert any(not name.isascii() for name in names)
    assert any(name.isascii() for name in names)


def test_no_new_name_after_a_word_that_would_be_elided_begins_with_a_vowel(altered):
    names = [match.group(1) for each in kind(altered, 0) if (match := re.match(r"The friend of (.+) is", each.source))]
    assert names
    assert not any(name[0] in "AEIOU" for name in names)


def test_careless_sources_have_one_case_and_no_last_sign_and_the_same_target(altered):
    by_target = {each.target: each.source for each in PAIRS}
    for source, target in kind(altered, 2):
        assert source in {by_target[target].rstrip(".?").lower(), by_target[target].rstrip(".?").upper()}


def test_short_ones_are_openings_and_words(altered):
    assert {tuple(each) for each in kind(altered, 3)} >= {("Hello", "Salut"), ("hello", "Salut"), ("sleeps", "dort")}


def test_joined_ones_are_whole_pairs_and_not_too_long(altered):
    sentences = {each.source: each.target for each in PAIRS}
    for source, target in kind(altered, 4):
        rest, translated = source, []
        while rest:
            one = max((each for each in sentences if rest.startswith(each)), key=len)
            translated, rest = [*translated, sentences[one]], rest[len(one) :].lstrip()
        assert " ".join(translated) == target
        assert len(source.split()) <= MAX_WORDS


def test_the_same_seed_gives_the_same_pairs():
    assert with_variants(PAIRS, 1.0, seed=4) == with_variants(PAIRS, 1.0, seed=4) != with_variants(PAIRS, 1.0, seed=5)


def test_pairs_without_names_or_words_give_what_they_can():
    assert len(with_variants([Example("…", "…")], 4.0, seed=0)) == 3  # careless and joined


def test_words_are_paired_only_where_they_are_sure_and_frequent():
    pairs = {tuple(pair) for pair in word_pairs(PAIRS)}
    assert pairs == {("Hello", "Salut"), ("eats", "mange"), ("sleeps", "dort")}
    assert word_pairs(PAIRS[4:7]) == []  # each word once


@pytest.mark.parametrize("value", [-0.1, 11, float("nan")])
def test_a_share_that_makes_no_sense_is_refused(value):
    with pytest.raises(InputError, match="variants from 0 to 10"):
        Data(variants=value)


def test_tags_have_no_variants():
    with pytest.raises(InputError, match="variants only for translated lines"):
        Data(format="conllu", variants=0.5)


def test_pronouns_agree_with_the_thing_that_they_stand_for():
    things = {"soup": "la soupe", "book": "le livre", "door": "la porte", "train": "le train"}
    states = {"hot": ("chaud", "chaude"), "old": ("vieux", "vieille"), "green": ("vert", "verte")}
    pairs = [
        Example(f"The {thing} is {state}.", f"{french.capitalize()} est {forms[french.startswith('la ')]}.")
        for thing, french in things.items()
        for state, forms in states.items()
    ] + [Example(f"I see the {thing}.", f"Je vois {french}.") for thing, french in things.items()]
    altered = with_variants(pairs, 6.0, seed=0)[len(pairs) :]
    referring = [each for each in altered if re.search(r"\b(because|but|and) it\b", each.source)]
    assert len(referring) == len(pairs)  # one of six parts
    for source, target in referring:
        [thing] = [name for name in things if f" {name}" in source]
        [state] = [name for name in states if source.endswith(f" {name}.")]
        feminine = things[thing].startswith("la ")
        assert f"{'elle' if feminine else 'il'} {'était' if ' was ' in source else 'est'} {states[state][feminine]}." in target


def test_a_noun_of_a_person_is_no_thing():
    pairs = [
        Example("The soup is hot.", "La soupe est chaude."),
        Example("I know a woman who sings.", "Je connais une femme qui chante."),
        Example("I see the woman.", "Je vois la femme."),
    ]
    assert antecedents(pairs) is None
    assert antecedents([*pairs, Example("I see the soup.", "Je vois la soupe.")]) is not None
