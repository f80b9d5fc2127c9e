"""What each part adds to a logit: the parts sum to it, split by heads and source tokens, or the model is refused by name."""

import math

import pytest
import torch
import transformers
from torch import nn

import overt
from language_forms import FORMS, GROUPED, IDS, WORDS, arguments, recorded, small
from overt.errors import InputError, KindError
from overt.lens.analysis.contributions import linear_paths
from overt.lens.analysis.contributions.result import block_name
from tokenizers_of_all_kinds import numbered

# Their norms compute in float32, whatever the model's dtype is.
NORMS_IN_FLOAT32 = {"llama", "gemma2", "granite", "mixtral", "cohere", "qwen3_next", "minimax", "t5"}
CASES = [(form, torch.float32) for form in FORMS]
# torch's products of routed experts have no float64.
CASES += [(form, torch.float64) for form in FORMS if form not in ("mixtral", "qwen3_next", "minimax")]


@pytest.fixture(scope="module")
def llama():
    model = small("llama")
    return model, *recorded(model, arguments("llama"))


@pytest.mark.parametrize(("form", "dtype"), CASES)
@pytest.mark.few_cases(6)
def test_the_parts_sum_to_the_models_own_logit_difference(form, dtype):
    model, inputs = small(form, dtype), arguments(form)
    recording, logits = recorded(model, inputs)
    added = overt.lens.contributions(recording, model, (7, 11), position=-2, inputs=inputs)
    difference = logits[0, -2, 7].double() - logits[0, -2, 11].double()
    if form == "gemma2":  # the logits before their bound
        cap = 2.0
        difference = sum(sign * cap * torch.atanh(logits[0, -2, token].double() / cap) for token, sign in ((7, 1), (11, -1)))
        assert any("before it" in note for note in added.notes)
    eps = torch.finfo(torch.float32 if form in NORMS_IN_FLOAT32 else dtype).eps
    size = max(1.0, sum(abs(part.value) for part in added.parts))
    assert added.holds
    assert added.bound < 1e3 * eps * size
    assert abs(added.sum - float(difference)) < 1e3 * eps * size
    assert set(added.by_head) == {(number, head) for number in {call for call, _ in added.by_head} for head in range(4)}


def test_a_layer_that_reads_zeros_has_a_bound_of_its_own():
    model = small("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.zero_()
    recording, _ = recorded(model, arguments("llama"))
    added = overt.lens.contributions(recording, model, (7, 11))
    assert added.holds
    assert 0 < added.bound < 1e-3


def test_a_word_that_the_head_gives_no_vector_gets_nothing_from_any_part():
    model = small("qwen3_next")
    with torch.no_grad():
        model.lm_head.weight[7] = 0  # as that of padding often is
    added = overt.lens.contributions(recorded(model, arguments("qwen3_next"))[0], model, 7)
    assert added.holds
    assert set(added.by_head.values()) == {0.0}


def test_a_gate_is_frozen_where_there_is_one(llama):
    model, recording, _ = llama
    frozen = overt.lens.contributions(recording, model, 7, inputs=arguments("llama")).frozen
    assert frozen == ("the scale of a norm, model.norm",)
    hybrid = small("qwen3_next")
    added = overt.lens.contributions(recorded(hybrid, arguments("qwen3_next"))[0], hybrid, 7)
    assert any("a gate" in each and "linear_attn" in each for each in added.frozen)


def test_a_model_without_a_head_for_words_is_refused_with_the_one_to_load():
    model = small("llama").model
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(IDS)
    with pytest.raises(
        InputError, match="a language model, which gives logits, .* Fix: load it with its head, AutoModelForCausalLM"
    ):
        overt.lens.contributions(recording, model, 7)


def test_a_heads_tokens_sum_to_the_head_and_the_layers_to_the_whole(llama):
    model, recording, _ = llama
    added = overt.lens.contributions(recording, model, 7, inputs=arguments("llama"))
    assert {key: float(values.sum()) for key, values in added.by_token.items()} == pytest.approx(added.by_head)
    assert math.fsum(added.by_layer.values()) == pytest.approx(added.sum)
    assert list(added.by_layer) == ["model.embed_tokens", "model.layers.0", "model.layers.1"]
    assert float(added.by_source.sum()) == pytest.approx(math.fsum(added.by_head.values()))


@torch.no_grad()
def test_a_token_adds_its_weighted_value_behind_the_matrices_that_read_it(llama):
    model, recording, _ = llama
    position, key = 5, 2
    added = overt.lens.contributions(recording, model, (7, 11), position=position, inputs=arguments("llama"))
    caught = {}
    handle = model.model.norm.register_forward_pre_hook(lambda _, args: caught.update(stream=args[0]))
    model(**arguments("llama"))
    handle.remove()
    stream = caught["stream"][0, position].double()
    scale = (stream.square().mean() + model.config.rms_norm_eps).rsqrt()
    direction = (model.lm_head.weight[7] - model.lm_head.weight[11]).double() * model.model.norm.weight.double() * scale
    for head in range(4):
        one = recording[1, head]
        matrix = model.model.layers[1].self_attn.o_proj.weight.double()[:, 8 * head : 8 * head + 8]
        by_hand = float(one.weights(position)[0, 0, key]) * float(direction @ matrix @ one.value[0, key].double())
        assert float(added.by_token[1, head][key]) == pytest.approx(by_hand, rel=1e-4, abs=1e-7)


class TorchModel(nn.Module):
    """A causal language model of torch's own layers."""

    def __init__(self, norm_first):
        super().__init__()
        self.embedding, self.output = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=norm_first)
        norm = nn.LayerNorm(32) if norm_first else None
        self.layers = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.output(self.layers(self.embedding(words), mask=mask, is_causal=True))


