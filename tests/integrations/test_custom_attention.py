"""Scores, masks and normalizers of a caller's own in Hugging Face models, against attention written out here."""

import itertools
import warnings

import pytest
import torch
import transformers

import overt
from families import FAMILIES, LENGTH, Family, written
from overt import integrations
from overt.errors import InputError, KindError, OvertError
from overt.lens import record

NAMED = {family.name: family for family in FAMILIES}
DECODERS = ("GPT2", "Llama", "Gemma2", "Mistral")
NUMBERS = itertools.count()


def manhattan(query, key):
    return -torch.cdist(query, key, p=1)


class Stripes:
    """A mask of a caller's own: every second key, and the query itself."""

    def block(self, rows, keys):
        distance = rows[:, None] - keys
        return (distance % 2 == 0) | (distance == 0)


def sharpened(scores, allowed):
    weights = torch.where(allowed, scores, -torch.inf).softmax(-1).square()
    return weights / weights.sum(-1, keepdim=True)


def reference(score=None, allowed=None, normalizer=None):
    """The name of the same attention, written out with a mask of numbers: `allowed(rows, keys)` of positions."""

    def function(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, **_):
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        scores = scores if score is None else score(query, key)
        visible = (
            torch.ones_like(scores, dtype=torch.bool) if attention_mask is None else attention_mask[..., : key.shape[2]] == 0
        )
        visible = visible.expand_as(scores)
        if allowed is not None:
            ends = visible.flatten(0, -2).any(0).nonzero().max() + 1  # where a cache is filled up to
            rows = torch.arange(query.shape[2]) + (0 if query.shape[2] == key.shape[2] else ends - query.shape[2])
            visible = visible & allowed(rows, torch.arange(key.shape[2]))
        scores = scores.masked_fill(~visible, -1e30)
        weights = scores.softmax(-1) if normalizer is None else normalizer(scores, visible)
        weights = torch.where(visible.any(-1, keepdim=True), weights, 0)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    name = f"written_{next(NUMBERS)}"
    transformers.AttentionInterface.register(name, function)
    transformers.AttentionMaskInterface.register(name, transformers.masking_utils.eager_mask)
    return name


CASES = {
    "score": ({"score": manhattan}, {"score": manhattan}),
    "window": ({"mask": overt.Window(2, 1)}, {"allowed": lambda i, j: (j >= i[:, None] - 2) & (j <= i[:, None] + 1)}),
    "own mask": ({"mask": Stripes()}, {"allowed": Stripes().block}),
    "normalizer": ({"normalizer": sharpened}, {"normalizer": sharpened}),
    "all": (
        {"score": overt.Dot(0.7), "mask": Stripes(), "normalizer": sharpened},
        {"score": lambda q, k: 0.7 * q @ k.mT, "allowed": Stripes().block, "normalizer": sharpened},
    ),
}


def outputs(family: Family, name, inputs):
    with torch.no_grad():
        result = family.build(name)(**inputs)
    return result["logits"] if "logits" in result else result["last_hidden_state"]


