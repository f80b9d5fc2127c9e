"""The Transformer beside torch's own, cached beside uncached, padded beside alone, and seen from outside."""

import pytest
import torch

import overt
from overt.errors import InputError, KindError
from overt.lens import record
from overt.models import Transformer, TransformerEncoder
from torch_transformer import torch_states, torch_twin

POSITIONS = [None, "sinusoidal", "learned", "rotary", "alibi", "relative"]


def transformer(dtype=torch.float64, words=20, **options):
    torch.manual_seed(0)
    inputs = {"width": 16, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "feed_forward": 24, "dropout": 0.2} | options
    model = Transformer(words, words, **inputs)
    for name, parameter in model.named_parameters():
        if "positions" in name or name.endswith("bias"):  # those that start at zero would hide a mistake
            torch.nn.init.normal_(parameter)
    return model.to(dtype).eval()


def batch(rows=3, source=7, target=5, words=20):
    numbers = torch.Generator().manual_seed(1)
    ids = torch.randint(3, words, (rows, source), generator=numbers), torch.randint(3, words, (rows, target), generator=numbers)
    return *ids, torch.tensor([source, 3, 5][:rows])


def close(result, wanted, tolerance=1e-10):
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("padded", [True, False])
def test_the_states_are_those_of_torch_with_the_same_weights(norm, activation, padded):
    model = transformer(norm=norm, activation=activation)
    source, target, lengths = batch()
    lengths = lengths if padded else None
    expected = torch_states(model, torch_twin(model), source, target, lengths)
    close(model.states(source, target, source_lengths=lengths), expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_gradients_are_those_of_torch_with_the_same_weights(norm):
    model = transformer(norm=norm)
    theirs = torch_twin(model)
    source, target, lengths = batch()
    model.states(source, target, source_lengths=lengths).square().sum().backward()
    torch_states(model, theirs, source, target, lengths).square().sum().backward()
    ours = model.decoder.layers[0].cross_attention
    result = torch.cat([ours.query.weight.grad, ours.key.weight.grad, ours.value.weight.grad])
    close(result, theirs.decoder.layers[0].multihead_attn.in_proj_weight.grad)
    close(model.encoder.layers[0].feed_forward.widen.weight.grad, theirs.encoder.layers[0].linear1.weight.grad)


def test_scores_are_the_states_times_the_output():
    model = transformer()
    source, target, lengths = batch()
    states = model.states(source, target, source_lengths=lengths)
    close(model(source, target, source_lengths=lengths), states @ model.output.weight.T)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.few_cases(8)
def test_cached_equals_uncached(positions, kv_heads, ragged):
    model = transformer(positions=positions, kv_heads=kv_heads)
    source, target, lengths = batch()
    lengths = lengths if ragged else None
    with torch.no_grad():
        memory = model.start(source, source_lengths=lengths)
        steps = torch.stack([model.step(tokens, memory) for tokens in target.T], dim=1)
        close(steps, model(source, target, source_lengths=lengths))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_sentence_in_a_padded_batch_is_as_alone(positions):
    model = transformer(positions=positions)
    source, target, lengths = batch()
    together = model(source, target, source_lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        close(together[row], model(source[row : row + 1, :length], target[row : row + 1])[0])


def test_padding_of_the_target_reaches_no_word_before_it():
    model = transformer()
    source, target, lengths = batch()
    other = target.clone()
    other[:, 3:] = 0
    separate = model.states(source, target, source_lengths=lengths)[:, :3]
    assert torch.equal(
        separate, model.states(source, other, source_lengths=lengths, target_lengths=torch.tensor([3, 3, 3]))[:, :3]
    )


def test_without_positions_the_order_of_the_source_has_no_influence_and_with_them_it_has():
    source, target, _ = batch()
    for positions in POSITIONS:
        model = transformer(positions=positions)
        same = torch.allclose(model(source, target), model(source[:, [2, 0, 1, 4, 6, 5, 3]], target))
        assert same == (positions is None), positions


def test_rows_go_on_from_the_rows_they_come_from():
    model = transformer()
    source, target, lengths = batch()
    order = torch.tensor([2, 2, 0, 1])
    with torch.no_grad():
        memory = model.start(source, source_lengths=lengths)
        for tokens in target.T[:-1]:
            model.step(tokens, memory)
        memory.reorder(order)
        result = model.step(target[order, -1], memory)
        close(result, model(source, target, source_lengths=lengths)[order, -1])
    assert memory.sentences == order.tolist()


def test_rows_that_change_places_within_their_sentence_leave_the_source_where_it_is():
    model = transformer()
    source, target, _ = batch()
    with torch.no_grad():
        memory = model.start(source)
        memory.reorder([0, 0, 1, 1])
        model.step(target[[0, 0, 1, 1], 0], memory)
        before = memory.source[0].key
        memory.reorder([1, 0, 3, 2])
    assert memory.source[0].key is before


def test_weights_are_those_that_steps_of_each_layer_give():
    model = transformer()
    source, target, lengths = batch()
    weights = model.weights(source, target, source_lengths=lengths, target_lengths=torch.tensor([5, 2, 4]))
    assert {name: [tuple(each.shape) for each in result] for name, result in weights.items()} == {
        "encoder": [(3, 4, 7, 7)] * 2,
        "decoder": [(3, 4, 5, 5)] * 2,
        "cross": [(3, 4, 5, 7)] * 2,
    }
    states = model.encoder(source, lengths=lengths)
    layer = model.decoder.layers[0]
    x = model.decoder.embedding(target)
    x = layer.around_self_attention(x, layer.self_attention)
    requested = layer.around_cross_attention.norm(x)
    expected = layer.cross_attention.weights(requested, states, lengths=lengths)
    close(weights["cross"][0][0], expected[0])
    close(weights["cross"][0][1, :, :2], expected[1, :, :2])


def test_weights_add_up_to_1_and_are_zero_at_padding():
    source, target, lengths = batch()
    separate = torch.tensor([5, 2, 4])
    weights = transformer().weights(source, target, source_lengths=lengths, target_lengths=separate)
    for name, queries in (("encoder", lengths), ("decoder", separate), ("cross", separate)):
        for each in weights[name]:
            there = (torch.arange(each.shape[-2]) < queries[:, None])[:, None].expand(each.shape[:3])
            close(each.sum(-1), there.double())
    assert (weights["cross"][0][1, :, :, 3:] == 0).all()
    assert (weights["decoder"][0].triu(1) == 0).all()


def test_the_lens_records_every_attention_under_its_name_and_verifies_it():
    model = transformer(dtype=torch.float32)
    source, target, lengths = batch()
    with torch.no_grad(), record(model) as recording:
        output = model(source, target, source_lengths=lengths)
    assert torch.equal(output, model(source, target, source_lengths=lengths))
    assert sorted(recording.layers) == [
        "decoder.layers.0.cross_attention",
        "decoder.layers.0.self_attention",
        "decoder.layers.1.cross_attention",
        "decoder.layers.1.self_attention",
        "encoder.layers.0.attention",
        "encoder.layers.1.attention",
    ]
    assert recording.verify().holds
    assert not recording.missing
    observed = recording["decoder.layers.1.cross_attention", 2].weights()
    torch.testing.assert_close(
        observed, model.weights(source, target, source_lengths=lengths)["cross"][1][:, 2], rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_compiled_gives_what_eager_gives():
    model, (source, target, _) = transformer(dtype=torch.float32, encoder_layers=1, decoder_layers=1), batch()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(source, target), model(source, target))


@pytest.mark.parametrize("tied", ["all", "target", None])
def test_tied_matrices_are_one(tied):
    model = transformer(tied=tied)
    source, target = model.encoder.embedding.table.weight, model.decoder.embedding.table.weight
    assert (model.output.weight is target) == (tied is not None)
    assert (source is target) == (tied == "all")


def test_the_config_builds_a_model_of_the_same_shape():
    model = transformer(positions="rotary", kv_heads=2, tied="all")
    other = Transformer(**model.config)
    other.load_state_dict(model.state_dict())
    source, target, _ = batch()
    close(other.double().eval()(source, target), model(source, target))


def test_a_new_model_reads_and_scores_numbers_of_deviation_about_1():
    torch.manual_seed(0)
    model = Transformer(1000, 1000, 128, 4, 2, 2, 256, tied="all", positions=None).eval()
    tokens = torch.randint(3, 1000, (4, 50))
    assert 0.9 < model.encoder.embedding(tokens).std() < 1.1
    assert 0.5 < model(tokens, tokens).std() < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "both"}, "norm to be one of 'pre', 'post', got 'both'"),
        ({"activation": "step"}, "activation to be one of 'relu', 'gelu', 'silu', got 'step'"),
        ({"tied": "yes"}, "tied to be one of 'all', 'target', None, got 'yes'"),
        ({"dropout": 2.0}, "dropout to be a probability, got 2.0"),
        ({"positions": "spiral"}, "positions as one of .*'spiral'"),
        ({"heads": 3}, r"heads that divide the width evenly, got width=16, heads=3\. Fix: choose heads=2, or width=18\.$"),
        ({"decoder_layers": 0}, "layers of TransformerDecoder of at least 1, got 0"),
    ],
)
def test_a_setting_that_is_none_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        transformer(**options)