class Attention(nn.Module):
    """One nn.MultiheadAttention, whose weights are wanted or not, time first."""

    def __init__(self, need_weights):
        super().__init__()
        self.embedding, self.output, self.norm = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS), nn.LayerNorm(32)
        self.attention, self.need_weights = nn.MultiheadAttention(32, 4), need_weights

    def forward(self, words):
        x = self.embedding(words).transpose(0, 1)
        x = self.norm(x + self.attention(x, x, x, need_weights=self.need_weights)[0])
        return self.output(x.transpose(0, 1))


TORCH_MODELS = {
    "norms first": lambda: TorchModel(True),
    "norms last": lambda: TorchModel(False),
    "attention": lambda: Attention(False),
    "attention and its weights": lambda: Attention(True),
}


@pytest.mark.parametrize("make", TORCH_MODELS.values(), ids=TORCH_MODELS)
def test_layers_of_torch_are_split_by_heads_and_tokens(make):
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        logits = model(IDS)
    added = overt.lens.contributions(recording, model, (5, 8), position=-1, inputs=IDS)
    assert added.holds
    assert added.logit_difference == pytest.approx(float(logits[0, -1, 5] - logits[0, -1, 8]), abs=1e-5)
    assert len(added.by_head) == 4 * len(recording.calls)
    assert all(abs(values).sum() > 0 for values in added.by_token.values())


def test_a_scan_with_its_gate_inside_is_split_by_channels_and_tokens():
    config = transformers.MambaConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, use_mambapy=False)
    torch.manual_seed(0)
    model = transformers.MambaForCausalLM(config).eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(IDS)
    added = overt.lens.contributions(recording, model, (5, 8), inputs=IDS)
    assert added.holds
    assert len(added.by_head) == 2 * 32
    assert any("a gate" in each for each in added.frozen)


def test_an_encoder_of_images_acts_through_the_tokens_that_it_wrote():
    vision = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4
    )
    text = transformers.LlamaConfig(**GROUPED)
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=3, vision_feature_layer=-1, image_seq_length=4
    )
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config).eval()
    inputs = {"input_ids": torch.tensor([[5, 3, 3, 3, 3, 9, 31, 7]]), "pixel_values": torch.randn(1, 3, 8, 8)}
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    added = overt.lens.contributions(recording, model, (5, 8), inputs=inputs)
    assert added.holds
    assert any("encoder" in note for note in added.notes)
    assert {recording.call_of(call).layer.split(".")[1] for call, _ in added.by_head} == {"language_model"}


def test_a_writer_that_is_left_out_breaks_the_sum(llama, monkeypatch):
    model, recording, _ = llama
    write = linear_paths.LinearPaths.write

    def without_one(self, value, kind, function, opening=None):
        left_out = kind == "function" and self.module() == "model.layers.1.mlp"
        return value if left_out else write(self, value, kind, function, opening)

    monkeypatch.setattr(linear_paths.LinearPaths, "write", without_one)
    added = overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama"))
    # What no writer is known of is a constant that is added: a part by the name of the block, and no feed-forward layer.
    assert not any(part.layer == "model.layers.1.mlp" and part.kind == "feed-forward" for part in added.parts)
    leaf = linear_paths.LinearPaths._leaf

    def without_constants(self, value, kind, *more):
        return value.detach().requires_grad_() if kind == "constant" else leaf(self, value, kind, *more)

    monkeypatch.setattr(linear_paths.LinearPaths, "_leaf", without_constants)
    assert not overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama")).holds


