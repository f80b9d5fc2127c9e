"""What a model hands to overt's attention function beside query, key and value: served exactly, or refused by name."""

import pytest
import torch
import transformers

from overt import integrations
from overt.errors import InputError, KindError

B, H, Q, K, D = 2, 4, 5, 7, 8


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(keys=K, key_heads=H):
    return numbers(B, H, Q, D), numbers(B, key_heads, keys, D, seed=1), numbers(B, key_heads, keys, D, seed=2)


def attended(query, key, value, added=0, sinks=None, scale=D**-0.5):
    """Attention by its formula, heads repeated, sinks (B, H, Q, 1) beside the scores."""
    key, value = (each.repeat_interleave(H // each.shape[1], 1) for each in (key, value))
    scores = query @ key.mT * scale + added
    if sinks is not None:
        scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2), weights


@pytest.mark.parametrize("key_heads", [H, 2, 1])
@pytest.mark.parametrize("masked", ["nothing", "bool", "float", "lazy"])
def test_sinks_of_each_head_and_query_are_served(masked, key_heads):
    query, key, value = inputs(key_heads=key_heads)
    sinks = numbers(B, H, Q, 1, seed=3).requires_grad_()
    query = query.requires_grad_()
    allowed = torch.ones(Q, K, dtype=torch.bool).tril(K - Q)
    added = torch.zeros(Q, K, dtype=torch.float64).masked_fill(~allowed, -1e30)
    mask = {"nothing": None, "bool": allowed[None, None], "float": added[None, None]}.get(masked)
    if masked == "lazy":
        mask = integrations.attention_mask(B, Q, K, q_offset=K - Q)
    wanted, weights = attended(query, key, value, 0 if masked == "nothing" else added, sinks)
    output, returned = integrations.attention(None, query, key, value, mask, sinks=sinks, output_attentions=True)
    torch.testing.assert_close(output, wanted, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(returned, weights, atol=1e-11, rtol=1e-11)
    up = numbers(*output.shape, seed=4)
    for one, other in zip(*(torch.autograd.grad(each, (query, sinks), up) for each in (output, wanted)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", ["sinks", "s_aux"])
def test_sinks_of_each_head_are_served_under_both_names(name):
    query, key, value = inputs()
    sinks = numbers(H, seed=3)
    wanted, _ = attended(query, key, value, sinks=sinks[:, None, None].expand(B, H, Q, 1))
    torch.testing.assert_close(integrations.attention(None, query, key, value, None, **{name: sinks})[0], wanted)


def test_sinks_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"\(B, H, Q, 1\) = \(2, 4, 5, 1\), got shape \(3,\).*eager"):
        integrations.attention(None, *inputs(), None, sinks=numbers(3))


@pytest.mark.parametrize("mask", ["nothing", "bool", "float", "lazy"])
def test_indices_say_which_keys_a_query_may_attend_to(mask):
    query, key, value = inputs()
    indices = torch.randint(-1, K, (B, Q, 3), generator=torch.Generator().manual_seed(5))
    indices[..., 0] = torch.arange(Q)  # each has one at least
    chosen = torch.zeros(B, Q, K, dtype=torch.bool)
    for batch, row in torch.cartesian_prod(torch.arange(B), torch.arange(Q)).tolist():
        chosen[batch, row, [j for j in indices[batch, row].tolist() if j >= 0]] = True
    causal = torch.ones(Q, K, dtype=torch.bool).tril(K - Q)
    arguments = {"nothing": None, "bool": causal, "float": torch.zeros(Q, K).double().masked_fill(~causal, -1e30)}.get(mask)
    arguments = integrations.attention_mask(B, Q, K, q_offset=K - Q) if mask == "lazy" else arguments
    allowed = chosen[:, None] if mask == "nothing" else chosen[:, None] & causal
    wanted, _ = attended(query, key, value, torch.where(allowed, 0.0, -1e30))
    torch.testing.assert_close(integrations.attention(None, query, key, value, arguments, indices=indices)[0], wanted)


def test_sinks_and_indices_go_together():
    query, key, value = inputs()
    indices, sinks = torch.arange(Q)[None, :, None].expand(B, Q, 1), numbers(B, H, Q, 1, seed=3)
    wanted, _ = attended(query, key, value, torch.where(torch.eye(Q, K).bool(), 0.0, -1e30), sinks)
    torch.testing.assert_close(integrations.attention(None, query, key, value, None, indices=indices, sinks=sinks)[0], wanted)


def test_without_a_mask_all_attend_unless_the_call_says_causal():
    query, key, value = inputs(keys=Q)
    module = torch.nn.Module()
    module.is_causal = True  # what a module says of itself is not what this call asks for
    assert torch.equal(*(integrations.attention(each, query, key, value, None)[0] for each in (module, None)))
    torch.testing.assert_close(integrations.attention(module, query, key, value, None)[0], attended(query, key, value)[0])
    causal = torch.zeros(Q, Q).double().masked_fill(~torch.ones(Q, Q).bool().tril(), -1e30)
    wanted, _ = attended(query, key, value, causal)
    torch.testing.assert_close(integrations.attention(module, query, key, value, None, is_causal=True)[0], wanted)


def test_packed_sequences_do_not_see_each_other():
    query, key, value = (each[:1] for each in inputs(keys=Q))
    starts = torch.tensor([0, 2, 5], dtype=torch.int32)
    ids = torch.tensor([0, 0, 1, 1, 1])
    wanted, _ = attended(query, key, value, torch.where(ids[:, None] == ids, 0.0, -1e30))
    output, _ = integrations.attention(None, query, key, value, None, cu_seq_lens_q=starts, cu_seq_lens_k=starts)
    torch.testing.assert_close(output, wanted)


def test_packed_sequences_of_several_rows_are_refused():
    with pytest.raises(InputError, match="packed into one row.*got 2 rows of 5 queries and 7 keys"):
        integrations.attention(None, *inputs(), None, cu_seq_lens_q=torch.tensor([0, 5]))


def test_an_argument_that_is_not_known_is_refused_by_its_name():
    with pytest.raises(
        InputError,
        match='only arguments of attention that overt supports, got block_indices=, .* and frobnicate=, .*"eager" or "sdpa"',
    ):
        integrations.attention(None, *inputs(), None, frobnicate=2.5, block_indices=torch.zeros(1))


def test_arguments_without_effect_and_arguments_that_are_none_pass():
    query, key, value = inputs()
    plain, _ = integrations.attention(None, query, key, value, None)
    output, weights = integrations.attention(
        None, query, key, value, None, sliding_window=3, position_ids=torch.arange(Q), novelty=None
    )
    assert torch.equal(plain, output)
    assert weights is None


def test_a_mask_that_is_no_tensor_is_refused():
    with pytest.raises(KindError, match='as a tensor.*"flex_attention"'):
        integrations.attention(None, *inputs(), object())


def test_a_paged_cache_is_refused_with_the_cure():
    with pytest.raises(InputError, match=r"one tensor, got a paged cache.*paged\|eager"):
        integrations.attention(None, *inputs(), None, cache=object())


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("GPT2Model", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 9, "bos_token_id": 1, "eos_token_id": 2}),
        (
            "OPTModel",
            {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 20,
             "max_position_embeddings": 16, "word_embed_proj_dim": 16},
        ),
    ],
)  # fmt: skip
def test_weights_come_where_the_model_collects_them_behind_its_modules(model, config):
    outputs = []
    for path in (integrations.huggingface(), "eager"):
        torch.manual_seed(0)
        made = getattr(transformers, model.replace("Model", "Config"))(**config)
        built = getattr(transformers, model)._from_config(made, attn_implementation=path).eval()
        with torch.no_grad():
            outputs.append(built(torch.tensor([[3, 4, 5]]), output_attentions=True).attentions)
    assert len(outputs[0]) == len(outputs[1]) == 2
    for one, other in zip(*outputs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
