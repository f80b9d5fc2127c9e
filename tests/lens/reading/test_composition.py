"""Composition of heads: the matrices of each head, whatever holds them, and pairs of heads that read each other."""

import pytest
import torch
import transformers
from torch import nn

import overt
from overt.errors import InputError

SIZES = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _thirds_of_groups(weight: torch.Tensor) -> list[torch.Tensor]:
    """Phi-3: all queries, then all keys, then all values; two of the latter."""
    query, keys, values = weight.unflatten(0, (8, 8)).split((4, 2, 2))
    return [query, keys.repeat_interleave(2, 0), values.repeat_interleave(2, 0)]


def _by_group(weight: torch.Tensor) -> list[torch.Tensor]:
    """Falcon: for each group its two queries, its key and its value."""
    groups = weight.unflatten(0, (2, 4, 8))
    return [groups[:, :2].flatten(0, 1), groups[:, 2].repeat_interleave(2, 0), groups[:, 3].repeat_interleave(2, 0)]


def _by_part(weight: torch.Tensor) -> list[torch.Tensor]:
    """CodeGen: in four parts, each of queries, values, keys."""
    parts = weight.unflatten(0, (4, 3, 8))
    return [parts[:, 0], parts[:, 2], parts[:, 1]]


def _by_head(weight: torch.Tensor) -> list[torch.Tensor]:
    """GPT-NeoX and Bloom: for each head its query, its key and its value."""
    return list(weight.unflatten(0, (4, 3, 8)).unbind(1))