def test_what_is_added_out_of_sight_breaks_the_sum():
    class Hidden(nn.Module):
        def forward(self, states):
            with torch._C.DisableTorchFunction():
                return states + states.square()

    model = small("llama")
    model.model.layers[1].mlp = Hidden().eval()
    recording, _ = recorded(model, arguments("llama"))
    added = overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama"))
    assert not added.holds
    assert "DIFFERS" in added.table()


def test_the_model_stays_as_it_was(llama):
    model, recording, logits = llama
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama"))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert torch.equal(recorded(model, arguments("llama"))[1], logits)


def test_token_ids_need_not_be_passed_again(llama):
    model, recording, _ = llama
    with_ids = overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama"))
    assert overt.lens.contributions(recording, model, (7, 11)).by_head == with_ids.by_head
    embedded = {"inputs_embeds": model.model.embed_tokens(IDS).detach()}
    recording, _ = recorded(model, embedded)
    with pytest.raises(InputError, match="the inputs of the recorded pass"):
        overt.lens.contributions(recording, model, 7)
    assert overt.lens.contributions(recording, model, (7, 11), inputs=embedded).holds


def test_a_hybrids_mixer_is_split_by_heads_and_tokens():
    model = small("qwen3_next")
    recording, _ = recorded(model, arguments("qwen3_next"))
    added = overt.lens.contributions(recording, model, (7, 11), inputs=arguments("qwen3_next"))
    mixer = [part for part in added.parts if part.kind == "head" and "linear_attn" in part.layer]
    assert len(mixer) == 4
    assert all(added.by_token[part.call, part.head].abs().max() > 0 for part in mixer)
    assert any("a gate" in each for each in added.frozen)


def test_the_masked_token_is_the_position_where_tokens_attend_to_later_ones():
    model, ids = small("bert"), torch.tensor([[5, 31, 9, 44]])
    recording, logits = recorded(model, {"input_ids": ids})
    words = numbered(mask_token="w9")
    added = overt.lens.contributions(recording, model, inputs={"input_ids": ids}, tokenizer=words)
    assert added.target.position == 2
    assert added.target.tokens == (int(logits[0, 2].argmax()),)
    assert added.tokens == ["w5", "w31", "w9", "w44"]
    with pytest.raises(InputError, match="one mask token"):
        overt.lens.contributions(recording, model, 7, inputs={"input_ids": ids})


