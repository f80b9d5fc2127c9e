"""A survey is what its definition says, for any batches, order and number of shards, and goes on where it was stopped."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
import torch

from overt.errors import InputError, KindError
from overt.learn.run.model_folder import save_model
from overt.lens import Survey, load_survey, survey
from overt.lens.analysis.surveys import running
from overt.lens.analysis.surveys.exact_sums import ExactSums
from overt.lens.analysis.surveys.measures import ROWS
from overt.lens.analysis.surveys.reading.encoding import CHUNK
from overt.lens.statistics import repetition
from small_surveys import WORDS, TwoHeads, by_loops, chance_by_distance, small_model, texts


@pytest.fixture(scope="module")
def model_and_tokenizer():
    return small_model()


@pytest.fixture(scope="module")
def corpus():
    return texts(3 * CHUNK + 40)


@pytest.fixture(scope="module")
def whole(model_and_tokenizer, corpus):
    return survey(model_and_tokenizer[0], corpus, tokenizer=model_and_tokenizer[1])


def assert_same(one, other):
    for name in ("sums", "counts", "profile"):
        assert np.array_equal(getattr(one, name).high, getattr(other, name).high)
        assert np.array_equal(getattr(one, name).low, getattr(other, name).low)
    assert np.array_equal(one.pairs, other.pairs)
    assert one.facts == other.facts
    assert one.samples.texts == other.samples.texts
    assert [*one.samples.drawn] == [*other.samples.drawn]
    for left, right in zip(one.samples.drawn.values(), other.samples.drawn.values(), strict=True):
        assert all(np.array_equal(*pair) for pair in zip(left, right, strict=True))
    assert np.array_equal(one.samples.top, other.samples.top)
    assert all(np.array_equal(*pair) for pair in zip(one.samples.top_links, other.samples.top_links, strict=True))


def test_each_measure_is_what_plain_loops_give(model_and_tokenizer):
    some = texts(12, seed=3)
    result = survey(model_and_tokenizer[0], some, tokenizer=model_and_tokenizer[1])
    for index, head in enumerate(result.heads):
        sums, counts = Counter(), Counter()
        for text in some:
            parts = by_loops(*model_and_tokenizer, text, head.number, head.head)
            sums.update(parts[0])
            counts.update(parts[1])
        assert counts["induction"] > 10
        for name in sums:
            assert result.counts.values()[:, ROWS.index(name), index].sum() == counts[name], name
            assert result.measure(name).values[index] == pytest.approx(sums[name] / counts[name], abs=1e-5), name


@pytest.mark.parametrize("name", ["induction", pytest.param("duplicate token", marks=pytest.mark.slow)])
def test_chance_by_distance_is_what_plain_loops_give(model_and_tokenizer, name, monkeypatch):
    some = texts(12, seed=3)
    monkeypatch.setattr(repetition, "BLOCK", 400)  # rows come in several blocks
    result = survey(model_and_tokenizer[0], some, tokenizer=model_and_tokenizer[1])
    equal = result.measure(f"{name}: chance").values
    for index, head in enumerate(result.heads):
        expected = chance_by_distance(*model_and_tokenizer, some, head.number, head.head, name)
        assert result.chance(name)[index] == pytest.approx(max(expected, equal[index]), abs=1e-5)
    assert (result.chance(name) > equal + 1e-4).any()
    with pytest.raises(InputError, match="the name of a pattern, got 'entropy'. Fix: choose one of: previous token"):
        result.chance("entropy")


def test_a_fixed_distance_does_not_pass_for_induction():
    _, tokenizer = small_model()
    words = [word for word in WORDS if len(tokenizer.encode(word)) == 1]
    draw = random.Random(0)
    blocks = [draw.sample(words, 8) for _ in range(80)]
    some = [" ".join(block * 2) for block in blocks]
    result = survey(TwoHeads(tokenizer.words, 64, back=7), some, tokenizer=tokenizer)
    at_distance, by_content = result.roles()
    for role in (at_distance, by_content):
        assert role.repetition["induction"].share > 0.99
    assert at_distance.repetition["induction"].chance > 0.99
    assert at_distance.role == "perhaps induction"
    assert by_content.repetition["induction"].chance < 0.2
    assert by_content.role == "induction"


@pytest.mark.parametrize("count", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 7))])
@pytest.mark.few_cases(1)
def test_any_number_of_shards_in_any_order_is_the_whole_to_the_bit(model_and_tokenizer, corpus, whole, count):
    model, tokenizer = model_and_tokenizer
    parts = [survey(model, corpus, tokenizer=tokenizer, shard=(number, count)) for number in range(count)]
    assert_same(Survey.merged(parts[::-1]), whole)


@pytest.mark.slow
def test_parts_that_dask_s_workers_survey_are_the_whole_to_the_bit(model_and_tokenizer, corpus, whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    save_model(model_and_tokenizer[0], tmp_path / "model", model_and_tokenizer[1])

    def part(number):  # as another machine would: the model from its folder, and all texts
        from overt.learn.run.model_folder import load_model
        from overt.lens import survey

        model, tokenizer, _ = load_model(tmp_path / "model")
        return survey(model, corpus, tokenizer=tokenizer, shard=(number, 3))

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        parts = client.gather(client.map(part, range(3)))
    assert_same(Survey.merged(parts), whole)


def test_a_stopped_survey_goes_on_and_is_the_same(model_and_tokenizer, corpus, whole, tmp_path, monkeypatch):
    model, tokenizer = model_and_tokenizer
    monkeypatch.setattr(running, "_SECONDS_BETWEEN_FILES", 0.0)

    def stopping():
        yield from corpus[: 2 * CHUNK + 1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        survey(model, stopping(), tokenizer=tokenizer, file=tmp_path / "part.survey")
    assert load_survey(tmp_path / "part.survey").facts.texts == 2 * CHUNK
    ran = []
    monkeypatch.setattr(
        running.TextReader,
        "read",
        lambda self, chunk, read=running.TextReader.read: ran.append(chunk.number) or read(self, chunk),
    )
    assert_same(survey(model, corpus, tokenizer=tokenizer, file=tmp_path / "part.survey"), whole)
    assert ran == [2, 3]


def test_a_file_of_other_texts_or_another_model_is_not_gone_on_from(model_and_tokenizer, corpus, tmp_path):
    model, tokenizer = model_and_tokenizer
    survey(model, corpus[:20], tokenizer=tokenizer, file=tmp_path / "a.survey")
    with pytest.raises(
        InputError, match=r"a survey of these texts, to resume, got .*a\.survey, with other texts, or another shard\. Fix"
    ):
        survey(model, ["another text"], tokenizer=tokenizer, file=tmp_path / "a.survey")
    with pytest.raises(InputError, match="with other weights"):
        survey(small_model(seed=1)[0], corpus[:20], tokenizer=tokenizer, file=tmp_path / "a.survey")


def test_a_saved_survey_is_the_same_and_a_damaged_one_is_refused(whole, tmp_path):
    whole.save(tmp_path / "a.survey")
    assert_same(load_survey(tmp_path / "a.survey"), whole)
    data = (tmp_path / "a.survey").read_bytes()
    for size in (0, 9, len(data) // 2, len(data) - 1):
        (tmp_path / "b.survey").write_bytes(data[:size])
        with pytest.raises(InputError, match="Expected .*b.survey to be a survey's file"):
            load_survey(tmp_path / "b.survey")


def test_strongest_texts_are_those_of_the_largest_weights(model_and_tokenizer, whole, corpus):
    model, tokenizer = model_and_tokenizer
    head = 3
    largest = []
    of_length = {}
    for index, text in enumerate(corpus):
        ids = tokenizer.encode(text)
        of_length.setdefault(len(ids), []).append((index, ids))
    for length, rows in of_length.items():
        weights = model.weights(torch.tensor([ids for _, ids in rows]))["decoder"][1][:, 1]
        for (index, _), each in zip(rows, weights, strict=True):
            largest.append((-float(each[1:].max()) if length > 1 else 1.0, index))
    expected = [index for _, index in sorted(largest)[:8]]
    weights = whole.samples.top_links.weights[head]
    assert list(weights) == sorted(weights, reverse=True)
    # Equal to rounding: the batches differ.
    assert np.allclose(weights, [-value for value, _ in sorted(largest)[:8]], atol=1e-5)
    assert len({*whole.samples.top[head].tolist()} & {*expected}) >= 7


@pytest.mark.slow
@pytest.mark.parametrize(("surveys", "some", "many"), [(12, 60, 1200), pytest.param(30, 120, 3000, marks=pytest.mark.slow)])
def test_intervals_hold_the_mean_of_more_texts_as_often_as_they_say(model_and_tokenizer, surveys, some, many):
    model, tokenizer = model_and_tokenizer
    truth = survey(model, texts(many, seed=99, longest=8), tokenizer=tokenizer).measure("entropy").values
    inside = []
    for seed in range(surveys):
        _, low, high = survey(model, texts(some, seed=seed, longest=8), tokenizer=tokenizer).measure("entropy")
        inside += ((low <= truth) & (truth <= high)).tolist()
    assert 0.85 < np.mean(inside) <= 1.0


@pytest.mark.slow
def test_a_head_that_differs_is_seen_and_one_that_does_not_is_not(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    one, other = (survey(model, texts(400, seed=seed), tokenizer=tokenizer) for seed in (1, 2))
    assert (one.compare(other).p["entropy"] > 0.05).all()
    short = survey(model, texts(400, seed=2, longest=5), tokenizer=tokenizer)
    result = one.compare(short)
    assert not result.paired
    assert (result.p["distance"] < 0.01).all()
    assert (result.differences["distance"].high < 0).all()
    assert result.table()["p"].dropna().is_monotonic_increasing


def test_two_models_on_one_corpus_are_compared_in_pairs(model_and_tokenizer, corpus):
    model, tokenizer = model_and_tokenizer
    one, same = (survey(model, corpus[:200], tokenizer=tokenizer) for _ in range(2))
    sharper = small_model()[0]
    with torch.no_grad():
        for name, parameter in sharper.named_parameters():
            parameter.mul_(8 if "attention.query" in name else 1)
    other = survey(sharper, corpus[:200], tokenizer=tokenizer)
    assert one.compare(same).paired
    assert (one.compare(same).p["entropy"] == 1).all()
    assert (one.measure("entropy").values > other.measure("entropy").values).all()
    assert (one.compare(other).p["entropy"] < 0.001).any()


def test_padding_changes_nothing_but_rounding(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    some = texts(60, seed=5)
    padded = survey(model, some, tokenizer=tokenizer)

    class Unpadded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, tokens):
            return self.inner(tokens)

    exact = survey(Unpadded().eval(), some, tokenizer=tokenizer)
    for name in ROWS:
        assert np.allclose(exact.measure(name).values, padded.measure(name).values, atol=1e-5, equal_nan=True), name


def test_the_model_is_left_as_it_was(model_and_tokenizer):
    model, tokenizer = small_model()
    model.train()
    model.body.layers[0].eval()
    survey(model, texts(5), tokenizer=tokenizer)
    assert model.training
    assert not model.body.layers[0].training
    assert model.body.layers[1].training


def test_empty_texts_are_counted_and_long_ones_cut(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    result = survey(model, ["", "the cat sat on the mat", "  "], tokenizer=tokenizer, longest=4)
    assert (result.facts.texts, result.facts.empty, result.facts.cut, result.facts.tokens) == (1, 2, 1, 4)
    assert "2 empty texts are left out" in str(result)
    assert "1 texts have more than 4 tokens" in str(result)


def test_too_few_texts_have_no_interval(model_and_tokenizer):
    value, low, _ = survey(model_and_tokenizer[0], texts(20), tokenizer=model_and_tokenizer[1]).measure("entropy")
    assert np.isfinite(value).all()
    assert np.isnan(low).all()


def test_what_cannot_be_surveyed_is_a_sentence(model_and_tokenizer, corpus):
    model, tokenizer = model_and_tokenizer
    with pytest.raises(InputError, match="Expected a corpus of at least one text with tokens, got 2 empty texts"):
        survey(model, ["", " "], tokenizer=tokenizer)
    with pytest.raises(InputError, match="Expected a model with attention, got Embedding, in which none was measured"):
        survey(torch.nn.Embedding(tokenizer.words, 4), corpus[:3], tokenizer=tokenizer)
    with pytest.raises(InputError, match="Expected token ids of tokens from 0 to"):
        survey(small_model()[0], corpus[:3], tokenizer=tokenizer_of_more_words())
    with pytest.raises(KindError, match="texts as a list or an iterator of strings"):
        survey(model, "the cat", tokenizer=tokenizer)
    with pytest.raises(InputError, match="shard as"):
        survey(model, corpus, tokenizer=tokenizer, shard=(3, 3))
    one = survey(model, corpus[:9], tokenizer=tokenizer)
    with pytest.raises(InputError, match="parts of a corpus that do not overlap"):
        Survey.merged([one, one])
    with pytest.raises(InputError, match="surveys of one model"):
        Survey.merged([one, survey(small_model(seed=4)[0], corpus[:9], tokenizer=tokenizer)])
    with pytest.raises(InputError, match="the name of a measure"):
        one.measure("entropies")


def tokenizer_of_more_words():
    from overt.learn.data.tokenizer import Tokenizer

    return Tokenizer.learn([" ".join(a + b + c for a, b, c in itertools.product("catdogbirdsatrun", repeat=3))] * 2, merges=500)


def test_a_head_that_is_not_a_number_is_counted_and_left_out(model_and_tokenizer, corpus):
    model, tokenizer = small_model()
    with torch.no_grad():
        next(parameter for name, parameter in model.named_parameters() if "layers.1" in name and "value" in name).fill_(
            torch.nan
        )
    result = survey(model, corpus[:9], tokenizer=tokenizer)
    assert (result.lost[2:] == 9).all()
    assert np.isfinite(result.measure("entropy").values).all()
    assert "heads have measures that are not numbers, in up to 9 texts" in str(result)


def test_exact_sums_do_not_depend_on_order():
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-5, 5).repeat(100)
    orders = [values, values[::-1], np.sort(values)]
    sums = []
    for order in orders:
        total = ExactSums((2,))
        for value in order:
            total.add((1,), np.array(value))
        sums.append(total.values()[1])
    assert sums[0] == sums[1] == sums[2]
    assert sums[0] == pytest.approx(values.sum(), abs=1e-5)
    assert values.cumsum()[-1] != values[::-1].cumsum()[-1]  # which floating-point sums do
