"""Layers that mix tokens otherwise than by attention are listed, and nothing else is."""

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from overt import lens
from overt.layers import Contextual
from overt.lens import record

WIDE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 160,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
BOTH = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "decoder_start_token_id": 1,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 4}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
SPEECH = {"conv_dim": (16,), "conv_kernel": (4,), "conv_stride": (2,), "num_conv_pos_embeddings": 8}
SPEECH |= {"num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 1}
LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 16}
DEPTHS = {"image_size": 32, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8]}

# kind -> configuration, how many layers attend, the endings of the names of the others, and a word of their sentence.
FIRST = {
    "bert": ({}, 2, [], ""),
    "llama": ({}, 2, [], ""),
    "gpt2": ({"n_embd": 64, "n_layer": 2, "n_head": 4}, 2, [], ""),
    "mixtral": ({"num_local_experts": 4}, 2, [], ""),
    "t5": ({"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "num_decoder_layers": 2}, 6, [], ""),
    "vit": ({"image_size": 16, "patch_size": 4}, 2, [], ""),
    # Its positions are looked up, and its patches stand behind a token of the class.
    "clip_vision_model": ({"image_size": 16, "patch_size": 4}, 2, [], ""),
    # Its embeddings are added to those of the tokens beside them.
    "mobilebert": ({"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}, 2, ["embeddings"], "shifted"),
    "qwen3_5_text": ({**LINEAR_AND_FULL, **DELTA}, 2, [], ""),
    "mamba": ({"state_size": 8, "conv_kernel": 4}, 2, [], ""),
    "lfm2": ({"layer_types": ["conv", "full_attention"], "block_ff_dim": 96}, 1, ["layers.0.conv"], "convolution over 3"),
    "fnet": ({}, 0, ["layer.0.fourier.self", "layer.1.fourier.self"], "a Fourier transform over tokens"),
    "rwkv": ({"attention_hidden_size": 64}, 2, ["0.feed_forward", "1.feed_forward"], "shifted"),
    "whisper": ({**BOTH, "num_mel_bins": 8, "max_source_positions": 12}, 4, ["encoder.conv1", "encoder.conv2"], "convolution"),
    "resnet": ({"embedding_size": 8, "hidden_sizes": [8], "depths": [1]}, 0, ["embedder", "layers.0.layer.1"], "3 × 3"),
}
# Written down before the rules met them, and not used to make the rules.
FROZEN = {
    "bart": (BOTH, 4, [], ""),
    "opt": ({"ffn_dim": 96}, 2, [], ""),
    "albert": ({"embedding_size": 32}, 1, [], ""),
    "squeezebert": ({"embedding_size": 64}, 2, [], ""),
    "qwen3_moe": ({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}, 2, [], ""),
    "gpt_oss": ({"num_local_experts": 4, "head_dim": 16}, 2, [], ""),
    "dinov2": ({"image_size": 16, "patch_size": 4}, 2, [], ""),
    "mamba2": ({"state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 4}, 2, [], ""),
    "bamba": ({**MAMBA, "attn_layer_indices": [1], "mamba_n_groups": 1}, 2, [], ""),
    "minimax": ({**LINEAR_AND_FULL, "block_size": 4, "num_local_experts": 2}, 2, [], ""),
    "recurrent_gemma": (
        {"head_dim": 16, "lru_width": 64, "block_types": ["recurrent", "attention"]},
        2,
        [],
        "",
    ),
    "wav2vec2-conformer": (
        {**SPEECH, "conv_depthwise_kernel_size": 7},
        2,
        ["conv_layers.0", "layers.0.conv_module", "layers.1.conv_module"],
        "convolution over",
    ),
    "convnext": (DEPTHS, 0, ["stages.0.layers.0", "stages.1.layers.0"], "7 × 7"),
}


def built(kind, settings):
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **{**WIDE, **settings}))
    return model.eval()


def inputs(model):
    draw = torch.Generator().manual_seed(1)
    name = model.main_input_name
    if name == "pixel_values":
        size = getattr(model.config, "image_size", 32)
        return {name: torch.randn(2, 3, size, size, generator=draw)}
    if name == "input_values":
        return {name: torch.randn(2, 200, generator=draw)}
    ids = torch.randint(5, 150, (2, 12), generator=draw)
    if name == "input_features":
        return {name: torch.randn(2, 8, 24, generator=draw), "decoder_input_ids": ids[:, :7]}
    return {name: ids, **({"decoder_input_ids": ids[:, :7]} if model.config.is_encoder_decoder else {})}


def recorded(model, *args, **kwargs):
    with torch.no_grad(), record(model) as recording:
        model(*args, **kwargs)
    return recording


@pytest.mark.few_cases(8)
@pytest.mark.parametrize("kind", [*FIRST, *FROZEN])
def test_a_family_lists_the_layers_that_mix_tokens_otherwise_and_no_others(kind):
    settings, attending, others, says = (FIRST | FROZEN)[kind]
    model = built(kind, settings)
    recording = recorded(model, **inputs(model))
    assert len(set(recording.layers) if recording.calls else set()) == attending
    assert len(recording.missing) == len(others), recording.missing
    for (name, reason), ending in zip(recording.missing, others, strict=True):
        assert name.endswith(ending)
        assert "mixes tokens by" in reason
    assert any(says in reason for _, reason in recording.missing) or not others
    text = str(recording.verify())
    total = attending + len(others)
    said = (
        f"covers all token-mixing layers that ran: {total}"
        if not others
        else f"covers {attending} of {total} token-mixing layers"
    )
    assert said in text


@pytest.mark.parametrize("length", [4, 16, 64, 96])
@pytest.mark.parametrize("kind", ["bert", "llama", "gpt2", "mixtral"])
def test_a_length_that_is_also_a_width_makes_no_layer_a_mixer(kind, length):
    model = built(kind, FIRST[kind][0])
    recording = recorded(model, torch.randint(5, 150, (2, length)))
    assert recording.missing == []


class Lines(nn.Module):
    """A module that runs the lines that it is given, with modules of its own."""

    def __init__(self, lines, /, **modules):
        super().__init__()
        self.lines = lines
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.lines(self, x)


class MixerBlock(nn.Module):
    """A block of MLP-Mixer: one network over tokens, one over features."""

    def __init__(self):
        super().__init__()
        self.tokens, self.features = (nn.Sequential(nn.Linear(n, 24), nn.GELU(), nn.Linear(24, n)) for n in (7, 32))

    def forward(self, x):
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + self.features(x)


def scanned(self, x):
    state, states = torch.zeros(2, 32), []
    for step in range(x.shape[1]):
        state = 0.5 * state + x[:, step]
        states.append(state)
    return torch.stack(states, dim=1)


def shifted_by_hand(self, x):
    return x + functional.pad(x, (0, 0, 1, -1))


class Sampled(nn.Module):
    """Deformable attention over a picture of 4 × 4 tokens: each token reads values at three positions that it computes."""

    def __init__(self, computed=True):
        super().__init__()
        self.where, self.value, self.weight = nn.Linear(32, 6), nn.Linear(32, 32), nn.Linear(32, 3)
        self.fixed = None if computed else nn.Parameter(torch.rand(2, 16, 3, 2))

    def forward(self, x):
        values = self.value(x).mT.reshape(-1, 32, 4, 4)
        where = self.where(x).tanh().view(-1, 16, 3, 2) if self.fixed is None else self.fixed
        sampled = functional.grid_sample(values, where, align_corners=False)  # (B, 32, 16, 3)
        weights = self.weight(x).softmax(-1)[:, None] if self.fixed is None else 1 / 3
        return (sampled * weights).sum(-1).mT


def summed_by_weights(self, x):
    return x * (self.weight(x).sigmoid() * x).sum(1, keepdim=True)


def summed_behind(self, x):
    return x.mT * (self.weight(x) * x).transpose(1, 2).sum(-1, keepdim=True)


MIXERS = {
    "weighted sum": (nn.Sequential(Lines(summed_by_weights, weight=nn.Linear(32, 1))), "0", "products that sum over tokens"),
    "weighted sum, swapped": (
        nn.Sequential(Lines(summed_behind, weight=nn.Linear(32, 1))),
        "0",
        "products that sum over tokens",
    ),
    "weighted channels": (
        nn.Sequential(Lines(lambda self, x: (x.mT * self.weight(x).mT).mean(2), weight=nn.Linear(32, 1))),
        "0",
        "products that sum over tokens",
    ),
    "LSTM": (nn.Sequential(nn.Linear(32, 32), nn.LSTM(32, 32, batch_first=True)), "1", "an LSTM"),
    "GRU, time first": (nn.Sequential(nn.GRU(32, 32)), "0", "a GRU"),
    "convolution": (
        Lines(lambda self, x: self.c(x.mT).mT, c=nn.Conv1d(32, 32, 3, padding=1)),
        "c",
        "a convolution over 3 positions",
    ),
    "Mixer": (nn.Sequential(MixerBlock(), MixerBlock()), "0", "a matrix of parameters over tokens"),
    "scan by hand": (nn.Sequential(Lines(scanned)), "0", "a recurrence over tokens"),
    "running sum": (nn.Sequential(Lines(lambda self, x: x.cumsum(1))), "0", "running sums over tokens"),
    "shift": (nn.Sequential(Lines(shifted_by_hand)), "0", "their shifted neighbours"),
    "two slices": (nn.Sequential(Lines(lambda self, x: x[:, 1:] + x[:, :-1])), "0", "their shifted neighbours"),
    "Fourier": (nn.Sequential(Lines(lambda self, x: torch.fft.fft(x, dim=1).real)), "0", "a Fourier transform over tokens"),
    "linear attention": (nn.Sequential(Lines(lambda self, x: x @ (x.mT @ x))), "0", "products that sum over tokens"),
    "causal products": (nn.Sequential(Lines(lambda self, x: (x @ x.mT).tril() @ x)), "0", "products that sum over tokens"),
    "pooling": (nn.Sequential(Lines(lambda self, x: functional.avg_pool1d(x.mT, 3, 1, 1).mT)), "0", "pooling over 3 positions"),
}


@pytest.mark.parametrize(("model", "name", "says"), MIXERS.values(), ids=MIXERS)
def test_a_layer_written_by_hand_is_listed_as_what_it_is(model, name, says):
    recording = recorded(model.eval(), torch.randn(2, 7, 32))
    assert len(recording.calls) == 0
    assert recording.missing[0][0] == name
    assert says in recording.missing[0][1]


def patches(self, x):
    x = x.view(2, 3, 4, 4, 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(2, 16, 48)
    return self.project(x)


NO_MIXERS = {
    "feed-forward": nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32)),
    "squared relu": Lines(lambda self, x: self.b(self.a(x).relu().square()), a=nn.Linear(32, 48), b=nn.Linear(48, 32)),
    "gated": Lines(lambda self, x: self.a(x).sigmoid() * self.b(x), a=nn.Linear(32, 32), b=nn.Linear(32, 32)),
    "squeezed and excited": Lines(lambda self, x: x * self.a(x.mean(1, keepdim=True)).sigmoid(), a=nn.Linear(32, 32)),
    "mean": Lines(lambda self, x: self.a(x.mean(1)), a=nn.Linear(32, 5)),
    "flattened": nn.Sequential(nn.Flatten(), nn.Linear(7 * 32, 5)),
    "batch norm": Lines(lambda self, x: self.a(x.mT).mT, a=nn.BatchNorm1d(32)),
    "pointwise convolution": Lines(lambda self, x: self.a(x.mT).mT, a=nn.Conv1d(32, 16, 1)),
    "class token": Lines(lambda self, x: self.a(x[:, 0]), a=nn.Linear(32, 5)),
    "weighted tokens": Lines(lambda self, x: self.a(x).sigmoid() * x, a=nn.Linear(32, 1)),
    "weighted features": Lines(lambda self, x: (self.a(x) * x).sum(-1), a=nn.Linear(32, 1)),
    "masked mean": Lines(lambda self, x: (x * (x[..., :1] > 0).float()).sum(1) / 7),
    "one cell": Lines(lambda self, x: self.a(x[:, 0]), a=nn.GRUCell(32, 32)),
}


@pytest.mark.parametrize("model", NO_MIXERS.values(), ids=NO_MIXERS)
def test_what_treats_each_token_alone_or_pools_them_is_not_listed(model):
    assert recorded(model.eval(), torch.randn(2, 7, 32)).missing == []


def test_values_that_are_sampled_where_the_model_says_are_mixed():
    recording = recorded(nn.Sequential(Sampled()).eval(), torch.randn(2, 16, 32))
    [[name, says]] = recording.missing
    assert name == "0"
    assert "values sampled at positions that the model computes" in says


def test_values_that_are_sampled_at_fixed_positions_are_not_mixed_by_that():
    recording = recorded(nn.Sequential(Sampled(computed=False)).eval(), torch.randn(2, 16, 32))
    assert not any("sampled" in says for _, says in recording.missing)


def test_tokens_that_meet_their_neighbours_are_mixed_whatever_positions_are_added():
    class Neighbours(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(9, 4), nn.Embedding(8, 4)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            return x[:, 1:] + x[:, :-1]

    [(_, reason)] = recorded(Neighbours(), torch.tensor([[4, 1, 7, 7, 2]])).missing
    assert "tokens added to their shifted neighbours" in reason


def test_parts_of_a_text_that_stand_behind_each_other_as_a_batch_are_not_mixed():
    """As processes that share a sequence pass its parts around."""

    class Divided(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.linear = nn.Embedding(9, 8), nn.Linear(8, 8)

        def forward(self, ids):
            parts = torch.cat(torch.chunk(self.embedding(ids), 2, dim=1), dim=0)
            return torch.cat(torch.chunk(self.linear(parts), 2, dim=0), dim=1)

    assert recorded(Divided(), torch.arange(6)[None]).missing == []


def test_patches_that_lie_side_by_side_are_no_mixing():
    image = torch.randn(2, 3, 16, 16)
    assert recorded(Lines(patches, project=nn.Linear(48, 8)), image).missing == []
    assert recorded(nn.Sequential(nn.Conv2d(3, 8, 4, stride=4)), image).missing == []


def test_a_recurrent_layer_under_attention_is_listed_beside_it():
    recording = recorded(Contextual(nn.LSTM(8, 8, batch_first=True), "dot").eval(), torch.randn(2, 5, 8))
    assert len(recording.calls) == 1
    [(_, reason)] = recording.missing
    assert reason == "LSTM mixes tokens by an LSTM: no attention weights are recorded"
    assert "covers 1 of 2 token-mixing layers; 1 is listed in missing" in str(recording.verify())


def test_a_generation_lists_the_layers_that_its_prompt_does():
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "attention_hidden_size": 16, "intermediate_size": 32}
    model = transformers.RwkvForCausalLM(transformers.RwkvConfig(vocab_size=50, **sizes)).eval()
    prompt = torch.tensor([[4, 9, 1, 30, 9]])
    with record(model) as recording:
        model.generate(prompt, max_new_tokens=5, do_sample=False)
    assert recording.missing == recorded(model, prompt).missing
    assert [name for name, _ in recording.missing] == [f"rwkv.blocks.{number}.feed_forward" for number in range(3)]


def test_an_empty_recording_is_explained_and_holds_nothing():
    with record(nn.Linear(4, 4)) as recording:
        pass
    checked = recording.verify()
    assert not checked.holds
    assert "nothing was recorded" in str(checked)
    assert "a model that runs inside the block" in str(checked)
    recording = recorded(nn.Sequential(nn.GRU(4, 4)), torch.randn(3, 2, 4))
    assert "covers 0 of 1 token-mixing layers; 1 is listed in missing" in str(recording.verify())


def test_layers_that_were_left_out_are_not_counted_as_missing():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3, enable_nested_tensor=False)
    with record(model, layers=[0]) as recording:
        model(torch.randn(2, 5, 8))
    assert "covers 1 of 3 token-mixing layers; 2 were left out by layers=" in str(recording.verify())


def test_the_coverage_is_in_the_file(tmp_path):
    recording = recorded(Contextual(nn.LSTM(8, 8, batch_first=True), "dot").eval(), torch.randn(2, 5, 8))
    recording.save(tmp_path / "recording.safetensors")
    loaded = lens.load(tmp_path / "recording.safetensors")
    assert loaded.mixing == recording.mixing
    assert str(loaded.verify()) == str(recording.verify())


def test_the_windows_of_an_image_are_named_by_row_column_and_shift():
    settings = {"image_size": 24, "patch_size": 2, "embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": 4}
    model = transformers.SwinModel(transformers.SwinConfig(**settings)).eval()
    recording = recorded(model, torch.randn(2, 3, 24, 24))
    said = "its 18 batch entries are 3 × 3 parts of each of 2 inputs, as windows are: entry (input · 3 + row) · 3 + column"
    assert [call.notes for call in recording.calls] == [(said,), (f"{said}, of an input shifted by 2 × 2",)]