@pytest.mark.parametrize("pieces", CASES)
@pytest.mark.parametrize("family", [*DECODERS, "Bert"])
@pytest.mark.few_cases(6)
def test_a_model_computes_with_pieces_of_the_callers_own(family, pieces):
    pieces, written_out = CASES[pieces]
    family = NAMED[family]
    name, wanted = integrations.huggingface(**pieces), reference(**written_out)
    for side in family.sides:
        inputs = family.inputs(side)
        rows = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
        result = outputs(family, name, inputs)
        torch.testing.assert_close(result[rows], outputs(family, wanted, inputs)[rows], atol=2e-5, rtol=2e-5)
        assert not torch.allclose(result[rows], outputs(family, "eager", inputs)[rows], atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
@pytest.mark.parametrize("pieces", ["window", "own mask", "all"])
@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.few_cases(4)
def test_positions_go_on_while_a_model_writes(family, pieces, options):
    pieces, written_out = CASES[pieces]
    results = [written(NAMED[family].build(name), NAMED[family], **options) for name in (integrations.huggingface(**pieces), reference(**written_out))]  # fmt: skip
    for one, other in zip(results[0].scores, results[1].scores, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


def test_a_mask_with_holes_keeps_positions_in_a_static_cache():
    family = NAMED["Llama"]
    visible = torch.ones(2, LENGTH, dtype=torch.long)
    visible[0, 3] = 0
    scores = [
        transformers.GenerationMixin.generate(
            family.build(name), input_ids=family.inputs()["input_ids"], attention_mask=visible, cache_implementation="static",
            max_new_tokens=4, min_new_tokens=4, do_sample=False, return_dict_in_generate=True, output_scores=True,
        ).scores
        for name in (integrations.huggingface(mask=overt.Window(2, 0)), reference(allowed=lambda i, j: j >= i[:, None] - 2))
    ]  # fmt: skip
    for one, other in zip(*scores, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


class FirstKeys:
    """A mask of positions, not of distances: the first keys of the text, and the query itself."""

    def block(self, rows, keys):
        return (keys < 3) | (rows[:, None] == keys)


@pytest.mark.parametrize("visible", [LENGTH, 2], ids=["one range", "holes"])
@pytest.mark.parametrize("family", ["Mistral", "Gemma2"])
def test_positions_are_those_of_the_text_in_a_cache_that_drops_keys(family, visible):
    model = NAMED[family].build(integrations.huggingface(mask=FirstKeys()))
    tokens = NAMED[family].inputs()["input_ids"]
    shown = torch.ones_like(tokens)
    shown[0, visible : visible + 1] = 0
    exact = {
        "max_new_tokens": 4,
        "min_new_tokens": 4,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    whole, *cached = [
        torch.stack(model.generate(input_ids=tokens, attention_mask=shown, **exact, **options).scores)
        for options in ({"use_cache": False}, {}, {"cache_implementation": "static"})
    ]
    for scores in cached:
        torch.testing.assert_close(scores, whole, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("family", ["T5", "Bart", "Whisper"])
def test_queries_of_cross_attention_go_on_while_a_model_writes(family):
    model = NAMED[family].build(integrations.huggingface(mask=overt.Window(2, 2)))
    whole, *cached = [
        torch.stack(written(model, NAMED[family], 5, **options).scores)
        for options in ({"use_cache": False}, {}, {"cache_implementation": "static"})
    ]
    for scores in cached:
        torch.testing.assert_close(scores, whole, atol=2e-5, rtol=2e-5)


def test_a_query_of_cross_attention_in_a_compiled_model_is_refused(monkeypatch):
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 7, 8)
    attention = transformers.AttentionInterface()[integrations.huggingface(mask=FirstKeys())]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(InputError, match="in cross-attention, got one query in a compiled model.*use_cache=False"):
        attention(None, query, key, key, None, is_causal=False)


def test_queries_of_cross_attention_are_where_the_decoders_layer_before_was():
    query, key = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
    attention = transformers.AttentionInterface()[integrations.huggingface(mask=FirstKeys())]
    module = torch.nn.Identity()
    module.is_causal = False
    attention(module, key, key, key, None)  # an encoder's layer
    for causal, first in ((False, 0), (True, 4), (False, 4)):
        module.is_causal = causal
        _, weights = attention(module, query, key, key, None, output_attentions=True)
        assert torch.equal(weights[0, 0] > 0, FirstKeys().block(torch.arange(3) + first, torch.arange(7)))


@torch.no_grad()
def test_cross_attention_that_does_not_say_so_is_known_by_its_keys():
    """Mllama's layers of cross-attention lack `is_causal`, which its other layers have."""
    config = transformers.models.mllama.configuration_mllama.MllamaTextConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        cross_attention_layers=[1, 3], pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    torch.manual_seed(0)
    name = integrations.huggingface(mask=overt.Window(3, 1))
    model = transformers.MllamaForCausalLM._from_config(config, attn_implementation=name).eval()
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.25 if parameter.ndim > 1 else 1))  # gates are 0 at first
    tokens, picture = torch.randint(1, 40, (2, 8)), torch.randn(2, 10, 32)
    whole = model(tokens, cross_attention_states=picture, use_cache=False).logits
    first = model(tokens[:, :5], cross_attention_states=picture, use_cache=True)
    one = model(tokens[:, 5:6], past_key_values=first.past_key_values)
    last = model(tokens[:, 6:], past_key_values=one.past_key_values)
    torch.testing.assert_close(torch.cat([first.logits, one.logits, last.logits], 1), whole, rtol=2e-5, atol=2e-5)


def test_a_mask_of_unknown_positions_in_a_sliding_layer_is_refused():
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 4, 8)
    attention = transformers.AttentionInterface()[integrations.huggingface(mask=FirstKeys())]
    with pytest.raises(InputError, match="1 queries and 4 keys of a cache.*use_cache=False"):
        attention(None, query, key, key, torch.zeros(1, 1, 1, 4), sliding_window=4)


def test_dot_without_a_scale_keeps_the_models():
    family = NAMED["Gemma2"]  # its scale is not 1/√D
    softcap = family.build().config.attn_logit_softcapping
    name = integrations.huggingface(score=overt.Dot(softcap=softcap))
    torch.testing.assert_close(
        outputs(family, name, family.inputs()), outputs(family, "eager", family.inputs()), atol=1e-5, rtol=1e-5
    )


def test_a_recording_sees_a_mask_of_the_callers_own_in_every_pass():
    family = NAMED["Mistral"]
    model = family.build(integrations.huggingface(mask=FirstKeys()))
    with torch.no_grad(), record(model) as recording:
        written(model, family)
    assert recording.missing == []
    assert recording.verify().holds
    weights = recording.passes[-1][1, 0].weights()[
        0, 0
    ]  # of one query over the last keys in the cache, none of which is a first key
    assert (weights > 0).tolist() == [False] * (len(weights) - 1) + [True]


@pytest.mark.parametrize("family", ["Llama", "Bert"])
def test_a_recording_sees_pieces_of_the_callers_own(family):
    family = NAMED[family]
    model = family.build(integrations.huggingface(score=manhattan, mask=overt.Window(2, 0), normalizer="sparsemax"))
    with torch.no_grad(), record(model) as recording:
        model(**family.inputs("left"))
    assert recording.layers == list(family.layers)
    assert recording.missing == []
    assert recording.verify().holds
    weights = recording[1, 0].weights()
    assert (weights.tril(-3) == 0).all()
    assert (weights.triu(1) == 0).all()
    assert (weights == 0).sum() > LENGTH * LENGTH - 3 * LENGTH  # sparse inside the window too


def test_a_score_gets_float32_in_a_model_of_half_precision():
    dtypes = set()

    def watched(query, key):
        dtypes.add((query.dtype, key.dtype))
        return query @ key.mT * query.shape[-1] ** -0.5

    family = NAMED["Llama"]
    model = family.build(integrations.huggingface(score=watched), dtype=torch.bfloat16)
    with torch.no_grad():
        result, plain = (each(**family.inputs()).logits for each in (model, family.build("eager", dtype=torch.bfloat16)))
    assert dtypes == {(torch.float32, torch.float32)}
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result, plain, atol=0.1, rtol=0.05)


