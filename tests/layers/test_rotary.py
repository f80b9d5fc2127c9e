"""Rotary positions turn queries and keys as RoFormer's formula says, and as Hugging Face's models do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from overt.errors import InputError, KindError
from overt.layers.positions.rotary import Rotary
from overt.layers.positions.rotary_scaling import DynamicScaling, LinearScaling, LongScaling, YarnScaling

WIDTH = 32
PAIRS = WIDTH // 2
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096},
    "yarn, not truncated": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.1,
    },
    "yarn, as DeepSeek": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
    },
    "yarn, its ramp a point": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": [1.0 + 0.01 * i for i in range(PAIRS)],
        "long_factor": [1.0 + 0.5 * i for i in range(PAIRS)],
        "original_max_position_embeddings": 16,
    },
    "longrope with its own strength": {
        "rope_type": "longrope",
        "factor": 4.0,
        "attention_factor": 1.25,
        "short_factor": [1.5] * PAIRS,
        "long_factor": [2.5] * PAIRS,
        "original_max_position_embeddings": 16,
    },
}


def heads(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_hand(x, positions, base=10000.0, *, interleaved=False):
    """The formula in complex numbers and float64: the pair a + ib times e^(i p θ)."""
    x, m = x.double().numpy(), x.shape[-1]
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : m // 2], x[..., m // 2 :])
    theta = np.array([base ** (-2 * i / m) for i in range(m // 2)])
    turned = (first + 1j * second) * np.exp(1j * positions.numpy()[..., :, None] * theta)
    parts = (turned.real, turned.imag)
    return torch.from_numpy(np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1))


def llamas(x, positions, scaling, longest=16):
    """What Hugging Face's Llama makes of queries (B, H, n, D) at places (B, n)."""
    settings = {name: value for name, value in scaling.items() if value is not None}
    config = LlamaConfig(
        hidden_size=2 * x.shape[-1],
        num_attention_heads=2,
        head_dim=x.shape[-1],
        max_position_embeddings=longest,
        rope_theta=10000.0,
        rope_scaling=settings,
    )
    cosines, sines = modeling_llama.LlamaRotaryEmbedding(config)(x, positions)
    return modeling_llama.apply_rotary_pos_emb(x, x, cosines, sines)[0]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_a_pair_of_features_turns_by_place_times_frequency(interleaved, base):
    x, positions = heads(2, 3, 7, 10, dtype=torch.float64), torch.tensor([0, 1, 2, 5, 5, 90, 3])
    result = Rotary(10, base, interleaved=interleaved).heads(x, positions)
    torch.testing.assert_close(result, by_hand(x, positions, base, interleaved=interleaved), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 12, 40])
@pytest.mark.parametrize("name", SCALINGS)
def test_each_scaling_is_llamas(name, n):
    x, positions = heads(2, 3, n, WIDTH), torch.arange(n)
    result = Rotary(WIDTH, scaling=SCALINGS[name]).heads(x, positions)
    torch.testing.assert_close(result, llamas(x, positions[None], SCALINGS[name]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCALINGS)
def test_rows_of_a_batch_that_go_on_from_different_places_are_llamas(name):
    x, positions = heads(3, 2, 5, WIDTH), torch.tensor([[0], [11], [30]]) + torch.arange(5)
    result = Rotary(WIDTH, scaling=SCALINGS[name]).heads(x, positions)
    torch.testing.assert_close(result, llamas(x, positions, SCALINGS[name]), rtol=1e-5, atol=1e-5)


def test_interleaved_pairs_are_gpt_js():
    x = heads(2, 3, 20, 16)
    sines, cosines = modeling_gptj.create_sinusoidal_positions(20, 16).expand(2, -1, -1).chunk(2, dim=-1)
    wanted = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sines, cosines).transpose(1, 2)
    result = Rotary(16, interleaved=True).heads(x, torch.arange(20))
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_fraction_of_the_features_turns_as_in_gpt_neox():
    config = GPTNeoXConfig(hidden_size=48, num_attention_heads=2, rotary_pct=0.25, rotary_emb_base=10000)
    x, positions = heads(2, 2, 9, 24), torch.arange(9)[None]
    cosines, sines = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config)(x, positions)
    wanted = modeling_gpt_neox.apply_rotary_pos_emb(x, x, cosines, sines)[0]
    result = Rotary(24, fraction=0.25).heads(x, positions)
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(result[..., 6:], x[..., 6:])


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_fraction_turns_its_features_as_a_head_of_their_number(interleaved):
    x, positions = heads(2, 9, 20), torch.arange(9)
    result = Rotary(20, fraction=0.4, interleaved=interleaved).heads(x, positions)
    wanted = Rotary(8, interleaved=interleaved).heads(x[..., :8], positions)
    assert torch.equal(result, torch.cat([wanted, x[..., 8:]], -1))


