"""What makes verify and roles quick changes nothing that they say: roles by the formula in float64, every query compared, once for a text."""

import sys
from dataclasses import replace
from io import StringIO

import pytest
import torch
from torch import nn

import overt
from overt import lens
from overt.attention.masks import Keys
from overt.drawing.progress import progress
from overt.lens import record
from overt.lens.statistics import role_shares, roles, verified
from overt.lens.statistics.summarized import SummaryOptions, summarized
from overt.lens.statistics.verified import JUDGED_QUERIES, recompute
from overt.lens.tokens import Tokens

N = 70
WORDS = [["the", ",", "cat", "saw", "the", "dog", "."][index % 7] if index % 5 else f"word {index}" for index in range(N)]
DOCUMENTS = torch.tensor([[0] * 30 + [1] * 33 + [-1] * 7, [4] * 10 + [2] * 60])


class Custom(nn.Module):
    """overt's attention over given queries, keys and values."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value):
        return overt.attend(query, key, value, **self.options)


class CrossAttention(Custom):
    """The same between two sequences, by its name."""


def inputs(queries=N, keys=N, kv_heads=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = ((4, queries), (kv_heads, keys), (kv_heads, keys))
    query, key, value = (torch.randn(2, heads, length, 16, generator=generator, dtype=dtype) for heads, length in sizes)
    return query * 2, key, value


def recorded(model, arguments, **options):
    with record(model, **options) as recording:
        model(*arguments)
    return recording


def by_definition(recording):
    """Each head's shares from whole weights in float64: `roles.measured`, which the kernel does not touch."""
    (captured,) = recording.calls
    return roles.measured(replace(captured, call=verified._in_double(captured.checked_call())), recording.strings)


def assert_as_defined(recording, tolerance=2e-6):
    expected = by_definition(recording)
    actual = [{name: role.scores[name] for name in scores} for role, scores in zip(recording.roles(), expected, strict=True)]
    assert [sorted(scores) for scores in actual] == [sorted(scores) for scores in expected]
    for one, other in zip(actual, expected, strict=True):
        assert one == pytest.approx(other, abs=tolerance)


@pytest.fixture
def no_blocks(monkeypatch):
    """Whole weights fail, other than those of the definition that a test has computed."""

    def refuse(*arguments):
        raise AssertionError("whole weights were made")

    monkeypatch.setattr(role_shares, "measured", refuse)


CALLS = {
    "none": {},
    "causal": {"mask": overt.Causal()},
    "window": {"mask": overt.Window(9, 3)},
    "right padding": {"mask": overt.Lengths(torch.tensor([50, 70]))},
    "left padding": {"mask": overt.Causal() & Keys(torch.arange(N) >= torch.tensor([[20], [0]]))},
    "documents": {"mask": overt.Causal() & overt.Documents(DOCUMENTS)},
    "queries that see nothing": {"mask": overt.Lengths(60, queries=40)},
    "alibi": {"mask": overt.Causal(), "bias": overt.ALiBi(torch.rand(4))},
    "a bias": {"bias": torch.randn(4, N, N)},
    "sinks": {"normalizer": overt.Softmax(sink=torch.randn(4)), "mask": overt.Causal()},
    "softcap and temperature": {"score": overt.Dot(softcap=2.0), "normalizer": overt.Softmax(temperature=0.5)},
    "additive": {"score": overt.Additive(torch.randn(16)), "mask": overt.Causal()},
}


@pytest.mark.parametrize("words", [None, WORDS, [WORDS, WORDS[::-1]]], ids=["no words", "words", "words of each"])
@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
@pytest.mark.usefixtures("no_blocks")
def test_roles_in_one_pass_are_those_of_the_weights_in_float64(options, words):
    assert_as_defined(recorded(Custom(**options), inputs(), key_tokens=words))


@pytest.mark.parametrize("words", [None, WORDS], ids=["no words", "words"])
@pytest.mark.parametrize("queries", [1, 5, 40])
@pytest.mark.usefixtures("no_blocks")
def test_steps_of_a_generation_have_the_roles_of_their_weights(queries, words):
    assert_as_defined(recorded(Custom(mask=overt.Causal()), inputs(queries=queries, kv_heads=2), key_tokens=words))


@pytest.mark.usefixtures("no_blocks")
def test_cross_attention_has_the_roles_of_its_weights():
    assert_as_defined(recorded(CrossAttention(), inputs(queries=33), key_tokens=WORDS, query_tokens=WORDS[:33]))


@pytest.mark.parametrize("heads", [[2], [3, 0]])
def test_some_heads_have_the_roles_of_their_weights(heads):
    assert_as_defined(recorded(Custom(mask=overt.Causal()), inputs(), key_tokens=WORDS, heads=heads))


def test_a_mask_with_holes_has_the_roles_of_its_weights():
    assert_as_defined(recorded(Custom(mask=torch.rand(N, N) > 0.3), inputs(), key_tokens=WORDS))


def test_roles_are_measured_once_for_a_text(monkeypatch):
    recording, measured = recorded(Custom(), inputs()), []
    original = role_shares.measured_shares
    monkeypatch.setattr(
        "overt.lens.recorded_calls.measured_shares", lambda *arguments: measured.append(1) or original(*arguments)
    )
    without = recording.roles()
    assert recording.roles() == without
    assert recording.passes[0].roles() == without
    assert len(measured) == 1
    recording.tokens = WORDS
    assert "separator" in recording.roles()[0].scores
    recording.tokens[0] = "."  # written over in place
    assert recording.roles()[0].scores != recording.roles()[0].scores | {"separator": 0}
    assert len(measured) == 3
    assert len(recording.measured) == 1