def test_a_table_fits_its_width(llama):
    model, recording, _ = llama
    added = overt.lens.contributions(recording, model, (7, 11), inputs=arguments("llama"))
    for width in (80, 40):
        lines = added.table(width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("“7” rather than “11” at position 6")
    assert "holds" in str(added)
    assert added.plot().get_figwidth() == pytest.approx(6.75)


def test_blocks_are_named_up_to_their_number():
    assert block_name("bert.encoder.layer.11.output.dense") == "bert.encoder.layer.11"


BAD = {
    "a target beyond the vocabulary": ({"target": 60}, InputError, "a token of the vocabulary, 0 to 59, got token 60"),
    "a target that is no number": ({"target": 7.0}, KindError, "a target that is a token's text or number"),
    "text with no tokenizer of a known kind": (
        {"target": "cat", "tokenizer": {}}, KindError, "a tokenizer: of Hugging Face, of the package tokenizers, of overt.learn, .* got dict"
    ),
    "text without a tokenizer": ({"target": "cat"}, InputError, "a tokenizer, to read a target that is text"),
    "one token twice": ({"target": (7, 7)}, InputError, "two different tokens"),
    "three targets": ({"target": (1, 2, 3)}, InputError, "a token, or a pair of two, got 3"),
    "a position beyond the text": ({"target": 7, "position": 7}, InputError, "a position of the text, 0 to 6, got position=7"),
    "other inputs": ({"target": 7, "inputs": {"input_ids": IDS.flip(1)}}, InputError, "the model and the inputs that were recorded"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(llama, case):
    model, recording, _ = llama
    options, error, message = BAD[case]
    with pytest.raises(error, match=message):
        overt.lens.contributions(recording, model, **{"inputs": arguments("llama"), **options})


def test_other_models_and_recordings_are_refused(llama, tmp_path):
    model, recording, _ = llama
    inputs = arguments("llama")
    with pytest.raises(InputError, match="a LlamaForCausalLM, got a BertForMaskedLM"):
        overt.lens.contributions(recording, small("bert"), 7, inputs=inputs)
    recording.save(tmp_path / "one.safetensors")
    with pytest.raises(KindError, match="a recording has no parameters, got no model"):
        overt.lens.contributions(overt.lens.load(tmp_path / "one.safetensors"), None, 7)
    with overt.lens.record(model, keep="summary") as summaries, torch.no_grad():
        model(**inputs)
    with pytest.raises(InputError, match="got summaries"):
        overt.lens.contributions(summaries, model, 7, inputs=inputs)
    with overt.lens.record(model) as two, torch.no_grad():
        model(IDS.repeat(2, 1))
    with pytest.raises(InputError, match="one text in each call, for contributions, got a batch of 2"):
        overt.lens.contributions(two, model, 7, inputs=inputs)
    with overt.lens.record(model) as open_recording, torch.no_grad():
        model(**inputs)
        with pytest.raises(InputError, match="a recording that has ended"):
            overt.lens.contributions(open_recording, model, 7)
    with overt.lens.record(model, heads=[0]) as some, torch.no_grad():
        model(**inputs)
    with pytest.raises(InputError, match="a recording of all heads"):
        overt.lens.contributions(some, model, 7, inputs=inputs)
    other = small("llama")
    nn.init.normal_(other.model.layers[0].self_attn.v_proj.weight)
    with pytest.raises(InputError, match="the model and the inputs that were recorded"):
        overt.lens.contributions(recording, other, 7, inputs=inputs)
    with pytest.raises(InputError, match="a model in evaluation"):
        overt.lens.contributions(recording, other.train(), 7, inputs=inputs)
    with pytest.raises(InputError, match="a model with its parameters loaded, got parameters on the device meta"):
        overt.lens.contributions(recording, small("llama").to("meta"), 7, inputs=inputs)
    split = small("llama")
    split.lm_head.to("meta")
    with pytest.raises(InputError, match="a model on one device, got parameters on cpu, meta"):
        overt.lens.contributions(recording, split, 7, inputs=inputs)


def test_a_stream_that_passes_a_function_that_is_not_linear_is_refused_by_name():
    class Squashed(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.norm = norm

        def forward(self, states):
            return self.norm(states.softmax(-1))

    model = small("llama")
    model.model.norm = Squashed(model.model.norm).eval()
    recording, _ = recorded(model, arguments("llama"))
    with pytest.raises(InputError, match="model.layers.1.self_attn, which reaches them only through softmax in model.norm"):
        overt.lens.contributions(recording, model, 7, inputs=arguments("llama"))


def padded(side):
    """The arguments of a padded text: token 0 and a mask."""
    filling, mask = torch.zeros(1, 3, dtype=torch.long), torch.ones_like(IDS)
    ids, mask = ([filling, IDS], [filling, mask]) if side == "left" else ([IDS, filling], [mask, filling])
    ids, mask = torch.cat(ids, -1), torch.cat(mask, -1)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_position_is_the_last_token_that_is_not_padding(llama, side):
    model, alone, _ = llama
    expected = overt.lens.contributions(alone, model, (7, 11))
    recording, _ = recorded(model, padded(side))
    added = overt.lens.contributions(recording, model, (7, 11), inputs=padded(side))
    assert added.target.position == (9 if side == "left" else 6)
    assert added.logit_difference == pytest.approx(expected.logit_difference, abs=1e-5)
    assert added.by_head == pytest.approx(expected.by_head, abs=1e-5)


def test_padding_that_no_mask_hides_is_known_by_the_tokenizer(llama):
    model = llama[0]
    ids = {"input_ids": torch.cat([IDS, torch.full((1, 3), 59)], -1)}
    recording, _ = recorded(model, ids)
    assert overt.lens.contributions(recording, model, 7).target.position == 9
    words = numbered(WORDS, pad_token="w59")
    assert overt.lens.contributions(recording, model, 7, tokenizer=words).target.position == 6
    recording.tokenizer(words)
    assert overt.lens.contributions(recording, model, 7).target.position == 6
    assert overt.lens.contributions(recording, model, 7, position=-1).target.position == 9


def test_a_padded_pass_without_its_inputs_is_refused_with_what_the_recording_has_not(llama):
    model = llama[0]
    recording, _ = recorded(model, padded("left"))
    with pytest.raises(InputError, match=r"gave another output than in the recording") as refused:
        overt.lens.contributions(recording, model, 7)
    fix = "inputs=, all arguments of the recorded pass (attention_mask, position_ids, …): only token ids are in a recording."
    assert fix in str(refused.value)
