import math

import numpy as np
import pytest
import torch
from torch import nn

import overt
from overt.attention.masks import Causal, Dense, Lengths
from overt.errors import InputError, KindError
from overt.lens import viewer
from overt.lens.viewer.blocks import ArrayBlocks, rounded
from overt.lens.viewer.packing import pack_heads
from overt.lens.viewer.pyramids import coded
from overt.lens.viewer.select_heads import chosen, estimated
from packed_models import Attends, attended
from reading_pages import multi_head, recorded, words

TYPES = {"float32": np.float32, "int32": np.int32, "int16": np.int16, "uint8": np.uint8}


def array(result, index):
    """The numbers at a place of the blocks."""
    block, offset, kind, count = index
    data = b"".join(result.blocks.parts[block])
    return np.frombuffer(data, TYPES[kind], count, offset)


def vectors(result, message):
    data = array(result, message["data"]).reshape(message["count"], message["width"]).astype(np.float64)
    return data if message["scale"] is None else data * array(result, message["scale"])[:, None]


def pack(recording, heads=None, exact=True, **how):
    return pack_heads([(recording, chosen(recording, heads, exact, 10**9))], exact=exact, **how)


def test_rounded_vectors_are_off_by_half_a_step_of_their_largest_entry_at_most():
    inputs = (torch.randn(50, 16) * torch.logspace(-6, 6, 50)[:, None]).numpy()
    integers, scale = rounded(inputs)
    off = np.abs(integers * scale[:, None].astype(np.float64) - inputs).max(-1)
    assert (off <= 1.01 * np.abs(inputs).max(-1) / 65534).all()


def test_a_vector_with_a_nan_has_the_scale_nan_and_leaves_the_others_alone():
    inputs = np.ones((3, 4), np.float32)
    inputs[1, 2] = math.nan
    integers, scale = rounded(inputs)
    assert np.isnan(scale).tolist() == [False, True, False]
    assert (integers[0] == 32767).all()


def test_a_vector_with_an_infinity_keeps_every_vector_whole():
    blocks = ArrayBlocks()
    inputs = torch.ones(3, 4)
    inputs[1, 2] = math.inf
    message = blocks.vectors(inputs, 0, whole=False)
    assert message["scale"] is None
    assert message["data"][2] == "float32"


def test_the_same_array_is_stored_once_a_block():
    blocks = ArrayBlocks()
    assert blocks.put(torch.arange(9)) == blocks.put(torch.arange(9))
    assert blocks.put(torch.arange(9)) != blocks.put(torch.arange(8))
    assert len(blocks.parts[0]) == 2


def test_heads_that_share_a_key_point_to_one():
    heads = pack(attended(heads=4, shared=2)).header["heads"]
    keys = [tuple(each["key"]["data"]) for each in heads]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert len({tuple(each["query"]["data"]) for each in heads}) == 4


def test_few_vectors_stay_float32_and_are_the_models_own():
    _, recording = multi_head()
    result = pack(recording)
    for index, head in enumerate(recording.heads()):
        message = result.header["heads"][index]
        for name in ("query", "key", "value"):
            np.testing.assert_array_equal(vectors(result, message[name]), getattr(head, name)[0].double().numpy())


def test_many_vectors_are_int16_whose_weights_are_within_a_thousandth():
    _, recording = multi_head(1200, heads=4, width=32)
    result = pack(recording)
    message, head = result.header["heads"][3], recording[0, 3]
    assert message["query"]["data"][2] == "int16"
    scores = vectors(result, message["query"]) @ vectors(result, message["key"]).T * message["score"]["scale"]
    weights = np.exp(scores - array(result, message["lse"])[:, None])
    assert np.abs(weights - head.weights()[0].double().numpy()).max() < 1e-3


def test_vectors_whose_scores_are_huge_stay_float32_so_that_weights_hold():
    torch.manual_seed(0)
    far = 30 * torch.randn(1, 2, 1500, 64)
    recording = recorded(Attends(), far, far + torch.randn_like(far), torch.randn(1, 2, 1500, 64))
    message = pack(recording).header["heads"][0]
    assert message["query"]["data"][2] == "float32"


