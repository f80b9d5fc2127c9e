"""Why a head looks there: the parts sum to the model's own score, and the part that a known circuit uses is named."""

import importlib
import json

import pytest
import torch
import transformers
from torch import nn

import overt
from language_forms import FORMS, IDS, arguments, recorded, small
from overt.errors import InputError, KindError
from overt.lens import score_contributions

QUERY, KEY = 3, 1


def product_of(head, row, key):
    """The model's scaled product of query and key, from what was recorded, in float64."""
    scale = head.call.score.factor(head.query)
    return float(head.query[0, row].double() @ head.key[0, key].double()) * scale


@pytest.fixture(scope="module")
def llama():
    model = small("llama")
    return model, recorded(model, arguments("llama"))[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.few_cases(6)
def test_both_sides_and_the_pairs_sum_to_the_models_product_of(form):
    model, inputs = small(form), arguments(form)
    recording, _ = recorded(model, inputs)
    calls = [number for number, captured in enumerate(recording.calls) if type(captured).__name__ == "CapturedCall"]
    why = score_contributions(recording, model, head=(calls[-1], 1), query=QUERY, key=KEY, inputs=inputs)
    head = recording[calls[-1], 1]
    assert why.holds
    assert why.bound < 1e-3
    assert why.score - why.position == pytest.approx(product_of(head, QUERY, KEY), abs=1e-9)
    if head.call.score.softcap is None:
        assert why.score == pytest.approx(float(head.stages(QUERY, QUERY + 1).masked[0, 0, KEY]), abs=1e-5)
    assert why.sum == pytest.approx(why.query.sum + why.position, abs=1e-9)
    assert any(part.kind == "head" for side in (why.query, why.key) for part in side.parts)
    assert all(part.value == pytest.approx(float(side.by_token[part.call, part.head].sum()))
               for side in (why.query, why.key) for part in side.parts if part.kind == "head")  # fmt: skip


@torch.no_grad()
def test_a_pair_is_the_product_of_what_two_parts_wrote(llama):
    model, recording = llama
    why = score_contributions(recording, model, head=(0, 2), query=QUERY, key=KEY)
    embedded = next(part for part in why.strongest() if part.query.kind == part.key.kind == "embedding")
    # In the first layer all of a query is the embedding: the pair is the score itself.
    assert embedded.value == pytest.approx(why.score, rel=1e-5)


@torch.no_grad()
def test_an_earlier_head_adds_its_output_behind_the_matrices_that_read_it(llama):
    model, recording = llama
    why = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY)
    caught = {}
    block, first = model.model.layers[1], recording[0, 3]
    handle = block.input_layernorm.register_forward_pre_hook(lambda _, args: caught.update(stream=args[0]))
    model(IDS)
    handle.remove()
    stream = caught["stream"][0, KEY].double()
    scale = (stream.square().mean() + model.config.rms_norm_eps).rsqrt()
    matrix = model.model.layers[0].self_attn.o_proj.weight.double()[:, 24:32]
    written = matrix @ (first.weights(KEY)[0, 0].double() @ first.value[0].double())
    unrotated = block.self_attn.k_proj.weight.double()[8:16] @ (written * block.input_layernorm.weight.double() * scale)
    cosines, sines = model.model.rotary_emb(caught["stream"], torch.tensor([[KEY]]))
    half = torch.cat([-unrotated[4:], unrotated[:4]])
    rotated = unrotated * cosines[0, 0].double() + half * sines[0, 0].double()
    by_hand = float(recording[1, 2].query[0, QUERY].double() @ rotated) / 8**0.5
    part = next(part for part in why.key.parts if (part.call, part.head) == (0, 3))
    assert part.value == pytest.approx(by_hand, rel=1e-4, abs=1e-7)


def test_a_score_is_compared_with_another_key_or_with_the_rows_others(llama):
    model, recording = llama
    head = recording[1, 2]
    scores = [product_of(head, QUERY, key) for key in range(QUERY + 1)]
    why = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY, against=0)
    assert why.holds
    assert why.score == pytest.approx(scores[KEY] - scores[0])
    why = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY, relative=True)
    assert why.holds
    assert why.score == pytest.approx(scores[KEY] - (scores[0] + scores[2] + scores[3]) / 3)
    # What every key has alike, as a bias on the key would be, is not in a difference.
    assert why.sum == pytest.approx(why.score, abs=1e-5)


def test_a_softcap_is_left_out_and_its_slope_is_reported():
    model = small("gemma2")
    model.config.attn_logit_softcapping = 0.5
    for layer in model.model.layers:
        layer.self_attn.attn_logit_softcapping = 0.5
    recording, _ = recorded(model, arguments("gemma2"))
    why = score_contributions(recording, model, head=(1, 0), query=QUERY, key=KEY)
    scores = recording[1, 0].stages(QUERY, QUERY + 1).scores[0, 0]
    assert why.holds
    assert why.softcapped == pytest.approx(float(scores[KEY]), abs=1e-5)
    assert 0.5 * torch.tanh(torch.tensor(why.score / 0.5)) == pytest.approx(why.softcapped, abs=1e-5)
    assert why.slope == pytest.approx(1 - (why.softcapped / 0.5) ** 2, abs=1e-4)
    assert "before the softcap" in why.table(width=80)


def test_a_position_bias_is_a_part_of_its_own():
    model = small("bloom")
    recording, _ = recorded(model, arguments("bloom"))
    why = score_contributions(recording, model, head=(1, 0), query=QUERY, key=KEY)
    assert why.holds
    assert why.position != 0
    assert [part.kind for part in why.parts].count("position") == 1


