import pytest
import torch

from overt.errors import InputError
from overt.learn import translator as translators
from overt.learn.run.model_folder import save_model
from overt.learn.translator import Translator
from overt.models import TransformerEncoder, greedy_search
from translators import ENGLISH, FRENCH, by_heart


def test_what_was_learnt_by_heart_is_translated_in_the_order_of_the_texts():
    assert [each.text for each in by_heart().translate(ENGLISH)] == FRENCH


def test_batches_change_no_translation():
    texts = [*ENGLISH, "Tom", "I am happy to see you, my friend. Where is the cat?", "you", "…"]
    alone = [by_heart().translate([text], beam=3)[0] for text in texts]
    for tokens in (1, 40, 4096):
        together = by_heart().translate(texts, beam=3, tokens_per_batch=tokens)
        assert [each.ids for each in together] == [each.ids for each in alone]


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize(("rows", "sizes"), [(3, [3, 3, 1]), (7, [7]), (1, [1] * 7), (0.5, [1] * 7)])
def test_as_many_texts_are_read_together_as_the_tokens_allow_times_the_beam(monkeypatch, beam, rows, sizes):
    translator, read = by_heart(), []
    search = Translator._search
    monkeypatch.setattr(
        Translator, "_search", lambda self, source, *rest: read.append(source.shape) or search(self, source, *rest)
    )
    length = len(translator.encode(ENGLISH[1]))
    translator.translate([ENGLISH[1]] * 7, beam=beam, tokens_per_batch=int(rows * length * beam))
    assert read == [(size, length) for size in sizes]


def test_texts_without_words_have_empty_translations_in_their_places():
    result = by_heart().translate(["", ENGLISH[1], "  \t", ENGLISH[2]])
    assert [each.text for each in result] == ["", FRENCH[1], "", FRENCH[2]]
    assert result[0].tokens == result[0].source_tokens == []


def test_candidates_are_different_and_come_best_first():
    [result] = by_heart().candidates([ENGLISH[0]], best=4, beam=4)
    assert len({tuple(each.ids) for each in result}) == 4
    assert [each.score for each in result] == sorted((each.score for each in result), reverse=True)


def test_a_beam_of_one_is_greedy():
    translator = by_heart()
    ids = translator.encode(ENGLISH[3])
    [wanted] = greedy_search(translator.model, torch.tensor([ids]))
    [result] = translator.translate([ENGLISH[3]], beam=1)
    assert (result.ids, result.score) == (wanted.tokens, wanted.score)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_has_at_most_as_many_tokens_as_are_allowed(beam):
    [longer], [shorter] = (by_heart().translate([ENGLISH[0]], beam=beam, longest=longest) for longest in (None, 2))
    assert len(longer.tokens) > 2 >= len(shorter.tokens)


def test_the_score_is_the_log_probability_of_each_token_under_the_length_penalty():
    [total], [mean], [squared] = (by_heart().translate([ENGLISH[2]], length_penalty=penalty) for penalty in (0.0, 1.0, 2.0))
    length = len(total.tokens) + 1
    assert (mean.ids, squared.ids) == (total.ids, total.ids)
    assert (mean.score, squared.score) == (pytest.approx(total.score / length), pytest.approx(total.score / length**2))


def test_the_forced_pass_writes_the_translation_again_with_its_score():
    translator = by_heart()
    [result] = translator.translate([ENGLISH[4]], beam=2, length_penalty=0.0)
    source, target = translator.teacher_forced(ENGLISH[4], result)
    chances = translator.model(source, target)[0].log_softmax(-1)  # (T, V)
    assert target[0].tolist() == [1, *result.ids]
    assert chances.argmax(-1).tolist() == [*result.ids, 2]
    assert chances[range(len(result.ids) + 1), [*result.ids, 2]].sum().item() == pytest.approx(result.score, abs=1e-4)


def test_tokens_are_those_that_were_read_and_written():
    [result] = by_heart().translate([ENGLISH[1]])
    assert result.source_tokens == [*by_heart().tokenizer.tokens(by_heart().tokenizer.encode(ENGLISH[1])), "</s>"]
    assert "".join(result.tokens).replace("▁", " ").strip() == result.text


def test_a_saved_translator_is_loaded_from_its_folder_or_its_runs(tmp_path):
    save_model(by_heart().model, tmp_path / "run" / "model", by_heart().tokenizer)
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        loaded = Translator.load(folder)
        assert loaded.name == folder.name
        assert loaded.translate(ENGLISH[:2]) == by_heart().translate(ENGLISH[:2])


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="which has no config.json written by overt. Fix: check the path"):
        Translator.load(tmp_path)


