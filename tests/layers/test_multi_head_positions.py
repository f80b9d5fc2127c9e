"""MultiHeadAttention told where tokens stand: by formulas, and against the attention of models that are built so."""

import pytest
import torch
from transformers import GPTJConfig, LlamaConfig, T5Config
from transformers.models.gptj.modeling_gptj import GPTJModel
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

import overt
from overt.errors import InputError
from overt.layers import (
    LearnedPositions,
    MultiHeadAttention,
    Positions,
    RelativePositions,
    Rotary,
    Sinusoidal,
)

WIDTH, HEADS, B, N, K = 24, 3, 2, 6, 9
NAMES = ["rotary", "alibi", "sinusoidal", "relative"]


def layer(positions, width=WIDTH, heads=HEADS, **options):
    torch.manual_seed(0)
    made = MultiHeadAttention(width, heads, positions=positions, **options)
    if isinstance(made.positions, RelativePositions):
        torch.nn.init.normal_(made.positions.table)
    return made.double()


def normal(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(result, wanted, tolerance=1e-12):
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


def copied(ours, theirs):
    """Their four matrices in our layer."""
    with torch.no_grad():
        for module, other in zip((ours.query, ours.key, ours.value, ours.output), theirs, strict=True):
            module.weight.copy_(other.weight)
    return ours


@pytest.mark.parametrize("name", NAMES)
def test_without_positions_order_has_no_influence_and_with_them_it_has(name):
    x, order = normal(B, N, WIDTH), torch.tensor([3, 0, 5, 1, 4, 2])
    plain, message = layer(None), layer(name)
    close(plain(x[:, order]), plain(x)[:, order])
    assert (message(x[:, order]) - message(x)[:, order]).abs().max() > 1e-3


def test_sinusoidal_and_learned_positions_are_added_to_what_asks_and_is_asked_but_not_to_values():
    for positions in (Sinusoidal(WIDTH), LearnedPositions(16, WIDTH)):
        message, plain, x = layer(positions), layer(None), normal(B, N, WIDTH)
        plain.load_state_dict(message.state_dict(), strict=False)
        placed = positions.double()(x)
        close(message(x), plain(placed, placed.clone(), x))


def test_alibi_and_relative_positions_are_added_to_the_scores():
    x, distance = normal(B, N, WIDTH), torch.arange(N) - torch.arange(N)[:, None]
    for name in ("alibi", "relative"):
        message, plain = layer(name), layer(None)
        plain.load_state_dict(message.state_dict(), strict=False)
        piece = message.positions.bias(0)
        added = -piece.slopes[:, None, None] * distance.abs() if name == "alibi" else piece.table[:, piece.bucket(distance)]
        close(message(x), plain(x, bias=added[None].double()))


def test_rotary_turns_queries_and_keys_of_each_head_by_their_place():
    message, x = layer("rotary"), normal(N, WIDTH)
    frequencies = 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    turns = torch.exp(1j * torch.arange(N)[:, None] * frequencies)  # (N, D / 2)
    q, k = (projection(x).reshape(N, HEADS, 2, 4).transpose(0, 1) for projection in (message.query, message.key))
    q, k = (torch.complex(half[:, :, 0], half[:, :, 1]) * turns for half in (q, k))
    close(message.steps(x).scores, (q @ k.conj().mT).real / 8**0.5)


def test_a_llama_attention_is_rotary_causal_and_grouped():
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=12, attn_implementation="eager")
    theirs = LlamaAttention(config, layer_idx=0).double().eval()
    ours = layer("rotary", 32, 4, kv_heads=2, head_width=12, bias=False, causal=True)
    copied(ours, (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj))
    x, indices = normal(B, N, 32), torch.arange(N)[None]
    later = torch.full((N, N), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    # Hugging Face's angles are float32 numbers, whatever the model's dtype.
    output, weights = theirs(x, LlamaRotaryEmbedding(config)(x, indices), later)
    close(ours(x), output, 1e-5)
    close(ours.weights(x), weights, 1e-5)


def test_a_gptj_attention_is_interleaved_and_turns_a_part_of_each_head():
    config = GPTJConfig(
        n_embd=32, n_head=2, n_layer=1, vocab_size=3, rotary_dim=4, attn_pdrop=0.0, resid_pdrop=0.0, n_positions=16
    )
    config._attn_implementation = "eager"
    model, calls = GPTJModel(config).eval(), []
    theirs = model.h[0].attn
    # Called by its model, which alone knows what its version of transformers passes.
    theirs.register_forward_hook(lambda _, args, named, output: calls.append((args, named, output[0])), with_kwargs=True)
    model(inputs_embeds=normal(B, N, 32).float())
    args, named, expected = calls[0]
    ours = layer(Rotary(16, interleaved=True, fraction=0.25), 32, 2, bias=False, causal=True).float()
    copied(ours, (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.out_proj))
    close(ours(args[0] if args else named["hidden_states"]), expected, 1e-5)


@pytest.mark.parametrize("decoder", [False, True])
def test_a_t5_attention_has_logarithmic_relative_positions_and_no_scale(decoder):
    config = T5Config(d_model=32, d_kv=6, num_heads=4, is_decoder=decoder, relative_attention_num_buckets=8)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    positions = RelativePositions(4, buckets=8, bidirectional=not decoder)
    ours = layer(positions, 32, 4, head_width=6, bias=False, score=overt.Dot(scale=1.0), causal=decoder)
    copied(ours, (theirs.q, theirs.k, theirs.v, theirs.o))
    with torch.no_grad():
        positions.table.copy_(theirs.relative_attention_bias.weight.T)
    x = normal(B, 40, 32)
    later = torch.full((40, 40), -torch.inf, dtype=torch.float64).triu(1)[None, None] if decoder else None
    close(ours(x), theirs(x, mask=later, cache_position=torch.arange(40))[0])


@pytest.mark.parametrize("name", [*NAMES, "learned"])
@pytest.mark.parametrize(("queries", "keys"), [(N, K), (K, N)])
def test_the_last_query_and_the_last_key_stand_at_one_place(name, queries, keys):
    message = layer(LearnedPositions(16, WIDTH) if name == "learned" else name)
    x = normal(B, max(queries, keys), WIDTH)
    whole = message.steps(x).scores, message.steps(x).masked
    result = message.steps(x[:, -queries:], x[:, -keys:])
    close(result.scores, whole[0][..., -queries:, -keys:])
    close(result.masked, whole[1][..., -queries:, -keys:])


def test_a_bias_of_overt_is_a_layers_positions():
    message, x = layer(overt.ALiBi(torch.tensor([0.5, 0.25, 0.125]).double())), normal(B, N, WIDTH)
    distance = (torch.arange(N) - torch.arange(N)[:, None]).abs()
    close(message(x), layer(None)(x, bias=-torch.tensor([[[[0.5]], [[0.25]], [[0.125]]]]).double() * distance))


def test_one_module_of_positions_is_shared_by_the_layers_that_are_given_it():
    shared = RelativePositions(HEADS)
    one, other = layer(shared), layer(shared)
    assert one.positions is other.positions is shared


def test_positions_of_ones_own_are_a_class_with_the_hooks_it_needs():
    class Reversed(Positions):
        def inputs(self, x, positions):
            return x * (-1.0) ** positions[:, None]

    x, signs = normal(B, N, WIDTH), (-1.0) ** torch.arange(N)[:, None]
    close(layer(Reversed())(x), layer(None)(x * signs, (x * signs).clone(), x))


def test_places_beyond_a_table_are_refused():
    with pytest.raises(InputError, match="positions from 0 to 3, for which LearnedPositions has vectors, got positions 0 to 5"):
        layer(LearnedPositions(4, WIDTH))(normal(B, N, WIDTH))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter(name):
    message = layer(name, causal=True)
    message(normal(B, N, WIDTH)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in message.parameters())
    assert name != "relative" or (message.positions.table.grad != 0).any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_causal_layer_has_all_its_relative_buckets_for_what_came_before(causal):
    assert MultiHeadAttention(16, 4, positions="relative", causal=causal).positions.bidirectional is not causal
