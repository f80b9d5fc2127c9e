"""Padding is no text: what a head does in a text is the same with padding around it, on either side."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from overt.lens import record
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.summarized import mixer_shares
from overt.lens.statistics.repetition import repetition
from overt.lens.text.tokens_of_text import Token
from overt.lens.tokens import Tokens

TEXT = ["the", "cat", "saw", "the", "cat", "."]
PADDING = 5
GENERATOR = torch.Generator().manual_seed(3)
QUERY, KEY, PAD_QUERY, PAD_KEY = (torch.randn(1, 2, n, 8, generator=GENERATOR) for n in (6, 6, PADDING, PADDING))


class Attending(nn.Module):
    """Attention between these queries and keys."""

    def forward(self, query, key, **options):
        return functional.scaled_dot_product_attention(3 * query, key, key, **options)


def words():
    return [Token(word, piece=word, id=sum(map(ord, word))) for word in TEXT]


def padding():
    return [Token("[PAD]", piece="[PAD]", id=0, special=True, padding=True) for _ in range(PADDING)]


def padded(text, pad, side, dim=-2):
    parts = [pad, text] if side == "left" else [text, pad]
    return parts[0] + parts[1] if isinstance(text, list) else torch.cat(parts, dim=dim)


def mask_of(side, causal, floating):
    visible = padded(torch.ones(6), torch.zeros(PADDING), side, dim=-1).bool()[None, None, None]
    allowed = visible & torch.ones(11, 11, dtype=torch.bool).tril() if causal else visible.expand(1, 1, 11, 11)
    # transformers' eager attention adds the lowest number, and leaves rows of padding with it everywhere
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min) if floating else allowed


def roles_of(keep, tokens, *inputs, **options):
    model = Attending()
    with record(model, keep=keep, key_tokens=tokens) as recording:
        model(*inputs, **options)
    return recording.roles()


def assert_same(roles, alone):
    assert [role.role for role in roles] == [role.role for role in alone]
    for role, expected in zip(roles, alone, strict=True):
        assert role.scores == pytest.approx(expected.scores, abs=1e-5)
        for name, score in expected.repetition.items():
            assert (role.repetition[name].queries, role.repetition[name].chance) == (score.queries, pytest.approx(score.chance))


@pytest.mark.parametrize("keep", ["qkv", "summary"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("path", ["native", "blocked"])
def test_padding_changes_no_score(keep, side, causal, floating, named, path):
    with overt.use_path("native", "blocked") if path == "native" else overt.use_path("blocked"):
        alone = roles_of(keep, words() if named else None, QUERY, KEY, is_causal=causal)
        tokens = padded(words(), padding(), side) if named else None
        inputs = padded(QUERY, PAD_QUERY, side), padded(KEY, PAD_KEY, side)
        roles = roles_of(keep, tokens, *inputs, attn_mask=mask_of(side, causal, floating))
    assert_same(roles, alone)


def test_padding_is_no_repetition():
    """Queries of padding alone follow copies of themselves; those of the text do not."""
    tokens = padded(words(), padding(), "left")
    following = torch.eye(11).roll(-1, 0)[None, None]  # each query at the key before it
    (role,) = roles_of("qkv", tokens, 40 * following, torch.eye(11)[None, None], attn_mask=mask_of("left", True, False))
    assert role.repetition["induction"].queries == 2  # the second "the cat"
    assert role.repetition["duplicate token"].queries == 2


def test_each_text_of_a_batch_has_its_own_padding():
    tokens = [padded(words(), padding(), side) for side in ("left", "right")]
    query, key, mask = (
        torch.cat([padded(QUERY, PAD_QUERY, side) for side in ("left", "right")]),
        torch.cat([padded(KEY, PAD_KEY, side) for side in ("left", "right")]),
        torch.cat([mask_of(side, False, False) for side in ("left", "right")]),
    )
    alone = roles_of("qkv", words(), QUERY, KEY)
    together = roles_of("qkv", tokens, query, key, attn_mask=mask)
    assert [role.scores["previous token"] for role in together] == pytest.approx(
        [r.scores["previous token"] for r in alone], abs=1e-5
    )
    assert [role.scores["first token"] for role in together] == pytest.approx(
        [r.scores["first token"] for r in alone], abs=1e-5
    )


def test_padding_that_the_model_attends_to_is_known_by_its_tokens():
    inputs = padded(QUERY, PAD_QUERY, "left"), padded(KEY, PAD_KEY, "left")
    named = roles_of("qkv", padded(words(), padding(), "left"), *inputs)
    first = torch.softmax(3 * inputs[0] @ inputs[1].mT / 8**0.5, -1)[0, :, 6:, 5].mean(-1)  # on "the", of the queries after it
    assert [role.scores["first token"] for role in named] == pytest.approx(first.tolist(), abs=1e-5)


def test_padding_changes_no_score_of_a_linear_mixer():
    def scores(tokens, query, key):
        recurrence = Recurrence(query, key, key)
        which = (0, 0, 0, "mixer", "a formula", (0, 1), 2, 1, len(tokens), len(tokens), torch.float32, ())
        captured = CapturedMixer(*which, recurrence=recurrence, output=recurrence.output(), copies=(0, 1))
        named = Tokens.from_strings(tokens, tokens)
        return mixer_shares(captured, named), [
            {n: each.queries for n, each in of.items()} for of in repetition(captured, named)
        ]

    shares, queries = scores(words(), QUERY, KEY)
    padded_shares, padded_queries = scores(
        padded(words(), padding(), "right"), padded(QUERY, PAD_QUERY, "right"), padded(KEY, PAD_KEY, "right")
    )
    for one, other in zip(padded_shares, shares, strict=True):
        assert {name: one[name] for name in other} == pytest.approx(other, abs=1e-5)
    assert padded_queries == queries