WRITTEN_OUT = {
    "RoFormerForMaskedLM": {
        "embedding_size": 32,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    },
    "XLNetLMHeadModel": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_queries_and_keys_are_followed_that_are_gone_before_the_weights_meet_the_values(name):
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**WRITTEN_OUT[name], vocab_size=60)).eval()
    recording, _ = recorded(model, {"input_ids": IDS})
    why = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY, inputs={"input_ids": IDS})
    assert why.holds
    assert why.score - why.position == pytest.approx(product_of(recording[1, 2], QUERY, KEY), abs=1e-9)
    assert {part.kind for part in why.key.parts} >= {"embedding", "head", "feed-forward"}


def test_a_changed_model_is_not_answered_from_the_run_before(llama):
    model, inputs = small("llama"), arguments("llama")
    recording, _ = recorded(model, inputs)
    before = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY)
    assert score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY).score == before.score
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.mul_(2)
    with pytest.raises(InputError, match="the model and the inputs that were recorded"):
        score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_previous_token_head_is_named_as_what_an_induction_head_reads(seed):
    induction = importlib.import_module("benchmarks.lens.induction")
    model, _ = induction.trained(seed, 400)
    generator = torch.Generator().manual_seed(100 + seed)
    text = induction.repeating(1, generator)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(text)
    row = induction.LENGTH - 2
    key = int(recording[1, 0].top(row, 1).keys[0, 0])
    assert text[0, key - 1] == text[0, row]  # the token after the same one: it is induction
    why = score_contributions(recording, model, head=(1, 0), query=row, key=key, relative=True)
    strongest = why.key.strongest(1)[0]
    assert (strongest.call, strongest.head) == (0, 0)
    assert int(why.key.by_token[0, 0].argmax()) == key - 1  # it brought the token before
    # By edit: without what the head writes into its key, and nothing else, the induction head looks elsewhere.
    losses = {}
    for into in ("key", "query", "value"):
        with overt.lens.edit(model) as edits:
            edits.path((0, 0), (1, 0), into=into)
            losses[into] = induction.loss_on_repeats(model)
    assert losses["key"] > 2.5 > 1 > max(losses["query"], losses["value"])
    with torch.no_grad(), overt.lens.without_heads(model, [(0, 0)]), overt.lens.record(model) as without:
        model(text)
    assert float(without[1, 0].weights(row)[0, 0, key]) < 0.3 * why.weight


def test_table_figure_and_json_name_heads_and_tokens(llama):
    model, recording = llama
    recording.tokens = [f"w{number}" for number in range(len(IDS[0]))]
    why = score_contributions(recording, model, head=(1, 2), query="w3", key="w1", against="w0")
    recording.tokens = None
    for width in (80, 40):
        lines = why.table(rows=4, width=width).splitlines()
        assert all(len(line) <= width for line in lines)
    assert why.table(width=120).startswith("why L1H2 attends from “w3” to “w1” rather than to “w0”")
    assert "head L0H" in why.table(width=80)
    assert why.plot().get_figwidth() == pytest.approx(6.75)
    written = json.loads(json.dumps(why.to_dict()))
    assert sum(part["value"] for part in written["parts"]) == pytest.approx(why.score, abs=1e-5)
    assert written["query"] == {"position": 3, "word": "w3"}


BAD = {
    "no pair": ({"head": 1}, KindError, r"a head as a pair \(layer, head\), got head=1"),
    "no such head": ({"head": (1, 9)}, InputError, "a recorded head of .*, 0 to 3, got 9"),
    "a word without tokens": ({"query": "it"}, InputError, "a recording with tokens, to find a query by its word"),
    "a query beyond the text": ({"query": 7}, InputError, "a query of this head, 0 to 6, got query 7"),
    "a masked key": ({"key": 5}, InputError, "a key that query 3 may attend to, got key 5, which is masked"),
    "itself": ({"against": KEY}, InputError, "a key to compare with that is another one, got key 1 for both"),
    "both views": ({"against": 0, "relative": True}, InputError, "a key to compare with .* got relative=True as well"),
    "no word": ({"key": 1.5}, KindError, "a key as a word or a number, got 1.5"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(llama, case):
    model, recording = llama
    options, error, message = BAD[case]
    with pytest.raises(error, match=message):
        score_contributions(recording, model, **({"head": (1, 2), "query": QUERY, "key": KEY} | options))


def test_heads_without_a_product_are_refused_by_name(llama):
    hybrid = small("qwen3_next")
    recording, _ = recorded(hybrid, arguments("qwen3_next"))
    with pytest.raises(InputError, match="got model.layers.0.linear_attn, a linear token mixer"):
        score_contributions(recording, hybrid, head=(0, 0), query=QUERY, key=KEY)
    with torch.no_grad(), overt.lens.record(llama[0], keep="summary") as summaries:
        llama[0](IDS)
    with pytest.raises(InputError, match="a recording of query, key and value, for the parts of a score, got summaries"):
        score_contributions(summaries, llama[0], head=(1, 2), query=QUERY, key=KEY)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 4, 8)
    with torch.no_grad(), overt.lens.record(attention) as one:
        attention(x, x, x)
    assert score_contributions(one, attention, head=(0, 1), query=2, key=0, inputs={"query": x, "key": x, "value": x}).holds