def test_at_place_a_million_the_angle_is_still_right():
    x, positions = heads(4, 3, 64), torch.tensor([999_999, 1_000_000, 16_777_217])
    result = Rotary(64).heads(x, positions)
    torch.testing.assert_close(result.double(), by_hand(x, positions), rtol=0, atol=1e-6)


def test_at_place_a_million_a_dynamic_base_is_still_right():
    x, positions, original = heads(4, 2, 64), torch.tensor([3, 1_000_000]), 3000
    base = 10000.0 * (2.0 * 1_000_001 / original - 1.0) ** (64 / 62)
    result = Rotary(64, scaling=DynamicScaling(2.0, original)).heads(x, positions)
    torch.testing.assert_close(result.double(), by_hand(x, positions, base), rtol=0, atol=1e-6)


rotaries = st.builds(
    lambda pairs, base, interleaved, rest: Rotary(
        2 * pairs + rest, base, interleaved=interleaved, fraction=(2 * pairs + 0.5) / (2 * pairs + rest) if rest else 1.0
    ),
    pairs=st.integers(1, 8),
    base=st.sampled_from([100.0, 10000.0, 1e6]),
    interleaved=st.booleans(),
    rest=st.integers(0, 5),
)
positions_anywhere = st.integers(0, 100_000)


@given(rotaries, positions_anywhere, st.integers(0, 1000))
def test_turning_keeps_the_norm(rotary, index, seed):
    x = heads(1, 1, rotary.width, seed=seed, dtype=torch.float64)
    torch.testing.assert_close(rotary.heads(x, torch.tensor([index])).norm(), x.norm(), rtol=1e-12, atol=0)


@given(rotaries, positions_anywhere, positions_anywhere, positions_anywhere, st.integers(0, 1000))
def test_the_dot_product_of_query_and_key_depends_on_their_distance_alone(rotary, i, j, shift, seed):
    query, key = heads(2, 1, 1, rotary.width, seed=seed, dtype=torch.float64)

    def product(i, j):
        return (rotary.heads(query, torch.tensor([i])) * rotary.heads(key, torch.tensor([j]))).sum()

    torch.testing.assert_close(product(i + shift, j + shift), product(i, j), rtol=0, atol=1e-9)


@given(rotaries, st.integers(0, 1000))
def test_nothing_turns_at_place_zero(rotary, seed):
    x = heads(3, 1, rotary.width, seed=seed)
    assert torch.equal(rotary.heads(x, torch.tensor([0])), x)


@given(st.integers(1, 8), positions_anywhere, st.integers(0, 1000))
def test_half_split_is_interleaved_with_its_features_in_another_order(pairs, index, seed):
    x, positions = heads(2, 1, 2 * pairs, seed=seed, dtype=torch.float64), torch.tensor([index])
    order = [*range(0, 2 * pairs, 2), *range(1, 2 * pairs, 2)]  # the firsts of all pairs, then the seconds
    result = Rotary(2 * pairs).heads(x[..., order], positions)
    wanted = Rotary(2 * pairs, interleaved=True).heads(x, positions)[..., order]
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_turned_in_float32_and_then_rounded(dtype):
    x, positions = heads(2, 3, 40, 16, dtype=dtype), torch.arange(5000, 5040)
    result = Rotary(16, fraction=0.5).heads(x, positions)
    assert result.dtype == dtype
    assert torch.equal(result, Rotary(16, fraction=0.5).heads(x.float(), positions).to(dtype))


def test_a_model_in_half_precision_turns_by_the_same_angles():
    x, positions = heads(2, 3, 16), torch.tensor([1001, 2002, 3003])
    assert torch.equal(Rotary(16).bfloat16().heads(x, positions), Rotary(16).heads(x, positions))
    assert Rotary(16).state_dict() == {}