def test_one_matrix_for_two_vocabularies_is_refused():
    with pytest.raises(InputError, match="one vocabulary for both languages, .*, got source_words=10, target_words=20"):
        Transformer(10, 20, 16, 4, 1, 1, 16, tied="all")


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (torch.ones(2, 3), KindError, "Expected tokens as token ids .* got a torch.float32 tensor"),
        (torch.tensor([5, 6]), InputError, r"Expected tokens as token ids \(B, n\), got tokens \(2,\).*unsqueeze"),
        (torch.tensor([[5, 20]]), InputError, "token ids of tokens from 0 to 19, .* got 5 to 20"),
        (torch.tensor([[-1, 5]]), InputError, "token ids of tokens from 0 to 19, .* got -1 to 5"),
        ([[5, 6]], KindError, "Expected tokens as token ids .* got list"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(source, kind, message):
    with pytest.raises(kind, match=message):
        TransformerEncoder(20, 16, 4, 1, 16)(source)


def test_a_place_beyond_the_learned_ones_is_refused():
    model = transformer(positions="learned", longest=4)
    with pytest.raises(InputError, match="positions from 0 to 3, .*, got positions 0 to 6"):
        model(*batch()[:2])


def test_models_are_there_by_name():
    assert overt.models.Transformer is Transformer
