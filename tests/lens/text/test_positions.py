"""Positions of pictures as patches and of sound as seconds, in the tables, roles and files that words of text stand in."""

import pytest
import torch
import transformers
from torch import nn

import overt
from overt.errors import InputError
from overt.lens.text.tokens_of_text import Token

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def recorded(model, tokenizer=None, **inputs):
    with torch.no_grad(), overt.lens.record(model.eval(), tokenizer=tokenizer) as recording:
        model(**inputs)
    return recording


def words(recording, layer, side="key"):
    result = getattr(recording[layer, 0], f"{side}_tokens")
    return None if result is None else [str(each) for each in result[0]]


def grid(rows, columns, before=0):
    return [f"[{number}]" for number in range(before)] + [
        f"r{row}c{column}" for row in range(rows) for column in range(columns)
    ]


@pytest.fixture(scope="module")
def picture():
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(image_size=(32, 48), patch_size=8, **SMALL))
    return recorded(model, pixel_values=torch.randn(2, 3, 32, 48))


def test_patches_are_named_by_row_and_column_behind_the_class_token(picture):
    for layer in (0, 1):
        assert words(picture, layer) == words(picture, layer, "query") == grid(4, 6, before=1)
    token = picture[0, 0].key_tokens[0][9]
    assert isinstance(token, Token)
    assert (token, token.piece, token.special) == ("r1c2", "row 1, column 2", False)
    assert picture[0, 0].key_tokens[0][0].special


def test_a_named_patch_is_the_one_that_is_drawn_there(picture):
    head = picture[1, 2]
    index = words(picture, 1).index("r2c5")
    assert head.patches(3, grid=(4, 6))[0, 2, 5] == head.weights(3)[0, 0, index]


def test_registers_stand_before_the_patches():
    model = transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(
            image_size=32, patch_size=8, num_register_tokens=4, hidden_size=32, num_hidden_layers=1, num_attention_heads=4
        )
    )
    assert words(recorded(model, pixel_values=torch.randn(1, 3, 32, 32)), 0) == grid(4, 4, before=5)


def test_a_film_has_the_time_of_each_patch():
    config = transformers.VideoMAEConfig(image_size=16, patch_size=8, num_frames=4, tubelet_size=2, **SMALL)
    result = words(recorded(transformers.VideoMAEModel(config), pixel_values=torch.randn(1, 4, 3, 16, 16)), 0)
    assert result == [f"t{time}{each}" for time in range(2) for each in grid(2, 2)]


def test_the_text_beside_a_picture_has_no_patches_though_it_is_as_long():
    part = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    ids = {"vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CLIPConfig(
        text_config=part | ids, vision_config=part | {"image_size": 32, "patch_size": 8}, projection_dim=16
    )
    inputs = {"input_ids": torch.randint(3, 60, (1, 17)), "pixel_values": torch.randn(1, 3, 32, 32)}
    recording = recorded(transformers.CLIPModel(config), **inputs)
    by_part = {name.split(".")[0]: words(recording, name) for name in recording.layers}
    assert by_part == {"vision_model": grid(4, 4, before=1), "text_model": None}


def test_windows_of_a_picture_keep_their_numbers():
    config = transformers.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[1], num_heads=[2], window_size=4)
    recording = recorded(transformers.SwinModel(config), pixel_values=torch.randn(1, 3, 32, 32))
    assert words(recording, 0) is None
    assert "as many tokens" not in recording.page()


class Grid(nn.Module):
    """Attention of queries of its own, as many as there are patches, to a picture."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.encoder = nn.MultiheadAttention(8, 2, batch_first=True)
        self.decoder = nn.ModuleDict(
            {name: nn.MultiheadAttention(8, 2, batch_first=True) for name in ("self_attn", "encoder_attn")}
        )

    def forward(self, x, queries):
        patches = self.patches(x).flatten(2).mT
        read = self.encoder(patches, patches, patches)[0]
        queries = self.decoder["self_attn"](queries, queries, queries)[0]
        return self.decoder["encoder_attn"](queries, read, read)[0]


def test_queries_of_a_decoders_own_are_no_patches_and_its_keys_are():
    recording = recorded(Grid(), x=torch.randn(1, 3, 8, 12), queries=torch.randn(1, 6, 8))
    assert words(recording, "encoder") == grid(2, 3)
    assert words(recording, "decoder.self_attn") is None
    assert words(recording, "decoder.encoder_attn") == grid(2, 3)
    assert words(recording, "decoder.encoder_attn", "query") is None


def whisper():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ids = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    widths = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 50}
    return transformers.WhisperModel(transformers.WhisperConfig(**sizes, **ids, **widths))


def test_frames_of_sound_are_seconds_for_the_encoder_and_the_keys_of_the_decoder():
    inputs = {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": torch.randint(3, 60, (1, 5))}
    recording = recorded(whisper(), transformers.WhisperFeatureExtractor(), **inputs)
    seconds = [f"{0.02 * number:.2f}s" for number in range(50)]  # two frames of 10 ms each
    assert words(recording, "encoder.layers.0.self_attn") == seconds
    assert words(recording, "decoder.layers.0.encoder_attn") == seconds
    assert words(recording, "decoder.layers.0.self_attn") is None
    assert recording[0, 0].key_tokens[0][3].piece == "from 0.060 to 0.080 seconds"


def test_samples_of_sound_are_seconds_and_a_feature_extractor_may_come_later():
    convolutions = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    model = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**convolutions, **positions, **SMALL))
    recording = recorded(model, input_values=torch.randn(1, 800))
    assert words(recording, 0) is None
    recording.tokenizer(transformers.Wav2Vec2FeatureExtractor(sampling_rate=100))
    assert words(recording, 0)[:3] == ["0.00s", "0.10s", "0.20s"]  # 5 · 2 samples
    assert len(words(recording, 0)) == 79


def test_a_feature_extractor_for_a_model_without_sound_is_refused():
    model = nn.MultiheadAttention(8, 2)
    x = torch.randn(4, 1, 8)
    with (
        pytest.raises(
            InputError, match="Expected a model that cuts sound by convolutions, for a feature extractor, got one that"
        ),
        overt.lens.record(model, tokenizer=transformers.Wav2Vec2FeatureExtractor()),
    ):
        model(x, x, x)


def test_patches_stand_in_files_pages_comparisons_and_roles(picture, tmp_path):
    picture.save(tmp_path / "picture.safetensors")
    loaded = overt.lens.load(tmp_path / "picture.safetensors")
    assert loaded[1, 0].key_tokens == picture[1, 0].key_tokens
    assert "r3c5" in picture.page()
    assert "row 3, column 5" in picture.page()
    compared = overt.lens.compare(picture, loaded)
    assert compared.known
    assert loaded.roles() == picture.roles()
    assert picture.tokens == words(picture, 0)


def test_seconds_stand_in_files(tmp_path):
    inputs = {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": torch.randint(3, 60, (1, 5))}
    recording = recorded(whisper(), transformers.WhisperFeatureExtractor(), **inputs)
    recording.save(tmp_path / "sound.safetensors")
    assert words(overt.lens.load(tmp_path / "sound.safetensors"), 0) == words(recording, 0)


def test_names_of_the_callers_own_go_before():
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)).eval()
    with torch.no_grad(), overt.lens.record(model, key_tokens=list("abcde")) as recording:
        model(torch.randn(1, 3, 16, 16))
    assert words(recording, 0) == list("abcde")
