"""Induction and duplicate-token heads, each by a head built to be one, and by heads that only seem to be."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from overt.lens import load, record
from overt.lens.linear import Recurrence
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics import repetition as measured
from overt.lens.statistics.repetition import PatternTotals, pattern_scores, repetition, wilson
from overt.lens.tokens import Tokens

both = pytest.mark.parametrize("keep", ["qkv", "summary"])


class Attending(nn.Module):
    """Heads that attend to the keys that they were given, with the same score for each of these."""

    def __init__(self, keys, **options):
        super().__init__()
        self.scores = torch.where(keys, 0.0, -40.0)  # (B, H, Q, K)
        self.options = options

    def forward(self):
        batch, heads, queries, keys = self.scores.shape
        query, key = torch.zeros(batch, heads, queries, 4), torch.zeros(batch, heads, keys, 4)
        return overt.attend(query, key, key, bias=self.scores, **self.options)


def varying(seed=0, blocks=((9, 3), (14, 3), (11, 3))):
    """Random words whose blocks repeat at several distances: their strings."""
    order, words = torch.randperm(500, generator=torch.Generator().manual_seed(seed)).tolist(), []
    for length, times in blocks:
        words += [str(word) for word in order[:length]] * times
        order = order[length:]
    return words


def copies(words, step=0):
    """Which keys are, or with step=1 follow, another copy of the query's word: (1, 1, n, n)."""
    n = len(words)
    pairs = torch.tensor(
        [[k >= step and words[k - step] == words[q] and k - step != q != k for k in range(n)] for q in range(n)]
    )
    return pairs[None, None]


def causal(keys):
    """The keys before the query; the first one where there is none."""
    keys = keys & torch.ones(keys.shape[-2:], dtype=torch.bool).tril(-1)
    return torch.cat([keys[..., :1] | ~keys.any(-1, keepdim=True), keys[..., 1:]], dim=-1)


def roles(model, words, keep="qkv", **options):
    with record(model, keep=keep, key_tokens=words, **options) as recording:
        model()
    return recording.roles()


@both
def test_heads_are_named_for_what_they_do_where_the_text_repeats(keep):
    words = varying()
    previous = torch.eye(len(words), dtype=torch.bool).roll(-1, -1).tril()[None, None]
    keys = torch.cat([causal(each) for each in (copies(words, 1), copies(words), previous)], dim=1)
    induction, duplicate, other = roles(Attending(keys, mask=overt.Causal()), words, keep)
    assert (induction.role, duplicate.role, other.role) == ("induction", "duplicate token", "previous token")
    repeated = len(words) - 9 - 14 - 11
    for role in (induction, duplicate):
        score = role.repetition[role.role]
        assert score.queries == repeated
        assert score.share == role.score == role.scores[role.role] == pytest.approx(1, abs=1e-5)
        assert score.chance < 0.4 < score.low < score.high == pytest.approx(1)
    assert not any(score.above_chance for score in other.repetition.values())
    assert str(induction).startswith("L0H0  Attending  usually the token after another copy 1.00 [0.")


@both
def test_copies_before_and_after_count_where_nothing_is_masked(keep):
    words = [str(word) for word in torch.randint(25, (60,), generator=torch.Generator().manual_seed(0)).tolist()]
    induction, duplicate = roles(Attending(torch.cat([copies(words, 1), copies(words)], dim=1)), words, keep)
    assert (induction.role, duplicate.role) == ("induction", "duplicate token")
    assert duplicate.repetition["duplicate token"].queries == sum(words.count(word) > 1 for word in words)


@both
def test_a_fixed_distance_is_not_called_induction(keep):
    words = varying(blocks=((20, 3),))
    n = len(words)
    (fixed,) = roles(
        Attending(causal(torch.eye(n, dtype=torch.bool).roll(-19, -1)[None, None]), mask=overt.Causal()), words, keep
    )
    (true,) = roles(Attending(causal(copies(words, 1)), mask=overt.Causal()), words, keep)
    # A text that repeats at one distance does not tell them apart.
    assert {fixed.role, true.role} == {"perhaps induction"}
    score = fixed.repetition["induction"]
    assert score.share == pytest.approx(1, abs=1e-5)
    assert score.low < score.chance


