import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import overt
from overt.errors import InputError
from overt.lens import mean_attention, rollout
from readable import Fused, alike, all_weights_by_hand, recorded, sequence, stack


def rolled_by_hand(weights):
    """Abnar and Zuidema's product, in NumPy."""
    result = np.eye(weights[0].shape[-1])
    for layer in weights:
        mean = layer.mean(1)
        result = (0.5 * mean + 0.5 * np.eye(mean.shape[-1])) @ result
    return result


@pytest.mark.parametrize("causal", [False, True])
def test_rollout_is_the_product_of_half_attention_half_identity(causal):
    model, x = stack(causal=causal), sequence()
    alike(rollout(recorded(model, x)), rolled_by_hand(all_weights_by_hand(model, x)))


def test_rollout_to_a_lower_layer_takes_no_layer_above():
    model, x = stack(), sequence()
    alike(rollout(recorded(model, x), layer=1), rolled_by_hand(all_weights_by_hand(model, x)[:2]))


def test_some_rows_are_rows_of_the_whole():
    recording = recorded(stack(), sequence())
    assert torch.equal(rollout(recording, rows=[4, 1]), rollout(recording)[:, [4, 1]])


def test_a_causal_model_rolls_out_to_no_later_token():
    result = rollout(recorded(stack(causal=True), sequence()))
    assert bool((result.triu(1) == 0).all())


def test_padding_gets_nothing_from_the_tokens():
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(sequence(), src_key_padding_mask=padding)
    result = rollout(recording)
    assert bool((result[1, :5, 5:] == 0).all())
    alike(result.sum(-1), np.ones((2, 7)))


def test_a_query_that_may_attend_to_nothing_stays_itself():
    class Barred(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, mask=overt.masks.Dense(torch.tensor([[False, False], [True, True]])))

    x = torch.randn(1, 1, 2, 4)
    result = rollout(recorded(Barred(), x))
    assert result[0, 0].tolist() == [1, 0]


@pytest.mark.slow
def test_rollout_at_length_holds_its_result_and_little_else():
    class Largest(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs or {})
            for each in result if isinstance(result, tuple | list) else [result]:
                self.most = max(self.most, each.numel()) if isinstance(each, torch.Tensor) else self.most
            return result

    length = 4096
    recording = recorded(stack(layers=1), sequence(1, length))
    with Largest() as largest:
        result = rollout(recording, rows=slice(0, 600))
    assert result.shape == (1, 600, length)
    assert largest.most <= result.numel()


def test_raw_attention_is_the_mean_over_heads():
    model, x = stack(), sequence()
    expected = all_weights_by_hand(model, x)
    recording = recorded(model, x)
    alike(mean_attention(recording), expected[-1].mean(1))
    alike(mean_attention(recording, 0, rows=[3]), expected[0].mean(1)[:, [3]])


def test_several_passes_are_refused():
    model, x = stack(), sequence()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(x)
        model(x)
    with pytest.raises(
        InputError, match=r"one pass of the model, for rollout, got a recording of 2. Fix: pass recording.passes\[0\]"
    ):
        rollout(recording)
    alike(rollout(recording.passes[1]), rolled_by_hand(all_weights_by_hand(model, x)))


def test_two_sequences_are_refused():
    class Crossed(torch.nn.Module):
        def forward(self, x, y):
            return functional.scaled_dot_product_attention(x, y, y)

    recording = recorded(Crossed(), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4))
    with pytest.raises(InputError, match="layers of self-attention over one sequence, for rollout, got Crossed 3 × 5"):
        rollout(recording)


def test_a_summary_is_refused():
    recording = recorded(Fused(), sequence(), keep="summary")
    with pytest.raises(InputError, match='got summaries of Fused. Fix: record with keep="qkv"'):
        rollout(recording)


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="one of the recorded calls, 0, 1, 2, got layer 3"):
        rollout(recorded(stack(), sequence()), layer=3)
