"""The matrix of models: its judge is able to say that something is wrong, and a sample of the models is right."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import overt
from benchmarks import models
from benchmarks.matrix import edits, isolation, judge, linear, mixing, verdicts
from benchmarks.matrix.models import small

ROOT = Path(__file__).parents[3]

WIDTH = 16
X = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))


class ByHand(nn.Module):
    """Self-attention of two heads, its weights this function of the scores."""

    def __init__(self, weigh=lambda scores: scores.softmax(-1)):
        super().__init__()
        torch.manual_seed(0)
        self.weigh, self.projection = weigh, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        query, key, value = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in self.projection(x).chunk(3, -1))
        return (self.weigh(query @ key.mT) @ value).transpose(1, 2).flatten(2)


class Layers(nn.Module):
    """Two layers of attention."""

    def __init__(self):
        super().__init__()
        self.first, self.second = ByHand(), ByHand()

    def forward(self, x):
        return self.second(self.first(x))


@torch.no_grad()
def run(model):
    return {"output": model(X)}


def watched(model, x=X):
    with torch.no_grad(), judge.Judge(model) as watching:
        model(x)
    return watching.events


def recorded(model):
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(X)
    return [(recording.layers[index], verdicts.weights_of(recording, index)) for index in range(len(recording))]


def test_a_right_recording_is_judged_exact():
    verdict = verdicts.of_recording(Layers(), run)
    assert (verdict.verdict, verdict.numbers) == (
        "exact",
        {"attended": 2, "recorded": 2, "matched": 2, "edits": 2, "edited": 2},
    )


def test_an_edit_that_the_judge_does_not_make_is_judged_off(monkeypatch):
    monkeypatch.setattr(edits, "without", lambda row, key, divides: row)
    verdict = verdicts.of_recording(Layers(), run)
    assert (verdict.verdict, verdict.numbers["edits"], verdict.numbers["edited"]) == ("exact", 2, 0)
    assert "off by" in verdict.edit_reason


def test_the_arc_of_a_later_call_with_the_same_weights_but_for_rounding_is_its_own():
    class Streams(nn.Module):
        """LiLT's form: two layers attend with the same scores, which are computed in two orders."""

        def forward(self, x):
            first = (x @ x.mT * 0.3).softmax(-1) @ x
            return torch.cat([first, (x @ (x.mT * 0.3)).softmax(-1) @ x.flip(-1)], dim=-1)

    first, second = (judge_weights for _, judge_weights in recorded(Streams()))
    assert 0 < float((first - second).abs().max()) < 1e-6
    verdict = verdicts.of_recording(Streams(), run)
    assert (verdict.numbers["edits"], verdict.numbers["edited"]) == (2, 2), verdict.edit_reason


def test_weights_that_were_altered_are_judged_wrong():
    model = Layers()
    weights = recorded(model)
    weights[1][1][0, 1, 2, 3] += 1e-3
    result = judge.judged(watched(model), weights, [])
    assert result.wrong.startswith("the weights recorded for second are off by 1.0e-03")


def test_weights_of_another_shape_are_judged_wrong():
    model = Layers()
    (_, first), second = recorded(model)
    assert "of a shape that never ran" in judge.judged(watched(model), [("first", first[..., :-1]), second], []).wrong


def test_a_call_that_was_recorded_twice_is_judged_wrong():
    model = Layers()
    first, _ = recorded(model)
    assert judge.judged(watched(model), [first, first], []).wrong


def test_attention_that_is_neither_recorded_nor_listed_is_a_silent_miss():
    model = Layers()
    first, _ = recorded(model)
    assert judge.judged(watched(model), [first], []).unseen == ("second (softmax and bmm)",)
    assert judge.judged(watched(model), [first], [("first", "another one")]).unseen
    assert not judge.judged(watched(model), [first], [("second", "why")]).unseen


def test_a_recorder_that_changes_outputs_or_raises_is_judged_so(monkeypatch):
    @contextmanager
    def changing(model):
        model.projection.bias.data += 1e-6
        yield SimpleNamespace(missing=[])

    monkeypatch.setattr(overt.lens, "record", changing)
    verdict = verdicts.of_recording(ByHand(), run)
    assert (verdict.verdict, verdict.why[:24]) == ("wrong", "recording changes output")

    @contextmanager
    def raising(model):
        raise KeyError("sinks")
        yield

    monkeypatch.setattr(overt.lens, "record", raising)
    assert verdicts.of_recording(ByHand(), run).why == "recording raises KeyError: 'sinks'"


