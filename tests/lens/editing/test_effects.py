"""Effects of many edits, one by one, in batches, and from a file."""

import json

import pytest
import torch
from torch import nn

from overt import lens
from overt.errors import InputError, KindError
from readable import KINDS, sequence, stack

HEADS = [(layer, head) for layer in range(3) for head in range(4)]


def edits_of_all():
    return [lens.Edits().scale(pair, 0.0) for pair in HEADS] + [lens.Edits().block(pair, query=3, key=1) for pair in HEADS]


@pytest.mark.parametrize("kind", KINDS)
def test_edits_in_batches_have_the_effects_that_they_have_alone(kind):
    model, x = stack(kind), sequence()
    alone = lens.effect(model, lambda: model(x), edits_of_all())
    together = lens.effect(model, lambda: model(x), edits_of_all(), batch=7)
    torch.testing.assert_close(together.tensor(), alone.tensor(), rtol=1e-5, atol=1e-6)
    assert bool((alone.tensor() > 0).all())


def test_an_effect_is_what_the_measure_says_of_both_outputs():
    model, x = stack(), sequence()
    edits = lens.Edits().scale((2, 1), 0.0)
    effects = lens.effect(model, lambda: model(x), edits, measure=lambda before, after: float((before - after).abs().max()))
    with torch.no_grad():
        plain = model(x)
        with lens.edit(model, edits):
            after = model(x)
    assert list(effects) == [float((plain - after).abs().max())]
    assert lens.ablate(model, lambda: model(x), [(2, 1)]).effect == lens.effect(model, lambda: model(x), edits)[0]


def test_effects_go_on_where_a_file_ends(tmp_path):
    model, x, runs = stack(), sequence(), []

    def run():
        runs.append(1)
        return model(x)

    file, edits = tmp_path / "effects.json", edits_of_all()
    whole = lens.effect(model, run, edits, file=file)
    stored = json.loads(file.read_text())
    stored["effects"] = dict(list(stored["effects"].items())[:20])
    file.write_text(json.dumps(stored))
    runs.clear()
    resumed = lens.effect(model, run, edits, file=file)
    assert resumed.values == whole.values
    assert len(runs) == 1 + 1 + len(edits) - 20  # the model's own, one stored effect again, and those that were missing
    with pytest.raises(
        InputError, match="effects of this model, this run and this measure, got .*effects.json, where scale 0 of"
    ):
        lens.effect(model, lambda: model(3 * x), edits, file=file)
    with pytest.raises(InputError, match="the effects of these 3 edits, got .*effects.json, of others"):
        lens.effect(model, run, edits[:3], file=file)
    file.write_text("[]")
    with pytest.raises(InputError, match="a file of effects, got .*effects.json, which is none"):
        lens.effect(model, run, edits, file=file)


def test_a_model_that_mixes_its_sequences_is_refused_in_batches():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = stack(layers=1)

        def forward(self, x):
            return self.layer(x) + x.mean(0, keepdim=True) + x.sum()

    model, x = Mixed(), sequence()
    with pytest.raises(InputError, match="a model whose sequences do not change each other"):
        lens.effect(model, lambda: model(x), lens.Edits().scale((0, 0), 0.0), batch=2)
    plain = stack()
    with pytest.raises(InputError, match="a run that returns tensors with the batch first"):
        lens.effect(plain, lambda: plain(x)[0, :5], lens.Edits().scale((0, 0), 0.0), batch=2)
    with pytest.raises(InputError, match="a run that calls the model once"):
        lens.effect(plain, lambda: plain(plain(x)), lens.Edits().scale((0, 0), 0.0), batch=2)


def test_the_table_begins_with_the_largest_effect():
    model, x = stack(), sequence()
    effects = lens.effect(model, lambda: model(x), edits_of_all())
    strongest = effects.strongest(3)
    assert [value for _, value in strongest] == sorted(effects, reverse=True)[:3]
    assert str(effects).splitlines()[1].split()[0] == f"{strongest[0][1]:.4g}"
    assert str(effects).endswith("… and 4 more")
    assert repr(effects) == "<effects of 24 edits>"


def test_measures_of_logits():
    before, after = torch.randn(2, 5, 7), torch.randn(2, 5, 7)
    first, second = (each[:, -1].double() for each in (before, after))
    shift = (second[:, 3] - second[:, 2] - first[:, 3] + first[:, 2]).mean()
    assert lens.measures.logit_difference(3, 2)(before, after) == pytest.approx(float(shift))
    nats = torch.nn.functional.kl_div(second.log_softmax(-1), first.log_softmax(-1), log_target=True, reduction="batchmean")
    assert lens.measures.divergence()(before, after) == pytest.approx(float(nats))
    labels = torch.randint(7, (2, 5))
    losses = [
        torch.nn.functional.cross_entropy(each[:, :-1].flatten(0, 1).double(), labels[:, 1:].flatten())
        for each in (before, after)
    ]
    assert lens.measures.loss(labels)(before, after) == pytest.approx(float(losses[1] - losses[0]))
    with pytest.raises(InputError, match=r"a run that returns logits \(B, N, words\), got \(2, 7\)"):
        lens.measures.divergence()(first, second)


@pytest.mark.parametrize("edits", [[], "scale", [lens.Edits()], None])
def test_no_edits_have_no_effects(edits):
    with pytest.raises(KindError, match=r"edits as a list of overt.lens.Edits, each with a change"):
        lens.effect(stack(), lambda: None, edits)


def test_a_run_that_is_no_function_is_refused():
    with pytest.raises(KindError, match=r"run as a function that runs the model, got Tensor. Fix: write lambda"):
        lens.effect(stack(), sequence(), edits_of_all())


BEYOND = {
    "word": (
        lens.measures.logit_difference("it", 1),
        r"a token of the vocabulary, 0 to 2, got 'it'. Fix: pass one of these numbers",
    ),
    "token": (lens.measures.logit_difference(7, 1), r"a token of the vocabulary, 0 to 2, got 7"),
    "position of a difference": (lens.measures.logit_difference(0, 1, 5), r"a position of the text, 0 to 3, got 5"),
    "position of a divergence": (lens.measures.divergence(-5), r"a position of the text, 0 to 3, got -5"),
    "labels": (lens.measures.loss([[1, 2]]), r"labels \(B, N\), one for each logit, got \(1, 2\) for logits \(2, 4, 3\)"),
}


@pytest.mark.parametrize("case", BEYOND)
def test_tokens_positions_and_labels_that_the_logits_do_not_have_are_refused(case):
    measure, message = BEYOND[case]
    with pytest.raises(InputError, match=message):
        measure(torch.zeros(2, 4, 3), torch.ones(2, 4, 3))
