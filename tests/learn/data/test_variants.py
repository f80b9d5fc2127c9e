"""Altered training pairs: what is changed is changed on both sides, and nothing else is."""

import doctest
import random
import re

import pytest

from overt.errors import InputError
from overt.learn.config.recipe import read_recipe
from overt.learn.data.corpora import CorpusExample, read_corpus
from recipes.variants import __main__ as script
from recipes.variants import altered as altered_pairs
from recipes.variants import copied as copied_pairs
from recipes.variants import dates, names, referring, with_variants
from recipes.variants import statements as statement_pairs
from recipes.variants import word_pairs as word_lists
from recipes.variants.altered import MAX_WORDS
from recipes.variants.copied import copied
from recipes.variants.dates import dated
from recipes.variants.referring import antecedents
from recipes.variants.statements import statements
from recipes.variants.word_pairs import word_pairs

PAIRS = [
    CorpusExample("Yesterday Ruth met Karl in 1950.", "Hier, Ruth a vu Karl en 1950."),
    CorpusExample("The friend of Ida is tall.", "L'ami de Ida est grand."),
    CorpusExample("Hello, how are you?", "Salut, comment ça va ?"),
    CorpusExample("Ruth sleeps.", "Ruth dort."),
    CorpusExample("the cat sleeps", "le chat dort"),
    CorpusExample("the cat eats", "le chat mange"),
    CorpusExample("a dog sleeps", "un chien dort"),
] * 6


@pytest.fixture(scope="module")
def altered():
    result = with_variants(PAIRS, 10.0, seed=3)
    assert result[: len(PAIRS)] == PAIRS
    return result[len(PAIRS) :]


def kind(altered, number):
    size = len(altered) // 5
    return altered[number * size : (number + 1) * size]


def titled(names):
    """Names with the titles that French has for English ones."""
    return tuple(name.replace("Mr.", "M.").replace("Mrs.", "Mme") for name in names)


def test_there_are_as_many_as_the_share_says(altered):
    assert len(altered) == 10 * len(PAIRS)
    assert len(with_variants(PAIRS, 0.5, seed=3)) == len(PAIRS) + 5 * round(len(PAIRS) / 10)


def test_copies_have_the_same_new_names_and_numbers_on_both_sides(altered):
    first = [re.fullmatch(r"Yesterday (.+) met (.+) in (\d+)\.", each.source) for each in kind(altered, 1)]
    seconds = [re.fullmatch(r"Hier, (.+) a vu (.+) en (\d+)\.", each.target) for each in kind(altered, 1)]
    matches = [(a.groups(), b.groups()) for a, b in zip(first, seconds, strict=True) if a and b]
    assert matches
    assert all(titled(source) == target for source, target in matches)
    assert ("Ruth", "Karl", "1950") not in {source for source, _ in matches}
    names = [name for (one, two, _), _ in matches for name in (one, two)]
    assert any(not name.isascii() for name in names)
    assert any(name.isascii() for name in names)


def test_a_word_before_a_new_name_is_elided_where_the_name_begins_with_a_vowel(altered):
    targets = [each.target for each in kind(altered, 1) if each.target.startswith("L'ami d")]
    before = {
        target[len("L'ami d") + 1 :].removeprefix(" ")[0] in "AEIOUÁÖÜØ": target[7] for target in targets if target.isascii()
    }
    assert before == {True: "'", False: "e"}
    assert copied(CorpusExample("Ida's", "d'Ida"), {"Ida"}, random.Random(1), french=True).target == "de Ykjongstiang"


def test_new_names_are_of_the_same_kind():
    generator = random.Random(0)
    for like, kind_of in (("Tom", names.MEN), ("Mary", names.WOMEN), ("Paris", names.PLACES)):
        known = {name for name, _ in (names.new_name(like, generator) for _ in range(500))} & {
            each.partition("/")[0] for each in (*names.MEN, *names.WOMEN, *names.PLACES)
        }
        assert len(known) > 20
        assert known <= {each.partition("/")[0] for each in kind_of}


def test_places_are_written_as_each_language_does():
    generator = random.Random(0)
    assert dict(names.new_name("Boston", generator) for _ in range(3000))["Vienna"] == "Vienne"


def test_careless_sources_have_one_case_and_no_last_sign_and_the_same_target(altered):
    by_target = {each.target: each.source for each in PAIRS}
    for source, target in kind(altered, 0):
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
    assert len(with_variants([CorpusExample("…", "…")], 4.0, seed=0)) == 5  # careless and joined


def test_words_are_paired_only_where_they_are_sure_and_frequent():
    pairs = {tuple(pair) for pair in word_pairs(PAIRS)}
    assert pairs == {("Hello", "Salut"), ("eats", "mange"), ("sleeps", "dort")}
    assert word_pairs(PAIRS[4:7]) == []  # each word once