@pytest.mark.parametrize(
    "weigh",
    [torch.sigmoid, lambda scores: scores.relu().square(), lambda scores: scores.softmax(-1) * torch.ones(5, 5).tril(), lambda scores: scores.softmax(-1)[..., :5].flip(-1).flip(-1)],
    ids=["sigmoid", "squared relu", "masked afterwards", "laid out anew"],
)  # fmt: skip
def test_the_judge_sees_weights_on_their_way_to_the_product(weigh):
    model = ByHand(weigh)
    (event,) = watched(model)
    query, key, _ = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in model.projection(X).chunk(3, -1))
    expected = weigh(query @ key.mT).flatten(0, 1)
    torch.testing.assert_close(event.weights.float(), expected.detach())


@pytest.mark.parametrize("weigh", [lambda scores: scores, lambda scores: scores.softmax(-2)], ids=["linear", "over queries"])
def test_the_judge_takes_nothing_else_for_attention(weigh):
    assert watched(ByHand(weigh)) == []


def test_the_judge_sees_a_softmax_whose_batch_and_length_are_squeezed():
    class Pooling(nn.Module):
        def forward(self, x):
            return torch.einsum("bk,bkw->bw", x.mean(-1).softmax(-1), x)

    (event,) = watched(Pooling())
    torch.testing.assert_close(event.weights[:, 0].float(), X.mean(-1).softmax(-1))


def test_weights_that_meet_values_element_by_element_may_be_recorded_and_are_held_against_what_ran():
    class Deformable(nn.Module):
        def forward(self, x):
            return (x[:, :, None] * (x @ x.mT).softmax(-1)[..., None][:, :, :, :1].transpose(1, 2)).sum(1)

    model = Deformable()
    (event,) = [each for each in watched(model) if not each.required]
    weights = (X @ X.mT).softmax(-1)
    assert judge.apart(weights[:, None], event) < 1e-6
    assert judge.judged([event], [], []).unseen == ()
    assert judge.judged([event], [("", weights[:, None] * 1.01)], []).wrong


def test_the_judge_does_not_switch_torchs_fast_path_off():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 1).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), judge.Judge(encoder) as watching:
        encoder(X, src_key_padding_mask=padding)
    (event,) = watching.events
    assert event.operator == "aten::_transformer_encoder_layer_fwd"
    _, weights = layer.self_attn(X, X, X, key_padding_mask=padding, average_attn_weights=False)
    ran = weights.detach().masked_fill(padding[:, None, :, None], torch.nan)  # no query of padding did
    torch.testing.assert_close(event.weights.float(), ran.flatten(0, 1), equal_nan=True)


def test_the_weights_of_a_fused_operator_come_from_its_arguments():
    class Fused(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True, scale=0.5)

    (event,) = watched(Fused())
    scores = (0.5 * X.double() @ X.double().mT).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(event.weights, scores.softmax(-1))


def test_scores_drown_in_the_lowest_number_of_a_mask_as_they_do_in_float32():
    class Fused(nn.Module):
        def forward(self, x):
            lowest = torch.full((5, 5), torch.finfo(torch.float32).min)
            return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=lowest.tril(-1))

    (event,) = watched(Fused())
    # A product of one row has other roundings than one of five on some processors.
    torch.testing.assert_close(event.weights[0, 0], (X[0, 0].double() @ X[0].double().T / 4).softmax(-1), rtol=1e-14, atol=0)
    assert float(event.weights[0, 4, 4]) == 1.0


def test_modules_that_mix_tokens_are_found_and_wanted_in_the_list():
    class Shift(nn.Module):
        def forward(self, hidden_states):
            return hidden_states + hidden_states.roll(1, dims=1)

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Shift(), ByHand())

    def names():
        return mixing.mixers(model, run, 5)

    assert names() == ["1", "2"]
    verdict = verdicts.of_recording(model, run, mixing=names)
    assert verdict.verdict == "whole"  # all of its attention is recorded, and the shift is listed
    if verdict.verdict == "wrong":
        assert "tokens are mixed by 1, 1 modules in all, not listed" in verdict.why
    else:
        assert verdict.why.startswith("1: ")


def backend(output, *, calls=1, warn=None):
    def one(path):
        if path not in ("eager", "sdpa"):
            if warn is not None:
                warnings.warn(warn, stacklevel=1)
            for _ in range(calls):
                overt.attend(X, X, X)
        return {"output": output if path not in ("eager", "sdpa") else X}, None

    return verdicts.of_backend([("a pass", one)], True)


