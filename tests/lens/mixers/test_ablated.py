"""Heads of linear mixers removed: as if the matrix behind them did not read them."""

import copy

import pytest
import torch

import overt
from overt.errors import InputError
from overt.lens import ablate, without_heads
from small_mixers import mixers, model, tokens

# The mixer of each family, its last matrix, and how many of its columns a head has. Norms and gates between both leave zeros at zero.
OUTPUT = {
    "Qwen3Next": ("model.layers.0.linear_attn", "out_proj", 12),
    "KimiLinear": ("model.layers.0.self_attn", "o_proj", 8),
    "Rwkv": ("rwkv.blocks.0.attention", "output", 1),
    "RecurrentGemma": ("model.layers.0.temporal_block.rg_lru", "model.layers.0.temporal_block.linear_out", 1),
    "Mamba": ("backbone.layers.0.mixer", "out_proj", 1),
    "FalconH1": ("model.layers.0.mamba", "out_proj", 8),
}


@pytest.mark.parametrize("name", OUTPUT)
@pytest.mark.parametrize("way", ["a pass", "step by step"])
@pytest.mark.few_cases(4)
def test_a_mixers_head_taken_out_is_a_head_that_nothing_reads(name, way):
    whole, (layer, matrix, width) = model(name), OUTPUT[name]
    other = copy.deepcopy(whole)
    path = matrix if matrix.startswith("model") else f"{layer}.{matrix}"
    other.get_submodule(path).weight.data[:, width : 2 * width] = 0
    ids = tokens(2, 9)

    def run(each):
        if way == "a pass":
            return each(ids).logits
        first = each(ids[:, :8], use_cache=True)
        cache = {name: first[name] for name in ("past_key_values", "cache_params", "state") if first.get(name) is not None}
        return each(ids[:, 8:], use_cache=True, **cache).logits

    with torch.no_grad(), without_heads(whole, [(layer, 1)]):
        result = run(whole)
    with torch.no_grad():
        torch.testing.assert_close(result, run(other), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(result, run(whole), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["Qwen3Next", "MiniMax", "xLSTM", "Mamba"])
def test_recordings_around_and_inside_have_the_outputs_before_and_after(name):
    whole, ids = model(name), tokens(2, 9)
    with torch.no_grad():
        with overt.lens.record(whole) as plain:
            whole(ids)
        call = mixers(plain)[0]
        with overt.lens.record(whole) as around, without_heads(whole, [(call.layer, 0)]), overt.lens.record(whole) as inside:
            whole(ids)
    before, after = mixers(around)[0].output, mixers(inside)[0].output
    assert torch.equal(before, call.output)
    assert not after[:, 0].any()
    assert torch.equal(after[:, 1:], call.output[:, 1:])
    assert around.verify().calls[0].difference <= around.verify().calls[0].bound


def test_effects_are_measured_by_number_and_together_with_heads_of_attention():
    whole, ids = model("Qwen3Next"), tokens(1, 9)
    effects = [ablate(whole, lambda: whole(ids).logits, heads).effect for heads in ([(0, 1)], [(1, 1)], [(0, 1), (1, 1)])]
    assert all(0 < each < 2 for each in effects)
    assert len(set(effects)) == 3


def test_equal_weights_of_a_mixer_are_refused():
    whole, ids = model("Qwen3Next"), tokens(1, 9)
    with pytest.raises(InputError, match=r'a scale, .* for heads of a linear token mixer, got "uniform" for model'):
        ablate(whole, lambda: whole(ids).logits, [(0, 1)], instead="uniform")


def test_a_head_that_a_mixer_does_not_have_is_refused():
    whole, ids = model("Qwen3Next"), tokens(1, 9)
    with pytest.raises(InputError, match=r"heads from 0 to 3 of model.layers.0.linear_attn, got heads=\[4\]"):
        ablate(whole, lambda: whole(ids).logits, [(0, 4)])
