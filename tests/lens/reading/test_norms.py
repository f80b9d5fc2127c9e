import numpy as np
import pytest
import torch

from overt.errors import InputError, KindError
from overt.lens import norm_weights
from readable import HEADS, KINDS, WIDTH, Fused, alike, output_matrix, recorded, sequence


def contributions(model, recording):
    """What each key adds to each query's output, head by head, in float64: (B, H, Q, K, width)."""
    size = WIDTH // HEADS
    matrix = output_matrix(model).weight.detach().double()
    parts = []
    for head in range(HEADS):
        weights, value = recording[0, head].weights().double(), recording[0, head].value.double()
        turned = value @ matrix[:, head * size : (head + 1) * size].T
        parts.append(weights[..., None] * turned[:, None])
    return torch.stack(parts, dim=1)


@pytest.fixture(params=KINDS)
def recorded_model(request):
    torch.manual_seed(0)
    model = KINDS[request.param]()
    return model, recorded(model, sequence())


def test_contributions_of_all_heads_and_keys_are_the_layers_output(recorded_model):
    model, recording = recorded_model
    x = sequence()
    summed = contributions(model, recording).sum((1, 3)) + output_matrix(model).bias.double()
    alike(model(x) - x, summed.detach().numpy())


def test_a_heads_norms_are_the_lengths_of_its_contributions(recorded_model):
    model, recording = recorded_model
    expected = contributions(model, recording).norm(dim=-1)
    for head in range(HEADS):
        alike(norm_weights(recording, model)[0, head].weights(), expected[:, head].numpy())


def test_a_layers_norms_are_the_lengths_of_its_summed_contributions(recorded_model):
    model, recording = recorded_model
    alike(norm_weights(recording, model).layer(0), contributions(model, recording).sum(1).norm(dim=-1).numpy())


def test_a_block_of_norms_is_cut_from_the_whole():
    model = Fused()
    result = norm_weights(recorded(model, sequence()), model)
    whole = result[0, 2].weights()
    alike(result[0, 2].weights(rows=[5, 1], keys=slice(2, 4)), whole[:, [5, 1], 2:4].numpy())
    alike(result.layer("Fused", rows=[5, 1]), result.layer(0)[:, [5, 1]].numpy())


def test_what_a_key_adds_on_average_is_the_mean_of_its_column():
    model = Fused()
    result = norm_weights(recorded(model, sequence()), model)[0, 1]
    alike(result.received(), result.weights().mean(1).numpy())


def test_a_model_without_a_known_output_matrix_is_refused():
    class Bare(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    model = Bare()
    recording = recorded(model, torch.randn(1, 2, 3, 4))
    message = "a layer with values and a known output matrix.*got Bare has no output matrix of a known name"
    with pytest.raises(InputError, match=message):
        norm_weights(recording, model)[0, 0].weights()
    with pytest.raises(InputError, match=message):
        norm_weights(recording, model).layer(0)


def test_the_norm_of_a_zero_value_is_zero():
    model = Fused()
    model.project.weight.data[2 * WIDTH :] = 0
    model.project.bias.data[2 * WIDTH :] = 0
    assert np.all(norm_weights(recorded(model, sequence()), model).layer(0).numpy() == 0)


def test_a_recording_without_its_model_and_a_model_without_numbers_are_refused():
    model = Fused()
    recording = recorded(model, sequence())
    for other, got in ((None, "no model"), ("Fused", "str")):
        with pytest.raises(KindError, match=f"because a recording has no parameters, got {got}. Fix: pass the model"):
            norm_weights(recording, other)[0, 0].weights()
        if other is not None:
            with pytest.raises(KindError, match=f"because a recording has no parameters, got {got}"):
                recording.page(model=other)
    with pytest.raises(InputError, match="a model with its parameters loaded, got parameters on the device meta"):
        norm_weights(recording, Fused().to("meta"))[0, 0].weights()


def test_norms_print_what_they_are_of_and_not_the_model():
    model = Fused()
    recording = recorded(model, sequence())
    assert repr(norm_weights(recording, model)) == "<norms of 1 call of Fused>"
    assert repr(norm_weights(recording, model)[0, 1]) == "<norms of head 1 of Fused>"