def test_a_backend_that_is_off_or_never_called_in_silence_is_judged_wrong():
    pytest.importorskip("transformers")
    assert backend(X).verdict == "exact"
    off = backend(X + 1e-3)
    assert off.verdict == "wrong"
    assert off.why.startswith("a pass: output off by ")
    assert backend(X, calls=0).why == "a pass: it never called overt, and nothing said so"
    assert backend(X, calls=0, warn="it took overt and did not call it").verdict == "missing"


def test_a_backend_may_be_off_as_far_as_the_models_own_paths_are_and_no_further():
    def off(from_model, mine):
        return verdicts.compare({"output": X}, {"output": X * (1 + from_model)}, {"output": X * (1 + mine)}, None)

    assert off(0.0, 9e-6).off <= off(0.0, 9e-6).allowed
    assert off(0.0, 3e-5).off > off(0.0, 3e-5).allowed
    assert off(2e-5, 3e-5).off <= off(2e-5, 3e-5).allowed
    assert off(0.1, 0.05).off > off(0.1, 0.05).allowed


def test_rows_of_padding_are_not_compared():
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    other = X.clone()
    other[1, 4] = 100
    assert verdicts.relative(X, other, real) == 0.0
    assert verdicts.relative(X, other) > 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.slow
def test_a_model_that_crashes_or_hangs_ends_nothing_but_itself():
    assert isolation.apart(lambda: {"a": 1}, 20) == {"a": 1}
    assert isolation.apart(lambda: os.kill(os.getpid(), signal.SIGSEGV), 20) == {"died": "its process ended by signal SIGSEGV"}
    assert isolation.apart(lambda: 1 / 0, 20) == {"died": "ZeroDivisionError: division by zero"}
    assert isolation.apart(lambda: time.sleep(60), 0.2) == {"died": "it ran for more than 0.2 s"}


def test_a_configuration_is_made_small_by_the_names_of_its_fields():
    transformers = pytest.importorskip("transformers")
    config = small.small(transformers.LlamaConfig())
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.vocab_size) == (2, 64, 4, 160)
    mixed = small.small(transformers.Gemma3TextConfig())
    assert mixed.layer_types == ["sliding_attention", "full_attention"]
    both = small.small(transformers.CLIPConfig())
    assert (both.vision_config.image_size, both.vision_config.patch_size, both.text_config.hidden_size) == (32, 8, 64)