FUSED = {
    "phi3": (
        lambda: transformers.Phi3ForCausalLM(
            transformers.Phi3Config(**SIZES, **TOKENS, num_key_value_heads=2, intermediate_size=48)
        ),
        _thirds_of_groups,
    ),
    "falcon": (
        lambda: transformers.FalconModel(
            transformers.FalconConfig(**SIZES, new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=48)
        ),
        _by_group,
    ),
    "codegen": (
        lambda: transformers.CodeGenModel(
            transformers.CodeGenConfig(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_inner=48, rotary_dim=4)
        ),
        _by_part,
    ),
    "gpt_neox": (
        lambda: transformers.GPTNeoXModel(transformers.GPTNeoXConfig(**SIZES, intermediate_size=48)),
        _by_head,
    ),
    "deberta": (
        lambda: transformers.DebertaModel(transformers.DebertaConfig(**SIZES, intermediate_size=48)),
        _by_head,
    ),
    "bloom": (
        lambda: transformers.BloomModel(transformers.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)),
        _by_head,
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_matrix_for_query_key_and_value_is_split_as_the_model_splits_it(name):
    torch.manual_seed(0)
    build, split = FUSED[name]
    model = build().eval()
    fused = [
        module.weight.detach().double()
        for path, module in model.named_modules()
        if path.endswith(("qkv_proj", "query_key_value", "in_proj"))
    ]
    outputs = [
        module.weight.detach().double()
        for path, module in model.named_modules()
        if path.endswith(("o_proj", "out_proj", "n.dense", "attention.output.dense"))
    ]
    composed = overt.lens.composition(model)
    for layer, weight, output in zip(composed.layers.values(), fused, outputs, strict=True):
        for matrix, rows in zip(layer[1:4], split(weight), strict=True):
            torch.testing.assert_close(matrix, rows, rtol=0, atol=0)
        torch.testing.assert_close(layer.output, output.unflatten(1, (4, 8)).transpose(0, 1), rtol=0, atol=0)
    reads, writes = split(fused[1]), outputs[0][:, 8:16] @ split(fused[0])[2][1]
    pair = next(pair for pair in composed.pairs if pair[:3] == ((0, 1), (1, 3), "key"))
    product = reads[0][3].mT @ reads[1][3]
    assert pair.score == pytest.approx(float((product @ writes).norm() / (product.norm() * writes.norm())), rel=1e-9)


def test_rows_are_exact_in_half_precision():
    model = transformers.GPTNeoXModel(
        transformers.GPTNeoXConfig(**SIZES | {"hidden_size": 4 * 18}, intermediate_size=48)
    ).eval()
    half = overt.lens.composition(model.bfloat16()).layers[1]
    fused = model.layers[1].attention.query_key_value.weight.detach().double()
    torch.testing.assert_close(half.key, fused.unflatten(0, (4, 3, 18))[:, 1], rtol=0, atol=0)


def test_a_head_is_paired_with_those_whose_output_it_reads():
    sizes = {"vocab_size": 40, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    model = transformers.T5Model(transformers.T5Config(**sizes)).eval()
    composed = overt.lens.composition(model)
    pairs = {
        (composed.layers[pair.first[0]].layer, composed.layers[pair.second[0]].layer, pair.kind) for pair in composed.pairs
    }
    crossing = {pair[1:] for pair in pairs if pair[0].startswith("encoder") and pair[1].startswith("decoder")}
    assert crossing == {
        (f"decoder.block.{block}.layer.1.EncDecAttention", kind) for block in (0, 1) for kind in ("key", "value")
    }
    inside = {pair[2] for pair in pairs if pair[0].startswith("decoder") and pair[1].endswith("EncDecAttention")}
    assert inside == {"query"}


@torch.no_grad()
def test_composition_finds_the_head_that_reads_what_another_writes():
    torch.manual_seed(0)
    model = overt.models.LanguageModel(50, width=32, heads=4, layers=2, feed_forward=32)
    first, second = (block.attention for block in model.body.layers)
    with torch.no_grad():
        written = first.output.weight[:, 8:16]  # what head 1 of the first layer writes into
        second.key.weight[16:24] = 0.3 * written.mT  # head 2 of the second reads it by its key
    composed = overt.lens.composition(model)
    best = composed.strongest(1)[0]
    assert (best.first, best.second, best.kind) == ((0, 1), (1, 2), "key")
    assert best.above > 4
    outer, inner = (model.body.layers[index].attention for index in (1, 0))
    reads = outer.query.weight[16:24].mT @ outer.key.weight[16:24]
    writes = inner.output.weight[:, 8:16] @ inner.value.weight[8:16]
    assert best.score == pytest.approx(float((reads @ writes).norm() / (reads.norm() * writes.norm())), rel=1e-5)
    plain = [pair.score for pair in composed.pairs if pair is not best]
    assert torch.tensor(plain).square().mean().sqrt() == pytest.approx(32**-0.5, rel=0.15)
    theirs = torch.linalg.eigvals((outer.output.weight[:, 16:24] @ outer.value.weight[16:24] @ writes).double())
    assert composed.eigenvalues((0, 1), (1, 2)).abs()[0] == pytest.approx(float(theirs.abs().max()), rel=1e-4)


@torch.no_grad()
def test_composition_reads_debertas_names():
    model = transformers.DebertaV2Model(
        transformers.DebertaV2Config(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
        )
    )
    first, second = (layer.attention for layer in model.encoder.layer)
    writes = first.output.dense.weight[:, :8] @ first.self.value_proj.weight[:8]
    reads = second.self.query_proj.weight[8:16].mT @ second.self.key_proj.weight[8:16]
    pair = next(pair for pair in overt.lens.composition(model).pairs if pair[:3] == ((0, 0), (1, 1), "key"))
    assert pair.score == pytest.approx(float((reads @ writes).norm() / (reads.norm() * writes.norm())), rel=1e-5)


def test_a_head_that_writes_what_it_reads_copies():
    attention = overt.layers.MultiHeadAttention(8, heads=2)
    with torch.no_grad():
        attention.output.weight.copy_(attention.value.weight.mT)
    assert overt.lens.composition(attention).copying((0, 1)) == pytest.approx(1.0)


def test_what_has_no_matrices_of_heads_is_refused_by_its_reason():
    config = transformers.PersimmonConfig(**SIZES, **TOKENS, intermediate_size=48)
    with pytest.raises(InputError, match="a query that is no selection of the outputs of layers.0.*query_key_value"):
        overt.lens.composition(transformers.PersimmonModel(config).eval())
    differential = transformers.DiffLlamaModel(transformers.DiffLlamaConfig(**SIZES, **TOKENS, intermediate_size=48))
    with pytest.raises(
        InputError, match="layers.0.self_attn holds RMSNorm, groupnorm, which may be between its heads and its output"
    ):
        overt.lens.composition(differential.eval())
    with pytest.raises(InputError, match="inputs of one pass of the model, got a Linear whose matrices have no names"):
        overt.lens.composition(nn.Linear(3, 3))
    with pytest.raises(InputError, match="inputs that it does not run on .*Fix: pass inputs=, as the model gets them"):
        overt.lens.composition(nn.Linear(3, 3).eval(), torch.ones(2, 4))
    with pytest.raises(InputError, match="got a Linear without attention"):
        overt.lens.composition(nn.Linear(3, 3).eval(), torch.ones(2, 3))
    attention = overt.layers.MultiHeadAttention(8, heads=2)
    with pytest.raises(InputError, match=r"a head as a pair \(layer, head\), of these heads: 2 of layer 0, got \(0, 2\)"):
        overt.lens.composition(attention).copying((0, 2))


class _Patches(nn.Module):
    """Attention with one matrix for query, key and value over patches (N, 8) that come without a batch, as in vision towers."""

    main_input_name = "input_ids"

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, patches):
        query, key, value = self.qkv(patches).view(len(patches), 3, 2, 4).permute(1, 2, 0, 3)[:, None]
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.proj(attended[0].transpose(0, 1).flatten(1))


def test_patches_without_a_batch_are_the_beginning_of_the_stream():
    model, patches = _Patches().eval(), torch.randn(5, 8)
    composed = overt.lens.composition(model, {"patches": patches})
    torch.testing.assert_close(composed.layers[0].key, model.qkv.weight[8:16].double().unflatten(0, (2, 4)), rtol=0, atol=0)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(patches)
    why = overt.lens.score_contributions(recording, model, head=(0, 1), query=3, key=2, inputs={"patches": patches})
    assert why.holds
    assert "embedding" in {part.kind for part in why.key.parts}