def test_gradients_reach_a_score_with_parameters():
    class Tempered(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = torch.nn.Parameter(torch.tensor(0.5))

        def forward(self, query, key):
            return query @ key.mT * self.temperature

    score, family = Tempered(), NAMED["Llama"]
    model = family.build(integrations.huggingface(score=score))
    model(**family.inputs()).logits.square().mean().backward()
    assert score.temperature.grad.abs() > 0


def test_weights_are_those_of_the_pieces():
    family = NAMED["Llama"]
    model = family.build(integrations.huggingface(mask=overt.Window(1, 0)))
    with torch.no_grad():
        weights = model(**family.inputs(), output_attentions=True).attentions[0]
    assert (weights.tril(-2) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_names_are_new_unless_given():
    first, second = (integrations.huggingface(normalizer="sparsemax") for _ in range(2))
    assert first != second
    assert first.startswith("overt_")
    assert integrations.huggingface(mask=overt.Window(1, 1), name="narrow") == "narrow"
    family = NAMED["Bert"]
    before = outputs(family, "narrow", family.inputs())
    assert integrations.huggingface(mask=overt.Window(3, 3), name="narrow") == "narrow"  # registered again
    assert not torch.allclose(outputs(family, "narrow", family.inputs()), before)
    assert integrations.huggingface() == "overt"


@pytest.mark.parametrize("name", ["overt", "eager", "sdpa", "flash_mine", "a/b", "", 3, ["narrow"]])
def test_a_name_that_transformers_reads_in_its_own_way_is_refused(name):
    with pytest.raises(InputError, match="a name= of letters, digits and underscores.*got .*narrow"):
        integrations.huggingface(mask=overt.Window(1, 0), name=name)


def test_a_name_of_another_librarys_attention_is_not_overwritten():
    transformers.AttentionInterface.register("someone", reference)
    with pytest.raises(InputError, match="got 'someone'"):
        integrations.huggingface(mask=overt.Window(1, 0), name="someone")


def test_a_name_without_pieces_is_refused():
    with pytest.raises(InputError, match=r"score=, mask= or normalizer= with a name, got name='mine' alone"):
        integrations.huggingface(name="mine")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ({"score": 3}, "the score to be callable"),
        ({"score": overt.Dot}, "the class Dot"),
        ({"score": "dots"}, "the score"),
        ({"mask": torch.zeros(3, 3)}, "bool"),
        ({"mask": 5}, "the mask to be"),
        ({"normalizer": 1.0}, "the normalizer to be callable"),
    ],
)
def test_pieces_of_the_wrong_kind_are_refused_before_a_model_runs(pieces, message):
    with pytest.raises(OvertError, match=message):
        integrations.huggingface(**pieces)