def test_how_far_rounding_takes_weights_off_is_measured_and_said():
    _, recording = multi_head(1200, heads=4, width=32)
    (note,) = (note for note in pack(recording).header["calls"][0]["notes"] if "int16" in note)
    assert 1e-6 < float(note.split("at most ")[1].split()[0]) < 1e-3


def test_the_statistics_are_the_recordings():
    _, recording = multi_head()
    result = pack(recording)
    message, head = result.header["heads"][1], recording[0, 1]
    np.testing.assert_allclose(array(result, message["entropies"]), head.entropy()[0], atol=1e-5)
    np.testing.assert_allclose(array(result, message["received"]), head.received()[0], atol=1e-6)
    links = {name: array(result, message["links"][name]) for name in ("weights", "rows", "keys")}
    weights = head.weights()[0].numpy()
    np.testing.assert_allclose(links["weights"], weights[links["rows"], links["keys"]], atol=1e-6)
    assert links["weights"][0] == pytest.approx(weights.max(), abs=1e-6)


MASKS = {
    "none": ({}, "none"),
    "causal": ({"mask": Causal()}, "causal"),
    "lengths": ({"mask": Lengths(torch.tensor([6, 3])), "batch": 2}, "ranges"),
    "scattered": ({"mask": Dense(torch.eye(6).bool() | torch.eye(6).flip(0).bool())}, "bits"),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_kept_as_the_smallest_thing_that_it_is(name):
    options, kind = MASKS[name]
    assert {each["mask"]["kind"] for each in pack(attended(**options), padding=True).header["heads"]} == {kind}


def test_padding_is_that_of_each_batch_entry():
    result = pack(attended(mask=Lengths(torch.tensor([6, 3])), batch=2), padding=True)
    stops = {each["batch"]: array(result, each["mask"]["stops"]).tolist() for each in result.header["heads"]}
    assert stops == {0: [6], 1: [3]}  # one for all queries


def test_padding_of_a_batch_is_left_out():
    result = pack(attended(mask=Lengths(torch.tensor([6, 3])), batch=2))
    sizes = {head["batch"]: result.header["calls"][head["call"]]["keys"] for head in result.header["heads"]}
    assert sizes == {0: 6, 1: 3}
    assert {head["mask"]["kind"] for head in result.header["heads"]} == {"none"}


def test_a_bias_by_distance_is_one_number_a_distance():
    result = pack(attended(bias=overt.RelativePositionBias(torch.randn(2, 5))))
    assert {each["bias"]["kind"] for each in result.header["heads"]} == {"distance"}
    assert result.header["heads"][0]["bias"]["values"][3] == 11


def test_what_the_page_cannot_compute_it_holds():
    recording = attended(normalizer=overt.Sparsemax())
    result = pack(recording)
    message = result.header["heads"][1]
    assert "query" not in message
    np.testing.assert_allclose(vectors(result, message["weights"]), recording[0, 1].weights()[0], atol=1e-6)
    assert "holds these weights themselves" in result.header["calls"][0]["notes"][-1]


def test_a_summary_shows_the_map_that_was_kept():
    model, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 9, 8)
    recording = recorded(model, x, x, x, keep="summary")
    result = pack(recording)
    message = result.header["heads"][1]
    assert "query" not in message
    np.testing.assert_array_equal(
        array(result, message["base"]["mean"]).reshape(9, 9), coded(recording.calls[0].summary.map_mean[0, 1])
    )
    assert message["top"]["width"] == 8


def test_without_single_weights_a_page_is_a_summary():
    _, recording = multi_head(1200, heads=2)
    message = pack(recording, exact=False)
    assert len(message.blocks.parts) == 1
    assert "query" not in message.header["heads"][0]
    assert message.header["heads"][0]["base"]["rows"] == 1024


def test_a_single_strong_link_is_a_full_cell_of_the_map():
    queries, keys = torch.zeros(1, 1, 5000, 4), torch.zeros(1, 1, 5000, 4)
    queries[0, 0, 1234, 0], keys[0, 0, 4321, 0] = 40.0, 40.0
    recording = recorded(Attends(), queries, keys, torch.randn(1, 1, 5000, 4))
    result = pack(recording)
    base = result.header["heads"][0]["base"]
    most = array(result, base["max"]).reshape(base["rows"], base["columns"])
    row = np.searchsorted(array(result, base["rowEdges"]), 1234, side="right") - 1
    key = np.searchsorted(array(result, base["keyEdges"]), 4321, side="right") - 1
    assert most[row, key] == 254
    assert (most == 254).sum() == 1