def sample(count=40):
    """Every so many-th of the models that were built, spread over libraries and kinds of input; timm and x-transformers are not installed."""
    models = json.loads((ROOT / "docs" / "results" / "models.json").read_text())["models"]
    built = [each for each in models if "not built" not in each and each["library"] in ("torch", "transformers")]
    built.sort(key=lambda each: (each["library"], each["kind"], each["name"]))
    return [built[index * len(built) // count]["name"] for index in range(count)]


@pytest.mark.long
@pytest.mark.slow
def test_nothing_is_wrong_and_nothing_crashes_in_a_sample_of_40_models(tmp_path):
    names = sample()
    assert len(set(names)) == 40
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "benchmarks.models", "--log", log, "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(line["name"] for line in lines) == sorted(names)
    unbuilt = {line["name"]: line["not built"] for line in lines if "not built" in line}
    assert all("timm" in reason for reason in unbuilt.values()), unbuilt
    assert len(unbuilt) <= 4
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def mamba():
    """A small Mamba-2, its recording, and the linear mixers that the judge saw in it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Mamba2Config(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, state_size=4, n_groups=1, chunk_size=4
    )
    model, ids = transformers.Mamba2Model(config).eval(), torch.arange(14).view(2, 7)
    with torch.no_grad(), linear.LinearJudge(model).watching() as watching:
        model(ids)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(ids)
    return (
        model,
        recording,
        watching.events,
        [(each, verdicts.weights_of(recording, n)) for n, each in enumerate(recording.layers)],
    )


def test_linear_mixers_are_held_against_the_models_own_function(mamba):
    _, _, events, recorded = mamba
    assert [event.module for event in events] == ["layers.0.mixer", "layers.1.mixer"]
    assert linear.judged(events, recorded) == ([], "")


def test_weights_of_a_linear_mixer_that_were_altered_are_judged_wrong(mamba):
    _, _, events, [(layer, weights), second] = mamba
    altered = weights.clone()
    altered[0, 1, 4, 2] += 1e-3 * weights.abs().max()
    assert "layers.0.mixer are off by 1.0e-03" in linear.judged(events, [(layer, altered), second])[1]


def test_a_linear_mixer_that_was_not_recorded_is_left(mamba):
    _, _, events, [first, _] = mamba
    assert linear.judged(events, [first]) == ([events[1]], "")
    assert "never ran" in linear.judged(events, [first, first])[1]


def test_a_recording_of_linear_mixers_is_exact_and_without_one_of_them_a_silent_miss(mamba, monkeypatch):
    model = mamba[0]

    def run(each):
        return {"output": each(torch.arange(14).view(2, 7)).last_hidden_state}

    with torch.no_grad():
        verdict = verdicts.of_recording(model, run)
        assert verdict.verdict == "exact"
        assert (verdict.numbers["linear"], verdict.numbers["linear recorded"]) == (2, 2)
        record = overt.lens.record
        monkeypatch.setattr(overt.lens, "record", lambda each: record(each, layers=[0]))
        verdict = verdicts.of_recording(model, run)
        assert verdict.verdict == "wrong"
        assert "silent miss: linear mixers in layers.1.mixer" in verdict.why


@pytest.mark.parametrize(
    ("reason", "beside"),
    [
        (
            "Stem mixes tokens by a convolution over 3 × 3 positions and pooling over 2 × 2 positions: no attention weights are recorded",
            True,
        ),
        (
            "Layer mixes tokens by a convolution over 4 positions and a recurrence over tokens: no attention weights are recorded",
            False,
        ),
        ("weights are rearranged by pad, and not tracked from there", False),
    ],
)
def test_what_is_listed_beside_attention_is_told_from_what_is_missing(reason, beside):
    assert verdicts.beside_attention(reason) is beside


@pytest.fixture
def shown(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(ROOT / "docs" / "making")
    return importlib.import_module("shown.models")


def test_the_table_of_models_escapes_all_that_models_say(shown, monkeypatch):
    bad = "<script>alert('x')</script>&"
    exact, wrong = {"verdict": "exact", "recorded": 2}, {"verdict": "wrong", "why": bad}
    lines = [
        {"name": f"a{bad}", "library": "torch", "kind": bad, "class": bad, "recording eager": exact, "backend": wrong},
        {"name": "b", "library": "transformers", "not built": bad},
    ]
    monkeypatch.setattr(shown, "result", lambda name: {"models": lines})
    text = shown.rows()
    assert "<script>alert" not in text
    assert text.count("<tr data-verdicts") == 2
    assert 'data-verdicts="exact wrong"' in text
    assert "<small>2 calls</small>" in text
    assert "http" not in text


def test_edited_arcs_are_a_column_and_a_row_of_the_table(shown, monkeypatch):
    def line(name, edits, edited, **more):
        return {
            "name": name,
            "library": "torch",
            "recording eager": {"verdict": "exact", "recorded": 2, "edits": edits, "edited": edited} | more,
        }

    lines = [
        line("a", 3, 3), line("b", 3, 3), line("c", 0, 0), line("d", 9, 6, **{"edit why": "L3H0, query 6, key 11: off by 2.2e-02"}),
        line("e", 6, 0, **{"edit why": "L0H0, query 6, key 4: InputError: Expected a layer whose weights can be computed once more"}),
    ]  # fmt: skip
    measured = {"models": lines, "counts": {"ways": {way: {"exact": 5} for way in shown.WAYS}, "edited": models.edited(lines)}}
    monkeypatch.setattr(shown, "result", lambda name: measured)
    assert [cell.strip() for cell in shown.counts().splitlines()[-1].strip("|").split("|")] == [
        "edited",
        "2",
        "0",
        "0",
        "1",
        "1",
        "0",
    ]
    assert "**2 of 4 models (50.0%)**" in shown.edited()
    assert "Not exact: d (L3H0, query 6, key 11: off by 2.2e-02); e (L0H0" in shown.edited()
    assert "<small>3 arcs</small>" in shown.row(lines[0])
    assert shown.row(lines[2]).count("<td>–</td>") == 3
    assert 'data-verdicts="exact refused"' in shown.row(lines[4])


def test_the_tables_counts_are_those_of_its_rows(shown):
    models = shown.result("models")
    lines = models["models"]
    for way in shown.WAYS:
        verdicts = [line[way]["verdict"] for line in lines if way in line]
        assert models["counts"]["ways"][way] == {verdict: verdicts.count(verdict) for verdict in set(verdicts)}
    assert shown.rows().count("<tr data-verdicts") == len(lines)
