"""What a head does, told from its weights: each pattern by a head that was built to follow it."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from overt.drawing.html import read
from overt.errors import InputError
from overt.lens import record
from overt.lens.statistics.roles import ROLE_WORDS

WORDS = ["the", "cat", ".", "the", "dog", "."]
N = len(WORDS)


class Built(nn.Module):
    """Two query heads that read one key head: each query has the key of the place that it is to look at, each key its own."""

    def __init__(self, *looks, keys=None, **options):
        super().__init__()
        self.query = torch.stack([40.0 * torch.eye(N)[list(positions)] for positions in looks])[None]  # (1, H, N, N)
        self.key = (torch.eye(N) if keys is None else keys)[None, None]  # (1, 1, N, N)
        self.options = options

    def forward(self, batch=1, rows=slice(None)):
        query = self.query.expand(batch, -1, -1, -1)[:, :, rows]
        return functional.scaled_dot_product_attention(query, self.key, self.key, enable_gqa=True, **self.options)


PREVIOUS = [0, 0, 1, 2, 3, 4]
NEXT = [1, 2, 3, 4, 5, 5]
FIRST = [0] * N
OWN = list(range(N))
ELSEWHERE = [3, 5, 4, 1, 0, 2]
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()


def text(model, keep="qkv", tokens=None, **inputs):
    with record(model, keep=keep, key_tokens=tokens) as recording:
        model(**inputs)
    return recording.roles()


both = pytest.mark.parametrize("keep", ["qkv", "summary"])


@both
@pytest.mark.parametrize(
    ("looks", "name"),
    [
        (PREVIOUS, "previous token"),
        (NEXT, "next token"),
        (FIRST, "first token"),
        (OWN, "same token"),
        (ELSEWHERE, "content"),
    ],
)
def test_a_head_is_named_for_the_place_that_it_looks_at(looks, name, keep):
    first, second = text(Built(looks, OWN), keep)
    assert (first.role, second.role) == (name, "same token")
    expected = 1 if name != "content" else 1 - max(v for k, v in first.scores.items() if k != "uniform")
    assert first.score == pytest.approx(expected, abs=1e-4)


@both
def test_a_head_that_looks_at_separators_is_named_for_them(keep):
    role, other = text(Built([2, 5, 2, 5, 2, 5], PREVIOUS), keep, WORDS)
    assert (role.role, other.role) == ("separator", "previous token")
    assert role.score == pytest.approx(1, abs=1e-4)


@both
def test_a_head_that_looks_at_the_same_word_elsewhere_is_named_for_it(keep):
    (role, _) = text(Built([3, 1, 5, 0, 4, 2], OWN), keep, WORDS)
    assert (role.role, round(role.score, 4)) == ("same token", 1.0)
    (unworded, _) = text(Built([3, 1, 5, 0, 4, 2], OWN), keep)
    assert (unworded.role, round(unworded.score, 4)) == ("content", round(1 - 2 / 6, 4))


@both
@pytest.mark.parametrize("causal", [False, True])
def test_equal_weights_are_uniform(causal, keep):
    model = Built(OWN, OWN, is_causal=causal)
    model.query = torch.zeros_like(model.query)
    assert [(role.role, round(role.score, 6)) for role in text(model, keep)] == [("uniform", 1.0)] * 2


@both
@pytest.mark.parametrize(("looks", "name"), [(PREVIOUS, "previous token"), (FIRST, "first token"), (OWN, "same token")])
def test_a_causal_mask_leaves_the_name(looks, name, keep):
    role, _ = text(Built(looks, OWN, is_causal=True), keep)
    assert role.role == name
    assert "next token" not in role.scores


@both
def test_padding_before_the_first_token_is_no_token(keep):
    visible = torch.arange(N) >= 2
    role, _ = text(Built([2] * N, OWN, attn_mask=CAUSAL & visible), keep)
    assert (role.role, round(role.score, 4)) == ("first token", 1.0)


@both
@pytest.mark.parametrize("fill", [-float("inf"), torch.finfo(torch.float32).min])
def test_keys_barred_by_numbers_are_no_choice(fill, keep):
    mask = torch.zeros(N, N).masked_fill(~(torch.arange(N) < 4), fill)
    model = Built(OWN, OWN, attn_mask=mask)
    model.query = torch.zeros_like(model.query)
    assert [role.role for role in text(model, keep)] == ["uniform", "uniform"]


@both
def test_every_sequence_of_a_batch_has_its_own_words(keep):
    batch = [["a", "b", "c", "d", "e", "."], [".", "b", "c", "d", "e", "f"]]
    role, _ = text(Built(FIRST, OWN), keep, batch, batch=2)
    assert role.scores["separator"] == pytest.approx(0.5, abs=1e-4)


@both
def test_one_query_that_continues_a_cache_stands_at_the_end(keep):
    first, second = text(Built(PREVIOUS, OWN), keep, rows=slice(5, 6))
    assert (first.role, second.role) == ("previous token", "same token")
    first, _ = text(Built(FIRST, OWN), keep, WORDS, rows=slice(4, 6))
    assert first.role == "first token"


@both
def test_attention_between_two_sequences_has_no_places_in_common(keep):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.crossattention = Built(OWN, PREVIOUS)

        def forward(self):
            return self.crossattention()

    for role in text(Decoder(), keep):
        assert set(role.scores) == {"uniform"}
        assert role.role == "content"


@both
def test_other_words_on_both_sides_are_two_sequences(keep):
    model = Built(OWN, PREVIOUS)
    with record(model, keep=keep, query_tokens=list("ghijkl"), key_tokens=WORDS) as recording:
        model()
    assert [set(role.scores) for role in recording.roles()] == [{"separator", "uniform"}] * 2


def test_words_that_came_after_the_summary_are_refused():
    model = Built(OWN, OWN)
    with record(model, keep="summary") as recording:
        model()
    recording.tokens = WORDS
    message = r"the tokens with which Built was summarised.*got other tokens.*record\(key_tokens=…"
    with pytest.raises(InputError, match=message):
        recording.roles()


@both
def test_words_of_another_length_are_refused_when_roles_are_asked_for(keep):
    with pytest.raises(InputError, match=r"one token for each key.*got \[2\] tokens for 6 keys of Built"):
        text(Built(OWN, OWN), keep, ["a", "b"])


def test_a_role_prints_with_the_score_that_decides_it():
    assert str(text(Built(PREVIOUS, OWN))[0]) == "L0H0  Built  usually the previous token 1.00"


def test_pages_say_what_heads_do_in_the_terminals_words():
    written = dict(re.findall(r'^  "([^"]+)": "([^"]+)",$', read("lens/viewer/web/heads/about.js"), re.MULTILINE))
    assert written == ROLE_WORDS