def test_top_shows_the_heads_of_the_lowest_entropy():
    _, recording = multi_head(heads=4)
    entropies = {head.head: float(head.entropy().mean()) for head in recording.heads()}
    shown = {each["head"] for each in pack(recording, heads="top 2").header["heads"]}
    assert shown == set(sorted(entropies, key=entropies.__getitem__)[:2])


def test_listed_heads_are_shown_and_no_others():
    _, recording = multi_head(heads=4)
    result = pack(recording, heads=[(0, 3), (0, 1), (0, 3)])
    assert [each["head"] for each in result.header["heads"]] == [3, 1]
    np.testing.assert_array_equal(vectors(result, result.header["heads"][0]["key"]), recording[0, 3].key[0].double().numpy())


@pytest.mark.parametrize(
    ("heads", "message"), [("top", "top 16"), ("top 0", "top 16"), ([], "at least one"), ([3], "at least one")]
)
def test_heads_that_name_none_are_refused(heads, message):
    _, recording = multi_head()
    with pytest.raises((InputError, KindError), match=message):
        recording.page(heads=heads)


def test_a_head_that_is_not_there_is_refused():
    _, recording = multi_head()
    with pytest.raises(InputError, match="head of MultiHeadAttention, 0 to 1"):
        recording.page(heads=[(0, 7)])


def test_a_page_over_the_limit_is_refused_before_it_is_built(monkeypatch):
    _, recording = multi_head()
    monkeypatch.setattr(viewer, "pack_heads", lambda *inputs, **message: pytest.fail("it was built"))
    with pytest.raises(InputError, match=r"at most 287\.0 kB.*2 heads that need about .*heads=\"top 1\".*exact=False.*limit="):
        recording.page(limit=287_000)
    with pytest.raises(InputError, match=r"Fix: raise limit=\.$"):
        recording.page(limit=10_000, exact=False)


def test_many_texts_over_the_limit_are_counted(monkeypatch):
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    recording = recorded(model, torch.randn(64, 12, 8), tokens=words(12))
    monkeypatch.setattr(viewer, "pack_heads", lambda *inputs, **message: pytest.fail("it was built"))
    with pytest.raises(
        InputError, match=r"2 heads of 64 texts that need about .*Fix: record fewer texts, leave out single weights"
    ):
        recording.page(limit=300_000)


@pytest.mark.parametrize("count", [12, 700, 3000])
@pytest.mark.parametrize("exact", [True, False])
def test_no_page_is_larger_than_was_estimated(count, exact):
    _, recording = multi_head(count, heads=2, width=16)
    size = len(recording.page(exact=exact).encode())
    message = estimated([(each, each.heads) for each in recording.calls], recording, exact)
    assert size <= message <= 4 * size + 250_000


def test_tokens_that_match_no_call_are_refused():
    _, recording = multi_head()
    recording.tokens = words(5)
    with pytest.raises(InputError, match=r"\[5\] tokens for 12 keys"):
        recording.page()


def test_tokens_that_match_some_calls_leave_a_note_with_the_others():
    model = nn.Sequential(overt.layers.SelfAttention(4), nn.AvgPool2d((2, 1)), overt.layers.SelfAttention(4))
    recording = recorded(model, torch.randn(1, 6, 4), tokens=words(6))
    calls = pack(recording).header["calls"]
    assert not calls[0]["notes"]
    assert "positions are shown instead" in calls[1]["notes"][-1]


def test_a_recording_of_nothing_has_no_page():
    with pytest.raises(InputError, match="run it there"):
        overt.lens.recording.Recording("Nothing").page()


def test_the_page_is_written_whole_and_its_path_returned(tmp_path):
    _, recording = multi_head()
    path = tmp_path / "page.html"
    assert recording.page(path) == str(path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_one_pass_has_a_page_of_its_own():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    with torch.no_grad(), overt.lens.record(layer) as recording:
        layer(x, x, x)
        layer(x, x, x)
    assert {each["pass"] for each in pack(recording).header["calls"]} == {0, 1}
    assert {each["pass"] for each in pack(recording.passes[1]).header["calls"]} == {1}