def test_a_normalizer_in_a_model_with_sinks_is_refused():
    family = NAMED["GptOss"]
    model = family.build(integrations.huggingface(normalizer="sparsemax"))
    with pytest.raises(InputError, match="without attention sinks.*leave normalizer= out"):
        model(**family.inputs())


def test_a_mask_of_another_length_is_refused():
    family = NAMED["Llama"]
    model = family.build(integrations.huggingface(mask=torch.ones(3, 3, dtype=torch.bool)))
    with pytest.raises((InputError, KindError), match="mask"):
        model(**family.inputs())


def test_a_model_that_does_not_apply_the_pieces_warns():
    family = NAMED["Bloom"]  # its attention is written out
    model = family.build(integrations.huggingface(mask=overt.Window(1, 0), name="unused"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(**family.inputs())
    (sentence,) = [str(warning.message) for warning in caught if "accepted" in str(warning.message)]
    assert 'attn_implementation="unused"' in sentence
    assert sentence.endswith("The score, mask or normalizer that you registered was not applied in it.")


@pytest.mark.slow
@pytest.mark.parametrize("pieces", ["window", "own mask", "normalizer"])
def test_a_compiled_model_gives_the_same_numbers(pieces):
    family = NAMED["Llama"]
    model, inputs = family.build(integrations.huggingface(**CASES[pieces][0])), family.inputs("left")
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = model(**inputs).logits
        compiled = torch.compile(model, backend="eager", fullgraph=True)(**inputs).logits
    rows = inputs["attention_mask"].bool()
    torch.testing.assert_close(compiled[rows], wanted[rows], atol=1e-5, rtol=1e-5)
