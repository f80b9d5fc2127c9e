"""Attention over edges is recorded with the weights that the model computed, whatever form its edges have."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from overt.lens import load, record
from tests.lens.by_index.attention import FIRST, FROZEN, LENGTH, WIDTH, Edges


class Net(nn.Module):
    """An ordinary layer of attention, and one over edges."""

    def __init__(self, run):
        super().__init__()
        self.first, self.odd = nn.MultiheadAttention(WIDTH, 2, batch_first=True), Edges(run)

    def forward(self, x):
        return self.odd(x + self.first(x, x, x, need_weights=False)[0])


def recorded(run, dtype=torch.float32, **options):
    torch.manual_seed(0)
    model, x = Net(run).eval().to(dtype), torch.randn(3, LENGTH, WIDTH, dtype=dtype)
    with torch.no_grad():
        plain_output = model(x)
        with record(model, **options) as recording:
            assert torch.equal(model(x), plain_output)
    return model, recording


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("run", (FIRST | FROZEN).values(), ids=FIRST | FROZEN)
def test_the_weights_of_edges_are_those_that_the_layer_computed(run):
    model, recording = recorded(run)
    assert recording.missing == []
    assert recording.layers == ["first", "odd"]
    expected = model.odd.dense()
    weights = np.stack([recording["odd", head].weights().numpy() for head in range(expected.shape[1])], axis=1)
    assert np.allclose(weights, expected, atol=1e-6)
    checked = recording.verify()
    assert checked.holds
    assert "covers all token-mixing layers that ran: 2" in str(checked)


@pytest.mark.parametrize("keep", ["qkv", "summary"])
def test_a_recording_of_edges_is_saved_drawn_and_summarised_as_others_are(tmp_path, keep):
    model, recording = recorded(FIRST["graph"], keep=keep)
    head, expected = recording["odd", 1], model.odd.dense()[0, 1]
    assert head.top(1, 2).keys[0].tolist() == np.argsort(-expected[1])[:2].tolist()
    entropy = -(expected * np.log(np.where(expected > 0, expected, 1))).sum(-1)
    assert np.allclose(head.entropy()[0].numpy(), entropy, atol=1e-5)
    assert np.allclose(head.map(len(expected))[0].numpy(), expected, atol=1e-6)
    recording.save(tmp_path / "edges.safetensors")
    loaded = load(tmp_path / "edges.safetensors")
    assert str(loaded.verify()) == str(recording.verify())
    assert torch.equal(loaded["odd", 1].received(), head.received())
    assert "softmax over edges" in str(recording)
    assert len(recording.roles()) == 4
    assert recording.page().startswith("<!doctype html>")


def test_the_steps_of_a_query_without_an_edge_are_zeros():
    _, recording = recorded(FIRST["graph"])
    steps = recording["odd", 0].steps(5)
    assert not steps.weights.any()
    assert not steps.output.any()


@pytest.mark.parametrize("run", [FIRST["ring"], FIRST["graph"], FROZEN["heads_before_edges"]])
def test_one_head_of_edges_is_recorded_alone(run):
    model, recording = recorded(run, heads=[1])
    assert np.allclose(recording["odd", 1].weights()[0].numpy(), model.odd.dense()[0, 1], atol=1e-6)


def test_weights_in_training_are_those_before_dropout():
    def dropped(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        near = (torch.arange(LENGTH)[:, None] + torch.arange(3)) % LENGTH
        weights = (query[:, :, None] * key[:, near]).sum(-1).softmax(-1)
        self.note(weights.flatten(1)[:, None], torch.arange(LENGTH).repeat_interleave(3)[None], near.reshape(1, -1))
        return (functional.dropout(weights, 0.5, True)[..., None] * value[:, near]).sum(2)

    torch.manual_seed(0)
    model, x = Edges(dropped), torch.randn(2, LENGTH, WIDTH)
    with record(model) as recording:
        model(x)
    assert np.allclose(recording[0, 0].weights().numpy(), model.dense()[:, 0], atol=1e-6)
    assert "dropout 0.5 was drawn at random" in str(recording.verify())


def test_edges_in_half_precision_are_verified_within_its_rounding():
    _, recording = recorded(FIRST["graph_of_batch"], torch.bfloat16)
    assert recording.layers == ["first", "odd"]
    assert recording.verify().holds


@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_with_weights_of_its_own_is_missing_by_name_in_any_batch(batch):
    """ConvBERT's: unfolded neighbours, heads joined with tokens, times a softmax over the kernel."""

    def convolved(self, x):
        kernel = torch.softmax(x[..., :6].reshape(-1, 3, 1), dim=1)  # (B·n·heads, 3, 1)
        neighbours = functional.unfold(x.mT[..., None], (3, 1), padding=(1, 0))  # (B, width·3, n)
        neighbours = neighbours.mT.reshape(-1, WIDTH // 2, 3)  # (B·n·heads, D, 3)
        return (neighbours @ kernel).reshape(x.shape)

    with torch.no_grad(), record(model := Net(convolved).eval()) as recording:
        model(torch.randn(batch, LENGTH, WIDTH))
    assert [layer for layer, _ in recording.missing] == ["odd"]
    assert "overt failed" not in str(recording.missing)