@pytest.fixture
def recipe(tmp_path):
    pairs = "".join(f"{source} {number}\t{target} {number}\n" for number in range(4) for source, target in PAIRS[:4])
    (tmp_path / "pairs.tsv").write_text(pairs)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
        [data]
        format = "pairs"
        folder = "{tmp_path}"
        train = ["pairs.tsv"]
        held_out = [2, 2]
        added = ["{tmp_path}/variants.tsv"]
        languages = ["en", "fr"]
        [model]
        kind = "Transformer"
        [training]
        updates = 1
    """)
    return recipe


def write(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["variants", *map(str, arguments)])
    script.main()


def test_the_script_writes_what_the_recipe_adds(recipe, tmp_path, monkeypatch, capsys):
    write(monkeypatch, recipe, "--share", "2", "--out", tmp_path / "variants.tsv")
    corpus = read_corpus(read_recipe(recipe).data)
    expected = with_variants(corpus.train, 2.0, seed=0)[len(corpus.train) :]
    held_out = {example.source for example in (*corpus.valid, *corpus.test)}
    assert [*corpus.added] == [example for example in expected if example.source not in held_out]
    assert f"{len(expected)} altered copies of {len(corpus.train)} pairs" in capsys.readouterr().out


@pytest.mark.parametrize("share", ["-0.1", "0", "11", "nan"])
def test_a_share_that_makes_no_sense_is_refused(share, recipe, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="Expected --share above 0 and up to 10, got "):
        write(monkeypatch, recipe, f"--share={share}", "--out", tmp_path / "variants.tsv")
    assert not (tmp_path / "variants.tsv").exists()


def test_tags_have_no_variants(tmp_path, monkeypatch):
    recipe = tmp_path / "tags.toml"
    recipe.write_text(
        'task = "tag"\n[data]\nformat = "conllu"\ntrain = ["tags.conllu"]\n[model]\nkind = "Tagger"\n[training]\nupdates = 1\n'
    )
    with pytest.raises(InputError, match="a recipe of a translation, got task 'tag'"):
        write(monkeypatch, recipe, "--out", tmp_path / "variants.tsv")


def test_the_former_key_of_a_recipe_names_the_script(recipe):
    recipe.write_text(recipe.read_text().replace("held_out", "variants = 1.0\n        held_out"))
    with pytest.raises(InputError, match="got 'variants' .* python -m recipes.variants and name that file in added"):
        read_recipe(recipe, files=False)


@pytest.mark.parametrize(
    "module",
    [altered_pairs, copied_pairs, dates, names, referring, statement_pairs, word_lists],
    ids=lambda module: module.__name__,
)
def test_the_examples_run(module):
    assert doctest.testmod(module).failed == 0


def test_pronouns_agree_with_the_thing_that_they_stand_for():
    things = {"soup": "la soupe", "book": "le livre", "door": "la porte", "train": "le train"}
    states = {"hot": ("chaud", "chaude"), "old": ("vieux", "vieille"), "green": ("vert", "verte")}
    pairs = [
        CorpusExample(f"The {thing} is {state}.", f"{french.capitalize()} est {forms[french.startswith('la ')]}.")
        for thing, french in things.items()
        for state, forms in states.items()
    ] + [CorpusExample(f"I see the {thing}.", f"Je vois {french}.") for thing, french in things.items()]
    altered = with_variants(pairs, 6.0, seed=0)[len(pairs) :]
    referring = [each for each in altered if re.search(r"\b(because|but|and) it\b", each.source)]
    assert len(referring) == len(altered) / 4  # one of four parts
    for source, target in referring:
        [thing] = [name for name in things if f" {name}" in source]
        [state] = [name for name in states if source.endswith(f" {name}.")]
        feminine = things[thing].startswith("la ")
        assert f"{'elle' if feminine else 'il'} {'était' if ' was ' in source else 'est'} {states[state][feminine]}." in target


def test_a_noun_of_a_person_is_no_thing():
    pairs = [
        CorpusExample("The soup is hot.", "La soupe est chaude."),
        CorpusExample("I know a woman who sings.", "Je connais une femme qui chante."),
        CorpusExample("I see the woman.", "Je vois la femme."),
    ]
    assert antecedents(pairs) is None
    assert antecedents([*pairs, CorpusExample("I see the soup.", "Je vois la soupe.")]) is not None


def test_what_a_person_did_to_a_thing_agrees_with_it():
    pairs = [
        CorpusExample("The door is green.", "La porte est verte."),
        CorpusExample("The book is green.", "Le livre est vert."),
        CorpusExample("I see the door.", "Je vois la porte."),
        CorpusExample("I see the book.", "Je vois le livre."),
        CorpusExample("He painted it.", "Il l'a peint."),
    ]
    parts, generator = antecedents(pairs), random.Random(0)
    targets = {each.target for each in (parts.pick(generator) for _ in range(200)) if "painted" in each.source}
    assert {target.rpartition(" ")[2] for target in targets if "porte" in target} == {"peinte."}
    assert {target.rpartition(" ")[2] for target in targets if "livre" in target} == {"peint."}
    assert all("je l'ai" in target for target in targets)


def test_times_and_dates_are_the_same_on_both_sides():
    [time, date] = dated(
        [
            CorpusExample("I got up at six o'clock yesterday.", "Je me suis levé à six heures hier."),
            CorpusExample("She left on May 3rd, 1999.", "Elle est partie le 3 mai 1999."),
            CorpusExample("It was half past six.", "Il était six heures et demie."),
            CorpusExample("At six or at seven?", "À six heures ou à sept heures ?"),
        ]
    )
    generator = random.Random(0)
    for _ in range(200):
        source, target = time.altered(generator)
        hour, minute, half = re.fullmatch(r"I got up at (\d+):(\d\d)( [ap]\.m\.)? yesterday\.", source).groups()
        expected = int(hour) if half is None else int(hour) % 12 + 12 * (half == " p.m.")
        assert target == f"Je me suis levé à {expected}h{minute} hier."
        source, target = date.altered(generator)
        assert source.startswith("She left on ")
        day, year = re.fullmatch(r"Elle est partie le (1er|\d+) \w+( \d{4})?\.", target).groups()
        assert re.search(rf"\b{day.removesuffix('er')}(st|nd|rd|th)?\b", source)
        assert (year or "") in source


def test_a_time_at_the_end_of_a_sentence_has_one_full_stop():
    [time] = dated([CorpusExample("I got up at 6 a.m.", "Je me suis levé à 6 heures.")])
    generator = random.Random(0)
    assert not any(".." in "".join(time.altered(generator)) for _ in range(50))


def test_people_with_names_have_the_verb_of_the_pronoun():
    pairs = [
        ("He is late.", "Il est en retard."),
        ("We are late.", "Nous sommes en retard."),
        ("They are late.", "Elles sont en retard."),
    ]
    people, generator = statements([CorpusExample(*pair) for pair in pairs]), random.Random(0)
    for source, target in (people.named(generator) for _ in range(100)):
        who, verb = re.fullmatch(r"(.+) (is|are) late\.", source).groups()
        french = {"is": "est", "are": "sommes" if who.endswith(" and I") else "sont"}[verb]
        assert target.endswith(f" {french} en retard.")
        assert (" and " in who) == (verb == "are")
        assert (" et " in target) == (verb == "are")


def test_statements_are_joined_whole_and_with_one_form_of_you():
    pairs = [
        ("You sing.", "Tu chantes."),
        ("You dance.", "Vous dansez."),
        ("I eat.", "Je mange."),
        ("She is late.", "Elle est en retard."),
    ]
    french = {source[:-1].lower(): target[:-1].lower() for source, target in pairs}
    people, generator = statements([CorpusExample(*pair) for pair in pairs]), random.Random(0)
    parts_of_all = set()
    for source, target in (people.coordinated(generator) for _ in range(300)):
        parts = re.split(r"(?:, and|, but|, so| and| because|,) ", source[:-1])
        assert len(parts) in (2, 3)
        assert not ("tu " in target.lower() and "vous " in target.lower())
        parts_of_all |= {part.lower() for part in parts}
        for part in parts:
            assert any(whole.endswith(part.lower()) and french[whole] in target.lower() for whole in french), (source, target)
    assert "i eat" in parts_of_all


def test_a_statement_follows_a_sentence_that_ends_with_a_name():
    pairs = [CorpusExample("My name is Ruth.", "Je m'appelle Ruth."), CorpusExample("She is late.", "Elle est en retard.")]
    altered = with_variants(pairs * 10, 8.0, seed=0)[20:]
    names_of = [re.fullmatch(r"My name is (.+?)(?: and|, and|, but) she is late\.", each.source) for each in altered]
    assert any(names_of)
    for match, each in zip(names_of, altered, strict=True):
        if match:
            assert re.fullmatch(
                rf"Je m'appelle {re.escape(match.group(1))}(?: et|, et|, mais) elle est en retard\.", each.target
            )


def test_names_in_other_languages_are_invented_and_the_same():
    pairs = [
        CorpusExample("Ruth lives in Vienna.", "Ruth wohnt in Wien."),
        CorpusExample("I met Karl in Boston.", "Ich traf Karl in Boston."),
    ]
    altered = with_variants(pairs * 30, 9.0, seed=0)[60:]
    changed = [re.fullmatch(r"I met ([^.]+) in ([^.]+)\.", each.source) for each in altered]
    assert sum(map(bool, changed)) > 50
    for match, each in zip(changed, altered, strict=True):
        if match:
            assert each.target == f"Ich traf {match.group(1)} in {match.group(2)}."
            assert not match.group(1).startswith(("Mr.", "Mrs."))


def test_other_languages_have_no_statements_or_dates():
    pairs = [CorpusExample("I am late.", "Ich bin spät dran."), CorpusExample("He left at six.", "Er ging um sechs.")]
    assert statements(pairs) is None
    assert dated(pairs) == []
