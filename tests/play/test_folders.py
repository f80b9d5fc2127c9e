"""Live pages of other models than MiniLM: a folder that `save_pretrained` wrote, and what is refused."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import overt
from overt.cli.main import app

SENTENCE = "Zoë's Café, in Zürich: 3 cats!"


def bert(folder, minilm, **changes):
    """A BERT encoder with weights at random and a cased tokenizer, as transformers writes them."""
    from transformers import BertConfig, BertModel

    tokenizer = json.loads((minilm.folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"] |= {"lowercase": False, "strip_accents": None}
    options = {
        "vocab_size": 30522, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 56,
        "max_position_embeddings": 24, "layer_norm_eps": 1e-5,
    } | changes  # fmt: skip
    model = BertModel(BertConfig(**options), add_pooling_layer=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 24})
    )
    return folder


@pytest.mark.slow
def test_a_folder_with_a_bert_encoder_runs_in_the_page(minilm, tmp_path, opened):
    from overt.explain.hub_model import HubModel

    folder, out = bert(tmp_path / "bert", minilm), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["play", str(folder), "--text", "A cat.", "--out", str(out)])
    assert result.exit_code == 0, result.output
    live = opened(out).ready()
    live.type(SENTENCE)
    reader = HubModel(str(folder))
    encoded = reader.encode(SENTENCE)
    with overt.lens.record(reader.network) as recording:
        reader.run(encoded)
    expected = np.array([recording[layer, head].weights()[0].numpy() for layer in range(2) for head in range(4)])
    page = np.array(
        live.page.ask("viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i))))")
    )
    assert np.abs(page - expected).max() < 5e-3
    assert live.page.ask("viewer.recording.verified.holds")
    live.type("cat " * 50)
    assert live.said.startswith("24 tokens, the beginning of the text")


@pytest.mark.parametrize(("changes", "said"), [
    ({"hidden_act": "relu"}, "hidden_act: relu"),
    ({"hidden_size": 36}, "hidden_size that is a multiple of 8"),
    ({"is_decoder": True}, "is_decoder"),
])  # fmt: skip
def test_what_the_page_cannot_compute_is_refused_with_the_way_out(minilm, tmp_path, changes, said):
    from overt.errors import InputError
    from overt.play.encoders import BertEncoder

    encoder = BertEncoder(bert(tmp_path / "bert", minilm, **changes))
    with pytest.raises(InputError) as caught:
        _ = encoder.config
    assert said in str(caught.value)
    assert "--serve" in str(caught.value)


def test_a_recurrent_translator_that_the_page_does_not_run_is_told_to_be_drawn_in_the_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"kind": "Seq2Seq", "config": {}}))
    result = CliRunner().invoke(app, ["play", "run", "--out", "page.html"])
    assert result.exit_code != 0
    assert "overt translate TEXT --model run --map" in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["run", "owner/name"])
def test_a_model_that_only_python_runs_is_told_to_be_served(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"kind": "LanguageModel", "config": {}}))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    result = CliRunner().invoke(app, ["play", name, "--out", "page.html"])
    assert result.exit_code != 0
    assert "--serve" in " ".join(result.output.split())
