"""Path patching against runs of plain modules whose heads between are put back by hand."""

import pytest
import torch
from torch import nn
from transformers.models.t5.modeling_t5 import T5LayerNorm

from overt import lens
from overt.errors import InputError
from readable import HEADS, KINDS, WIDTH, alike, output_matrix, recorded, sequence, stack

SIZE = WIDTH // HEADS


class Normed(nn.Module):
    """Layers of a stack with a norm before each."""

    def __init__(self, kind="sdpa", layers=3, norm=nn.LayerNorm):
        super().__init__()
        self.layers = stack(kind, layers)
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(layers))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x)) - norm(x)  # the layer's plain_run residual is that of its input
        return x


def written(layer, head, output):
    """What a head writes into the stream."""
    matrix = output_matrix(layer).weight.detach()
    return output @ matrix[:, head * SIZE : (head + 1) * SIZE].T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", ["query", "key", "value"])
def test_without_norms_a_path_is_what_the_sender_writes_through_the_receivers_matrix(kind, into):
    model, x = stack(kind), sequence()
    plain_run = recorded(model, x)
    with torch.no_grad(), lens.edit(model) as edits, lens.record(model) as changed:
        edits.path((0, 1), (2, 3), into=into)
        model(x)
    plain = {name: getattr(plain_run[2, 3], name) for name in ("query", "key", "value")}

    def of_stream(stream):
        recording = recorded(model[2], stream)
        return getattr(recording[0, 3], into)

    # The residual stream without what the sender wrote: heads of layer 1 read it as it was.
    stream = x
    with torch.no_grad():
        for layer in model[:2]:
            stream = layer(stream)
    plain[into] = of_stream(stream - written(model[0], 1, plain_run[0, 1].output))
    weights = (plain["query"] @ plain["key"].mT / SIZE**0.5).softmax(-1)
    alike(changed[2, 3].output, weights @ plain["value"])
    alike(changed[2, 2].output, plain_run[2, 2].output)
    alike(changed[1, 0].output, plain_run[1, 0].output)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm, T5LayerNorm])  # T5's divides by the root of the mean square
@pytest.mark.parametrize("norms", ["recomputed", "frozen"])
def test_norms_are_recomputed_or_frozen_as_the_caller_says(norms, kind):
    model, x = Normed(norm=kind), sequence()
    plain_run = recorded(model, x)
    with torch.no_grad(), lens.edit(model) as edits, lens.record(model) as changed:
        edits.path((0, 1), (2, 3), norms=norms)
        model(x)
        streams = [x]
        for norm, layer in zip(model.norms, model.layers, strict=True):
            streams.append(streams[-1] + layer(norm(streams[-1])) - norm(streams[-1]))
    stream = streams[2] - written(model.layers[0], 1, plain_run[0, 1].output)
    with torch.no_grad():
        norm = model.norms[2]
        centred, read = (
            value - value.mean(-1, keepdim=True) if kind is nn.LayerNorm else value for value in (streams[2], stream)
        )
        read = read / centred.square().mean(-1, keepdim=True).sqrt() if norms == "frozen" else norm(stream)
    query = recorded(model.layers[2], read)[0, 3].query
    weights = (query @ plain_run[2, 3].key.mT / SIZE**0.5).softmax(-1)
    alike(changed[2, 3].output, weights @ plain_run[2, 3].value)


def test_a_path_may_carry_the_output_of_another_run():
    model, x = stack(), sequence()
    plain_run, other = recorded(model, x), recorded(model, sequence(seed=5))
    with torch.no_grad(), lens.edit(model) as edits, lens.record(model) as changed:
        edits.path((0, 1), (2, 3), into="value", from_=other)
        model(x)
        stream = model[1](model[0](x)) + written(model[0], 1, other[0, 1].output - plain_run[0, 1].output)
    value = recorded(model[2], stream)[0, 3].value
    alike(changed[2, 3].output, plain_run[2, 3].weights() @ value)


def test_recordings_around_see_one_plain_pass_and_effects_take_paths():
    model, x = stack(), sequence()
    edits = [lens.Edits().path((0, head), (2, 3)) for head in range(HEADS)]
    with torch.no_grad(), lens.record(model) as around, lens.edit(model, edits[0]):
        model(x)
    assert (len(around), around.pass_count) == (3, 1)
    assert around.verify().holds
    alone, together = (lens.effect(model, lambda: model(x), edits, batch=batch) for batch in (1, 3))
    torch.testing.assert_close(alone.tensor(), together.tensor(), rtol=1e-4, atol=1e-6)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        (lambda: lens.Edits().path((2, 1), (0, 3)), "a receiver in a later call than the sender"),
        (lambda: lens.Edits().path((0, 1), (2, 3), "output"), "into='output'"),
        (lambda: lens.Edits().path((0, None), (2, 3)), r"one head for each end of a path, got \(0, None\)"),
        (lambda: lens.Edits().path((0, 1), (2, 3), norms="none"), "norms='none'"),
        (
            lambda: lens.Edits().path((0, 1), (2, 3), norms="frozen"),
            "norms .* to freeze their scales, got a Sequential without one",
        ),
    ],
)
def test_paths_that_are_none_are_refused(edits, words):
    model, x = stack(), sequence()
    with pytest.raises(InputError, match=words):
        lens.effect(model, lambda: model(x), edits())