@both
def test_words_that_many_queries_attend_to_are_no_duplicates(keep):
    """A head that attends to full stops from everywhere does so from full stops too."""
    words = [f"w{index}" if index % 4 else "." for index in range(64)]
    stops = torch.tensor([word == "." for word in words]).expand(1, 1, 64, 64)
    (role,) = roles(Attending(causal(stops), mask=overt.Causal()), words, keep)
    score = role.repetition["duplicate token"]
    assert score.share > 0.9
    assert not score.above_chance
    assert role.role == "separator"


@both
def test_without_tokens_without_repetition_and_between_sequences_there_is_no_such_role(keep):
    words = varying()
    model = Attending(causal(copies(words)), mask=overt.Causal())
    assert roles(model, None, keep)[0].repetition == {}
    assert roles(model, [f"{index}" for index in range(len(words))], keep)[0].repetition == {}
    with record(model, keep=keep, query_tokens=words[::-1], key_tokens=words) as recording:
        model()
    assert recording.roles()[0].repetition == {}


@both
def test_padding_is_no_repetition(keep):
    words = varying()
    n = len(words)
    padded = [["<pad>"] * 10 + words, [*words, *["<pad>"] * 10]]
    keys = torch.cat([causal(copies(each)) for each in padded])
    real = torch.tensor([[word != "<pad>" for word in each] for each in padded])
    mask = overt.Causal() & overt.masks.Keys(real)
    (role,) = roles(Attending(keys, mask=mask), padded, keep)
    score = role.repetition["duplicate token"]
    # Padding at the end may attend to words, but a copy of its own is never among them.
    assert score.queries == 2 * (n - 9 - 14 - 11)
    assert role.role == "duplicate token"


@both
def test_queries_that_continue_a_cache_find_the_copies_before_them(keep):
    words = varying()
    keys = causal(copies(words, 1))[..., 60:, :]
    (role,) = roles(Attending(keys, mask=overt.Causal()), words, keep)
    assert role.repetition["induction"].queries == sum(word in words[:index] for index, word in enumerate(words) if index >= 60)
    assert role.repetition["induction"].share == pytest.approx(1, abs=1e-5)


def test_the_numbers_are_those_of_loops():
    """Shares, chance and interval against plain loops over queries, for random weights of two sequences."""
    generator = torch.Generator().manual_seed(3)
    n, words = 24, [[str(word) for word in torch.randint(9, (24,), generator=generator).tolist()] for _ in range(2)]
    query, key = torch.randn(2, 2, 3, n, 8, generator=generator, dtype=torch.float64).unbind()
    with record(model := nn.Identity()) as recording:
        pass

    class Custom(nn.Module):
        def forward(self):
            return functional.scaled_dot_product_attention(query, key, key, is_causal=True)

    model = Custom()
    with record(model, key_tokens=words) as recording:
        model()
    for role in recording.roles():
        weights = recording[0, role.head].weights()
        for step, name in ((1, "induction"), (0, "duplicate token")):
            shares, equal, groups, pairs = [], [], {}, []
            for b in range(2):
                for q in range(1, n):
                    chosen = [k for k in range(step, q) if words[b][k - step] == words[b][q] and k - step != q]
                    if chosen:
                        shares.append(sum(float(weights[b, q, k]) for k in chosen))
                        equal.append(len(chosen) / (q + 1))
                        groups[b, words[b][q]] = groups.get((b, words[b][q]), 0) + 1
                        pairs += [(b, q, k) for k in chosen]
            at_distance = {d: float(torch.stack([weights[b].diagonal(-d) for b in range(2)]).mean()) for d in range(n)}
            of_key = {(b, k): float(weights[b, k:, k].mean()) for b in range(2) for k in range(n)}
            chances = (sum(equal), sum(at_distance[q - k] for _, q, k in pairs), sum(of_key[b, k] for b, _, k in pairs))
            score = role.repetition[name]
            assert score.queries == len(shares)
            assert score.share == pytest.approx(sum(shares) / len(shares), rel=1e-12)
            assert score.chance == pytest.approx(max(chances) / len(shares), rel=1e-12)
            effective = len(shares) ** 2 / sum(number**2 for number in groups.values())
            assert (score.low, score.high) == wilson(score.share, effective)