@pytest.mark.parametrize("shape", [(4, 5, 8), (2, 3, 5, 8), (2, 4, 3, 5, 8)])
def test_places_of_a_batch_go_with_the_first_dimension(shape):
    x = heads(*shape)
    positions = torch.arange(5) + torch.arange(shape[0])[:, None] * 7
    rotary = Rotary(8)
    wanted = torch.stack([rotary.heads(row, row_positions) for row, row_positions in zip(x, positions, strict=True)])
    torch.testing.assert_close(rotary.heads(x, positions), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_gradient_is_turned_back(interleaved):
    rotary, positions = Rotary(12, fraction=0.7, interleaved=interleaved), torch.arange(3, 8)
    x, gradient = heads(2, 5, 12, dtype=torch.float64).requires_grad_(), heads(2, 5, 12, seed=1, dtype=torch.float64)
    (result,) = torch.autograd.grad(rotary.heads(x, positions), x, gradient)
    torch.testing.assert_close(result, rotary.heads(gradient, -positions), rtol=0, atol=1e-14)
    assert torch.autograd.gradgradcheck(
        lambda x: rotary.heads(x, positions).square(), heads(1, 5, 12, dtype=torch.float64).requires_grad_()
    )


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.few_cases(2)
def test_it_compiles_whole(name):
    torch.compiler.reset()
    rotary = Rotary(WIDTH, scaling=SCALINGS[name])
    x, positions = heads(2, 3, 20, WIDTH), torch.arange(20) + torch.tensor([[0], [9]])
    compiled = torch.compile(rotary.heads, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, positions), rotary.heads(x, positions))


@pytest.mark.parametrize("name", SCALINGS)
def test_no_tokens_are_no_trouble(name):
    x = heads(2, 3, 0, WIDTH)
    assert Rotary(WIDTH, scaling=SCALINGS[name]).heads(x, torch.arange(0)).shape == x.shape


def test_a_dynamic_base_grows_only_beyond_the_original_length():
    x, rotary = heads(40, WIDTH), Rotary(WIDTH, scaling=DynamicScaling(factor=2.0, original_max_position_embeddings=16))
    plain = Rotary(WIDTH).heads(x, torch.arange(40))
    assert torch.equal(rotary.heads(x[:16], torch.arange(16)), plain[:16])
    assert not torch.allclose(rotary.heads(x, torch.arange(40)), plain)


@pytest.mark.parametrize("name", ["yarn", "longrope"])
def test_a_strength_multiplies_what_turns(name):
    strength = {"yarn": 0.1 * math.log(8.0) + 1, "longrope": math.sqrt(1 + math.log(4.0) / math.log(16))}[name]
    x = heads(1, WIDTH)
    torch.testing.assert_close(Rotary(WIDTH, scaling=SCALINGS[name]).heads(x, torch.tensor([0])), strength * x)


def test_a_scaling_is_an_object_or_a_mapping_with_its_fields():
    by_name = Rotary(WIDTH, scaling={"rope_type": "linear", "type": "linear", "factor": 4.0, "rope_theta": 10000.0})
    assert by_name.scaling == LinearScaling(4.0) == Rotary(WIDTH, scaling=LinearScaling(4.0)).scaling


def test_settings_that_are_none_take_their_defaults():
    mapping = {**SCALINGS["yarn"], "attention_factor": None, "beta_fast": None}
    assert Rotary(WIDTH, scaling=mapping).scaling == YarnScaling(8.0, 4096)


def test_it_says_what_it_was_built_with():
    assert repr(Rotary(8)) == "Rotary(8, base=10000.0)"
    rotary = Rotary(8, 100.0, interleaved=True, fraction=0.5, scaling={"rope_type": "linear", "factor": 2.0})
    assert repr(rotary) == "Rotary(8, base=100.0, interleaved=True, fraction=0.5, scaling=LinearScaling(factor=2.0))"


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"width": 7},
            InputError,
            r"an even number of features to rotate, .*, got 7 of 7 features \(fraction=1.0\)",
        ),
        (
            {"width": 10, "fraction": 0.5},
            InputError,
            r"at least 2, since they rotate in pairs, got 5 of 10 features \(fraction=0.5\)",
        ),
        ({"width": 8, "fraction": 0.1}, InputError, "at least 2, since they rotate in pairs, got 0 of 8 features"),
        ({"width": 8, "fraction": 1.5}, InputError, "fraction of Rotary above 0 and at most 1, got 1.5. .* such a number"),
        ({"width": 0}, InputError, "width of Rotary of at least 1, got 0"),
        ({"width": 8, "base": -1.0}, InputError, "base to be a number above 0, got -1.0"),
        ({"width": 8, "scaling": "linear"}, KindError, "scaling as a mapping .*, got 'linear'"),
    ],
)
def test_what_is_no_rotary_is_refused(options, kind, text):
    with pytest.raises(kind, match=text):
        Rotary(**options)