def test_a_model_that_does_not_translate_is_refused(tmp_path):
    save_model(TransformerEncoder(10, 8, heads=2, layers=1, feed_forward=8), tmp_path)
    with pytest.raises(InputError, match="a Transformer or a Seq2Seq.*got a TransformerEncoder without tokenizer.json in"):
        Translator.load(tmp_path)


def test_without_a_box_the_way_to_another_model_is_told(monkeypatch):
    monkeypatch.setattr(translators, "bundled_folder", lambda: None)
    with pytest.raises(InputError, match="got an installation without it. Fix: reinstall overt, or name the folder"):
        Translator.bundled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "a beam of at least 1, got beam=0"),
        (
            {"beam": 2, "best": 3},
            "from 1 translation up to the size of the beam, got best=3 of beam=2. Fix: widen the beam",
        ),
        ({"best": 0}, "got best=0 of beam=5"),
    ],
)
def test_a_beam_that_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        by_heart().candidates(["Tom"], **options)


def test_an_unusual_text_is_told_by_its_score():
    translator = Translator(by_heart().model, by_heart().tokenizer)
    [usual], [other] = translator.candidates([ENGLISH[0]]), translator.candidates(["cat cat you Tom . the"])
    assert other[0].score < usual[0].score
    assert not translator.is_unusual(other[0])  # without a bound
    translator.score_bound = (other[0].score + usual[0].score) / 2
    assert [translator.is_unusual(each[0]) for each in (usual, other)] == [False, True]
    assert not translator.is_unusual(translator.translate([" "])[0])


def test_greedy_scores_are_divided_by_the_length_before_they_are_compared():
    translator = Translator(by_heart().model, by_heart().tokenizer)
    [greedy], [best] = translator.translate([ENGLISH[0]], beam=1), translator.translate([ENGLISH[0]])
    assert greedy.ids == best.ids
    for bound in (best.score + 1e-4, best.score - 1e-4):
        translator.score_bound = bound
        assert translator.is_unusual(greedy, beam=1) == translator.is_unusual(best) == (bound > best.score)


def test_the_bound_is_read_from_the_model_or_from_its_run(tmp_path):
    translator = by_heart()
    save_model(translator.model, tmp_path / "run" / "model", translator.tokenizer)
    assert Translator.load(tmp_path / "run").score_bound is None
    (tmp_path / "run" / "results.json").write_text('{"score_bound": -0.5}')
    assert Translator.load(tmp_path / "run").score_bound == -0.5
    save_model(translator.model, tmp_path / "box", translator.tokenizer, {"score_bound": -0.25})
    assert Translator.load(tmp_path / "box").score_bound == -0.25


def test_an_unusual_text_is_told_by_its_cuts():
    translator = Translator(by_heart().model, by_heart().tokenizer, split_bound=0.4)
    text, other = "▁the ▁cat ▁s at .", "▁t he ▁c at ▁s at ."
    translations = [translator.translate([ENGLISH[0]])[0]._replace(source_tokens=each.split()) for each in (text, other)]
    assert [translator.is_unusual(each) for each in translations] == [False, False]
    translator.split_bound = 0.3
    assert [translator.is_unusual(each) for each in translations] == [False, True]


# Short sentences in other languages than English, and what is in none.
FOREIGN = [
    "asdf qwer zxcv", "Das Haus ist rot und groß.", "La casa es roja y grande.", "Ella no quiere venir con nosotros.",
    "lorem ipsum dolor sit amet", "Het huis is groot.", "Han läser en bok i trädgården.", "Jag har inte tid idag.",
    "Onde fica a estação?", "Hoje não tenho tempo.", "A minha irmã mora em Lisboa.", "Jeg har ikke tid i dag.", "Ma nincs időm.",
    "Hol van az állomás?", "Dnes nemám čas.", "Kde je nádraží?", "Saya tidak punya waktu hari ini.", "Di mana stasiunnya?",
    "Unde este gara?", "xkcd plugh xyzzy",
]  # fmt: skip
USUAL = [
    "I am happy to see you.", "Where is the station?", "She speaks French.", "He has lost his keys.", "hello", "ok",
    "My name is Svetlana Krzyzewska.", "Hello, Svetlana!", "My friend Wojciech lives in Szczecin.", "Xavier", "I",
    "I have 1234 books.",
]  # fmt: skip


def test_the_bundled_translator_knows_what_is_unlike_its_training_data():
    translator = Translator.bundled()
    assert [text for text, each in zip(USUAL, translator.translate(USUAL), strict=True) if translator.is_unusual(each)] == []
    # A translator that copies names copies foreign words too, and is surer of them: their pieces tell.
    assert sum(map(translator.is_unusual, translator.translate(FOREIGN))) >= len(FOREIGN) - 2
