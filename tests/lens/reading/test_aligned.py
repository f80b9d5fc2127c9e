import pytest
import torch

import overt
from overt.errors import InputError
from overt.lens import alignment
from overt.models import Seq2Seq
from readable import alike, recorded, sequence, stack


def torch_translator(layers=3):
    torch.manual_seed(0)
    return torch.nn.Transformer(16, 4, 1, layers, 32, batch_first=True).eval()


def cross_weights(recording, name):
    """The mean over heads of one layer's weights."""
    return torch.stack([recording[name, head].weights() for head in range(4)]).mean(0)


def test_a_words_row_is_that_of_the_step_that_reads_it():
    recording = recorded(torch_translator(), sequence(2, 6), sequence(2, 5, seed=2))
    steps = cross_weights(recording, "decoder.layers.1.multihead_attn")
    alike(alignment(recording), steps[:, 1:])


def test_the_writing_step_is_had_by_asking_for_it():
    recording = recorded(torch_translator(), sequence(2, 6), sequence(2, 5, seed=2))
    alike(alignment(recording, later=0), cross_weights(recording, "decoder.layers.1.multihead_attn"))


@pytest.mark.parametrize("layer", ["decoder.layers.2.multihead_attn", "decoder.layers.2.multihead", 6])
def test_a_layer_is_named_or_numbered(layer):
    recording = recorded(torch_translator(), sequence(2, 6), sequence(2, 5, seed=2))
    name = "decoder.layers.2.multihead_attn"
    if layer == "decoder.layers.2.multihead":
        with pytest.raises(InputError, match="the name of a module that computes attention"):
            alignment(recording, layer)
    else:
        alike(alignment(recording, layer), cross_weights(recording, name)[:, 1:])


def test_heads_are_chosen_by_the_models_numbers():
    recording = recorded(torch_translator(1), sequence(2, 6), sequence(2, 5, seed=2), heads=[1, 3])
    name = "decoder.layers.0.multihead_attn"
    alike(alignment(recording, name, heads=[3]), recording[name, 3].weights()[:, 1:])
    with pytest.raises(InputError, match=r"recorded heads of decoder.layers.0.multihead_attn, some of 1, 3, got heads=\[0\]"):
        alignment(recording, name, heads=[0])


@pytest.mark.parametrize(("asks", "later"), [("previous", 2), ("current", 1), ("both", 1)])
def test_a_recurrent_decoders_steps_are_put_together(asks, later):
    torch.manual_seed(0)
    model = Seq2Seq(30, 30, width=16, score_with=asks).eval()
    source, target = torch.randint(4, 30, (2, 6)), torch.randint(4, 30, (2, 5))
    recording = recorded(model, source, target)
    with torch.no_grad():
        steps = model.weights(source, target)["cross"][0][:, 0]
    alike(alignment(recording, "attention", later=later), steps[:, later:])


def test_a_recording_of_several_passes_is_one_writing():
    model, source, target = torch_translator(1), sequence(1, 6), sequence(1, 5, seed=2)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad(), overt.lens.record(model) as whole:
        model(source, target, tgt_mask=causal)
    with torch.no_grad():
        memory = model.encoder(source)
        with overt.lens.record(model.decoder) as steps:
            for stop in range(1, 6):
                model.decoder(target[:, :stop], memory, tgt_mask=causal[:stop, :stop])
    name = "layers.0.multihead_attn"
    last_rows = torch.cat([part[name, 0].weights()[:, -1:] for part in steps.passes], dim=1)
    alike(whole[f"decoder.{name}", 0].weights(), last_rows)


def test_self_attention_alone_is_refused():
    with pytest.raises(
        InputError,
        match="a layer of attention between two texts.*got the layers 0, 1, 2, which are not known to be such layers",
    ):
        alignment(recorded(stack(), sequence()))


def test_more_steps_later_than_there_are_is_refused():
    recording = recorded(torch_translator(1), sequence(2, 6), sequence(2, 2, seed=2))
    with pytest.raises(InputError, match="got later=2 with 2 steps of decoder.layers.0.multihead_attn"):
        alignment(recording, later=2)