@pytest.mark.parametrize(
    ("scaling", "text"),
    [
        ({"rope_type": "stretch"}, "one rope_type of default, linear, dynamic, yarn, llama3, longrope, got stretch"),
        ({"factor": 2.0}, "one rope_type of default, .*, got none"),
        ({"rope_type": "linear", "type": "yarn", "factor": 2.0}, "one rope_type of .*, got linear and yarn"),
        ({"rope_type": "linear"}, 'factor for the scaling "linear", got none. .* add factor'),
        (
            {"rope_type": "linear", "factor": 2.0, "beta": 1},
            'factor for the scaling "linear", got factor, beta. .* leave out beta',
        ),
        ({"rope_type": "default", "mrope_section": [2]}, 'no settings for the scaling "default", got mrope_section'),
        ({"rope_type": "dynamic", "factor": 2.0}, "add original_max_position_embeddings; .* it is its max_position_embeddings"),
        ({"rope_type": "linear", "factor": 0}, "factor to be a number above 0, got 0"),
        ({"rope_type": "linear", "factor": math.nan}, "factor to be a number above 0, got nan"),
        ({**SCALINGS["dynamic"], "original_max_position_embeddings": 1.5}, "to be a whole number of at least 1, got 1.5"),
        ({**SCALINGS["yarn"], "beta_fast": 0.5}, "beta_fast at least as large as beta_slow, got beta_fast=0.5, beta_slow=1.0"),
        (
            {**SCALINGS["llama3"], "high_freq_factor": 1.0},
            "high_freq_factor above low_freq_factor.* increase high_freq_factor",
        ),
        (
            {**SCALINGS["longrope"], "factor": None},
            'a factor or an attention_factor for the scaling "longrope". .* pass factor = max_position',
        ),
        (
            {**SCALINGS["longrope"], "short_factor": [1.0, 2.0]},
            "16 numbers as short_factor, one for each pair of features that rotate, got 2",
        ),
        ({**SCALINGS["longrope"], "long_factor": [0.0] * PAIRS}, "each number in long_factor to be a number above 0, got 0.0"),
        (
            {**SCALINGS["linear"], "rope_theta": 500000.0},
            "rope_theta equal to the base of Rotary, 10000.0, got 500000.0. .* pass base=500000.0",
        ),
        (
            {**SCALINGS["linear"], "partial_rotary_factor": 0.5},
            "partial_rotary_factor equal to the fraction of Rotary, 1.0, got 0.5. .* pass fraction=0.5",
        ),
    ],
)
def test_a_scaling_that_cannot_be_honoured_is_refused(scaling, text):
    with pytest.raises(InputError, match=text):
        Rotary(WIDTH, scaling=scaling)


def test_a_scaling_of_other_widths_is_refused_when_it_is_built():
    with pytest.raises(InputError, match="16 numbers as long_factor, one for each pair of features that rotate, got 3"):
        Rotary(WIDTH, scaling=LongScaling([1.0] * 16, [1.0] * 3, 16, factor=2.0))


@pytest.mark.parametrize(
    ("x", "positions", "kind", "text"),
    [
        (heads(3, 6), torch.arange(3), InputError, "heads of Rotary as .* with width = 8, got .* with width=6"),
        (torch.ones(3, 8, dtype=torch.long), torch.arange(3), KindError, "heads of Rotary as floating-point numbers"),
        (heads(3, 8), [0, 1, 2], KindError, "positions as whole numbers, one for each token, got list"),
        (heads(3, 8), torch.rand(3), KindError, "positions as whole numbers, .*, got a torch.float32 tensor"),
        (heads(3, 8), torch.arange(4), InputError, r"positions \(n,\), or \(B, n\) .*, got positions \(4,\) for \(3, 8\)"),
        (heads(2, 3, 8), torch.zeros(3, 3, dtype=torch.long), InputError, r"got positions \(3, 3\) for \(2, 3, 8\)"),
        (heads(3, 8), torch.zeros(3, 3, dtype=torch.long), InputError, r"got positions \(3, 3\) for \(3, 8\)"),
    ],
)
def test_heads_and_places_that_do_not_fit_are_refused(x, positions, kind, text):
    with pytest.raises(kind, match=text):
        Rotary(8).heads(x, positions)
