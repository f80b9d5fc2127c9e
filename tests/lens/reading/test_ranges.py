import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import overt
from overt.errors import InputError
from overt.lens import record
from overt.lens.capture.ranges import MaskReader, Ranges, read

LOWEST = torch.finfo(torch.float32).min
PLACES = torch.arange(6)
CAUSAL = PLACES[:, None] >= PLACES
DOCUMENTS = torch.tensor([0, 0, 1, 1, 1, 2])

ONE_RUN = {
    "causal": CAUSAL,
    "everything": torch.ones(6, 6, dtype=torch.bool),
    "window": CAUSAL & (PLACES[:, None] - 3 < PLACES),
    "padding right": (torch.arange(6) < torch.tensor([[4], [6]]))[:, None, None],
    "padding left": (torch.arange(6) >= torch.tensor([[2], [0]]))[:, None, None] & CAUSAL,
    "documents": DOCUMENTS[:, None] == DOCUMENTS,
    "causal documents": (DOCUMENTS[:, None] == DOCUMENTS) & CAUSAL,
    "a row of nothing": CAUSAL & (PLACES[:, None] != 2),
    "one row": torch.tensor([[False, True, True, False, False, False]]),
    "a head of its own": torch.stack([CAUSAL, CAUSAL.T]).unsqueeze(0),
}


def rows(mask) -> torch.Tensor:
    """All of a mask."""
    return mask.block(PLACES, PLACES)


@pytest.mark.parametrize("allowed", ONE_RUN.values(), ids=ONE_RUN)
def test_a_mask_of_one_run_a_row_is_kept_as_its_edges(allowed):
    result = read(allowed)
    assert isinstance(result.mask, Ranges)
    assert result.bias is None
    assert result.mask.low.shape == allowed.shape[:-1]
    assert torch.equal(rows(result.mask).expand(allowed.shape), allowed)


@pytest.mark.parametrize("number", [-math.inf, LOWEST])
@pytest.mark.parametrize("name", [name for name in ONE_RUN if name != "a row of nothing"])
def test_a_mask_that_is_added_is_read_like_one_that_bars(name, number):
    result = read(torch.zeros(ONE_RUN[name].shape).masked_fill(~ONE_RUN[name], number))
    if name == "padding left" and number == LOWEST:  # the first rows have no key left, see below
        assert result.bias is not None
    else:
        assert result.bias is None
        assert torch.equal(rows(result.mask).expand(ONE_RUN[name].shape), ONE_RUN[name])


def test_a_row_of_the_lowest_number_spreads_evenly_as_it_does_in_the_model():
    added = torch.zeros(6, 6).masked_fill(~ONE_RUN["a row of nothing"], LOWEST)
    result = read(added)
    x = torch.randn(6, 4)
    as_read = overt.steps(x, x, x, mask=result.mask, bias=result.bias).weights
    torch.testing.assert_close(as_read, (x @ x.T / 2 + added).softmax(-1))
    torch.testing.assert_close(as_read[2], torch.full((6,), 1 / 6))
    assert result.bias.shape == (6, 1)


def test_a_row_of_minus_infinity_is_a_query_without_keys():
    result = read(torch.zeros(6, 6).masked_fill(~ONE_RUN["a row of nothing"], -math.inf))
    assert result.bias is None
    assert not rows(result.mask)[2].any()


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([[True, False, True]]),
        torch.tensor([[0.0, -1.0, 0.0]]),
        torch.tensor([[0.0, -1e9]]),
        torch.tensor([[0.0, 0.0], [LOWEST, -math.inf]]),
        torch.tensor([[0.0, math.nan]]),
    ],
    ids=["a gap", "a bias", "another large number", "two kinds of barred in one row", "NaN"],
)
def test_any_other_mask_stays_the_models_own_tensor(mask):
    result = read(mask)
    assert (result.bias if mask.is_floating_point() else result.mask) is mask
    assert (result.mask if mask.is_floating_point() else result.bias) is None


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_ranges_and_the_mask_allow_the_same_or_it_is_not_read(allowed):
    mask = torch.tensor(allowed)
    runs = [sum(row[index] and (index == 0 or not row[index - 1]) for index in range(5)) for row in allowed]
    result = read(mask).mask
    assert isinstance(result, Ranges) == (max(runs) < 2)
    if isinstance(result, Ranges):
        assert torch.equal(result.block(torch.arange(len(allowed)), torch.arange(5)), mask)


def test_what_is_expanded_is_looked_at_once():
    result = read(CAUSAL.expand(3, 4, 6, 6))
    assert result.mask.low.shape == (1, 1, 6)


def test_a_large_mask_is_read_part_by_part(monkeypatch):
    monkeypatch.setattr("overt.lens.capture.ranges._AT_ONCE", 7)
    assert torch.equal(rows(read(CAUSAL).mask), CAUSAL)