def test_the_interval_holds_the_mean_of_values_between_0_and_1():
    """Wilson's interval is at least as wide as it says, for values that are not only 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    for draw in (
        lambda: torch.rand(40, generator=generator) ** 3,
        lambda: (torch.rand(40, generator=generator) < 0.25).float(),
    ):
        inside = 0
        for _ in range(400):
            low, high = wilson(float(draw().mean()), 40)
            inside += low <= 0.25 <= high
        assert inside >= 0.93 * 400
    assert math.isnan(wilson(math.nan, 5)[0])


def test_long_texts_are_measured_on_a_sample_that_agrees(monkeypatch):
    words = varying(blocks=((90, 2), (60, 3), (40, 2)))
    model = Attending(causal(copies(words, 1)), mask=overt.Causal())
    (whole,) = roles(model, words)
    monkeypatch.setattr(measured, "_WEIGHTS", 0)
    (some,) = roles(model, words)
    one, other = whole.repetition["induction"], some.repetition["induction"]
    assert 20 <= other.queries <= 64 < one.queries
    assert other.share == pytest.approx(one.share, abs=1e-5)
    assert some.role == whole.role == "induction"


def test_a_saved_summary_keeps_them(tmp_path):
    words = varying()
    with record(model := Attending(causal(copies(words)), mask=overt.Causal()), keep="summary", key_tokens=words) as recording:
        model()
    recording.save(tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").roles() == recording.roles()
    assert recording.roles()[0].repetition


def test_a_linear_mixer_is_measured_by_the_size_of_its_weights():
    """q · k is −1 for a copy of the word and 0 otherwise: all of |W| is on copies."""
    words = varying()
    numbers = {word: index for index, word in enumerate(dict.fromkeys(words))}
    hot = functional.one_hot(torch.tensor([numbers[word] for word in words])).float()[None, None]
    recurrence = Recurrence(-hot, hot, hot, reads="before")
    n = len(words)
    which = (0, 0, 0, "mixer", "a formula", (0,), 1, 1, n, n, torch.float32, ())
    captured = CapturedMixer(*which, recurrence=recurrence, output=recurrence.output(), copies=(0,))
    (scores,) = repetition(captured, Tokens.from_strings(words, words))
    assert scores["duplicate token"].share == pytest.approx(1)
    assert scores["duplicate token"].above_chance
    assert scores["induction"].share == 0


def test_totals_of_parts_add_up():
    ids = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1]])
    weights = torch.rand(1, 2, 8, 8, generator=torch.Generator().manual_seed(0)).tril()
    allowed = torch.ones(8, 8, dtype=torch.bool).tril().expand(1, 2, 8, 8)
    whole, parts = PatternTotals(ids, ids, 8), PatternTotals(ids, ids, 8)
    whole.add(0, weights, allowed)
    for first, stop in ((5, 8), (0, 3), (3, 5)):
        parts.add(first, weights[:, :, first:stop], allowed[:, :, first:stop])
    for name, total in whole.totals().items():
        torch.testing.assert_close(parts.totals()[name], total)
    doubled = {name: 2 * total for name, total in whole.totals().items()}
    for one, two in zip(pattern_scores(whole.totals()), pattern_scores(doubled), strict=True):
        assert two["induction"].share == one["induction"].share
        assert two["induction"].queries == 2 * one["induction"].queries
        assert two["induction"].low > one["induction"].low