def test_roles_print_as_a_table_and_are_a_list():
    result = recorded(Custom(), inputs()).roles()
    lines = str(result).splitlines()
    assert lines[0].split() == ["head", "layer", "role", "score"]
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1
    assert isinstance(result, list)
    assert result[1:3] == [result[1], result[2]]


def wrong(captured, row, amount=1e-3):
    """The call with one number of its output changed."""
    output = captured.output.clone()
    output[1, 2, row, 5] += amount
    return replace(captured, output=output)


@pytest.fixture(scope="module")
def long_call():
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 4, 300, 16, generator=generator) for _ in range(3))
    (captured,) = recorded(Custom(mask=overt.Causal()), (query, key, value)).calls
    return captured


def test_one_wrong_number_in_any_query_is_found(long_call):
    exact = recompute(long_call)
    assert exact.difference <= exact.bound
    assert (exact.queries, exact.judged) == (300, pytest.approx(JUDGED_QUERIES, abs=4))
    for row in range(0, 300, 23):
        comparison = recompute(wrong(long_call, row))
        assert comparison.difference == pytest.approx(1e-3, rel=1e-2)
        assert comparison.difference > comparison.bound


def test_one_wrong_number_in_any_query_of_a_summary_is_found(long_call):
    for row in range(0, 300, 23):
        comparison = summarized(wrong(long_call, row, 1e-4), Tokens(), SummaryOptions()).comparison
        assert comparison.difference == pytest.approx(1e-4, rel=1e-1)
        assert comparison.difference > comparison.bound


def test_a_query_that_was_not_chosen_is_compared_with_the_kernel(long_call, monkeypatch):
    # Only evenly spaced queries: row 100 is none of them.
    monkeypatch.setattr(verified, "queries_that_differ", lambda difference: torch.arange(0, 300, 37))
    comparison = recompute(wrong(long_call, 100))
    assert comparison.difference == pytest.approx(1e-3, rel=1e-2)
    assert comparison.difference > comparison.bound


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_queries_recomputed_a_head_at_a_time_are_those_of_the_whole_formula(options):
    (captured,) = recorded(Custom(**options), inputs(kv_heads=2)).calls
    call, rows = captured.checked_call(), torch.tensor([0, 3, 41, N - 1])
    at_once = verified._by_formula(captured, verified._in_double(verified._call_rows(call, rows)))
    for part, expected in zip(verified._exact_rows(captured, call, rows), at_once, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-12, atol=1e-14)


def test_verify_says_how_many_queries_are_recomputed_in_float64():
    recording = recorded(Custom(), inputs())
    comparison = recording.verify().calls[0]
    assert f"{comparison.judged} of {N} queries are recomputed in float64, evenly spaced ones" in str(recording.verify())
    short = recorded(Custom(), inputs(queries=5)).verify()
    assert "float64" not in str(short)
    assert short.calls[0].judged is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("keep", ["qkv", "summary"])
def test_other_precisions_are_verified_within_their_bounds(dtype, keep):
    result = recorded(Custom(mask=overt.Causal()), inputs(dtype=dtype), keep=keep).verify()
    assert result.holds
    assert result.difference > 0 or dtype != torch.float64  # of few bits, two roundings of one sum may be the same


class Terminal(StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """A terminal in place of stderr, on which bars show at once: pytest sets stderr anew between a fixture and its test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("overt.drawing.progress.AFTER", -1.0)
    return stream


def test_long_work_shows_a_bar_on_a_terminal(monkeypatch):
    terminal = on_terminal(monkeypatch)
    recorded(Custom(), inputs()).verify()
    assert "verifying" in terminal.getvalue()


def _language_model():
    model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32).eval()
    with record(model) as recording, torch.no_grad():
        model(torch.tensor([[3, 7, 9, 7, 4]]))
    return model, recording


def _translation():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    with record(model) as recording, torch.no_grad():
        model(torch.randn(1, 6, 8), torch.randn(1, 4, 8))
    return recording


ANALYSES = {
    "splitting heads by token": lambda: lens.contributions(*reversed(_language_model()), 3),
    "running the probe": lambda: lens.probe(_language_model()[0], sequences=2),
    "measuring norms": lambda: lens.norm_weights(*reversed(_language_model())).layer(0),
    "aligning steps": lambda: lens.alignment(_translation(), "decoder.layers.0.multihead_attn"),
}


@pytest.mark.parametrize("doing", ANALYSES)
def test_each_analysis_that_walks_over_many_parts_shows_a_bar(doing, monkeypatch):
    terminal = on_terminal(monkeypatch)
    ANALYSES[doing]()
    assert doing in terminal.getvalue()


def test_work_inside_of_work_shows_one_bar(monkeypatch):
    terminal = on_terminal(monkeypatch)
    assert [list(progress("ab", "inner")) for _ in progress("ab", "outer")] == [["a", "b"], ["a", "b"]]
    assert "outer" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()


def test_no_bar_where_the_environment_says_so_nor_for_quick_work(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("OVERT_PROGRESS", "0")
    assert list(progress("ab", "one")) == ["a", "b"]
    monkeypatch.delenv("OVERT_PROGRESS")
    monkeypatch.setattr("overt.drawing.progress.AFTER", 60.0)
    assert list(progress("ab", "two")) == ["a", "b"]
    assert terminal.getvalue() == ""


def test_an_error_in_the_work_ends_its_bar(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with pytest.raises(ValueError, match="invalid literal"):
        [int(each) for each in progress("ab", "failing")]
    assert [*progress("ab", "another")] == ["a", "b"]
    assert "another" in terminal.getvalue()