def test_two_ranges_have_one_in_common():
    both = read(CAUSAL).mask & read(ONE_RUN["documents"]).mask
    assert isinstance(both, Ranges)
    assert torch.equal(rows(both), ONE_RUN["causal documents"])
    nothing = Ranges(torch.tensor([4]), torch.tensor([6])) & Ranges(torch.tensor([0]), torch.tensor([2]))
    assert not rows(nothing).any()
    assert torch.equal(rows((read(CAUSAL).mask & overt.Window(2, 0, offset=0)).bind(0, 6, 6)), ONE_RUN["window"])


def test_ranges_are_a_mask_like_any_other():
    x = torch.randn(2, 3, 6, 4)
    padded = ONE_RUN["padding left"]
    ours, plain = (overt.attend(x, x, x, mask=mask) for mask in (read(padded).mask, padded))
    torch.testing.assert_close(ours, plain)
    assert read(padded).mask.span(2, 4, 6) == (0, 4)
    with pytest.raises(InputError, match="one range for each of Q = 5 queries, or one for all, got low of shape \\(6,\\)"):
        overt.attend(x[..., :5, :], x, x, mask=read(CAUSAL).mask)


def test_a_mask_is_read_once_and_again_where_it_was_written_over(monkeypatch):
    calls = []
    monkeypatch.setattr("overt.lens.capture.ranges.read", lambda mask: calls.append(mask) or read(mask))
    masks, mask = MaskReader(), CAUSAL.clone()
    first = masks.read(mask)
    assert masks.read(mask).mask is first.mask
    assert masks.read(mask[None, None][0, 0]).mask is first.mask
    assert len(calls) == 1
    mask[0, 1] = True
    assert torch.equal(rows(masks.read(mask).mask), mask)
    assert len(calls) == 2


def test_a_mask_in_the_place_of_another_is_read_anew():
    masks = MaskReader()
    for length in range(1, 6):  # memory that was let go is used again
        mask = torch.arange(8).expand(8, 8) < length
        assert int(masks.read(mask.contiguous()).mask.high[0]) == length
        del mask


def test_a_mask_is_not_held_after_it_was_read():
    masks, bias = MaskReader(), torch.rand(3, 3)
    assert masks.read(bias).bias is bias
    assert masks.read(bias).bias is bias
    references = [weakref.ref(bias), weakref.ref(mask := CAUSAL.clone())]
    assert isinstance(masks.read(mask).mask, Ranges)
    del bias, mask
    assert [each() for each in references] == [None, None]


def test_inference_tensors_are_read_each_time():
    with torch.inference_mode():
        masks, mask = MaskReader(), CAUSAL.clone()
        masks.read(mask)
        mask[0, 1] = True
        assert torch.equal(rows(masks.read(mask).mask), mask)


class Masked(nn.Module):
    """One call of torch's fused function under a mask."""

    def forward(self, x, mask):
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@pytest.mark.parametrize("number", [None, -math.inf, LOWEST])
@pytest.mark.parametrize("name", ONE_RUN)
def test_a_recording_holds_ranges_and_recomputes_what_ran(name, number):
    mask = ONE_RUN[name] if number is None else torch.zeros(ONE_RUN[name].shape).masked_fill(~ONE_RUN[name], number)
    model, x = Masked(), torch.randn(2, 2, 6, 4)
    plain = model(x, mask)
    with record(model, heads=[1]) as recording:
        output = model(x, mask)
    assert torch.equal(output.nan_to_num(7.0), plain.nan_to_num(7.0))
    assert isinstance(recording.calls[0].call.mask, Ranges | overt.Causal)
    assert recording.verify().holds, str(recording.verify())


def test_a_mask_that_is_ranges_may_be_written_over_afterwards():
    mask, model = CAUSAL.clone(), Masked()
    with record(model) as recording:
        model(torch.randn(1, 2, 6, 4), mask)
    mask.fill_(True)
    assert torch.equal(recording[0, 0].weights()[0] > 0, CAUSAL)


def test_a_query_that_may_attend_to_nothing_stays_spread_evenly_where_mask_and_position_bias_are_one_tensor():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 40,
        "num_layers": 1,
        "num_heads": 4,
        "vocab_size": 60,
        "decoder_start_token_id": 0,
    }
    model = transformers.T5Model._from_config(transformers.T5Config(**small), attn_implementation="sdpa").eval()
    ids, padding = torch.arange(3, 15).view(2, 6), torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
    with torch.no_grad(), overt.lens.record(model, layers=["decoder.block.0.layer.0"]) as recording:
        model(input_ids=ids, decoder_input_ids=ids, decoder_attention_mask=padding)
    assert recording.verify().holds
    torch.testing.assert_close(recording["decoder", 0].weights()[1, :2], torch.full((2, 6), 1 / 6))
