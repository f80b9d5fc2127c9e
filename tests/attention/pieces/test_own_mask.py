"""A mask of one's own is one class: native kernels, recordings, files and the viewer know it by what it says of itself."""

import pytest
import torch
from torch import Tensor, nn

import overt
from overt.attention import pieces
from overt.attention.masks import Mask
from overt.errors import InputError
from overt.lens import load, record
from overt.lens.viewer.terms import head_terms

HEADS, LENGTH = 4, 9
INPUT = torch.randn(2, HEADS, LENGTH, 8, generator=torch.Generator().manual_seed(1))


@pieces.piece
class Chunks(Mask):
    """A query attends to the keys of its chunk of the text; `sizes` of the chunks are (H, 1, 1), one a head."""

    sizes: Tensor

    trailing = {"sizes": 2}  # noqa: RUF012

    def block(self, rows, keys):
        return rows[:, None] // self.sizes == keys // self.sizes

    def row_ranges(self, queries, keys, device):
        sizes = self.sizes[..., 0]  # (H, 1)
        low = torch.arange(queries, device=device) // sizes * sizes
        return low, low + sizes


@pieces.piece
class FirstKeys(Mask):
    """The first keys of the text, for all queries."""

    count: int

    def block(self, rows, keys):
        return keys[None, :] < self.count

    def row_ranges(self, queries, keys, device):
        return 0, self.count

    @property
    def numbers(self):
        return (self.count,)


CHUNKS = Chunks(torch.tensor([2, 3, 4, 9]).reshape(HEADS, 1, 1))
COMBINED = {
    "chunks": CHUNKS,
    "first keys": FirstKeys(3),
    "and": CHUNKS & overt.Causal(),
    "and of both": FirstKeys(3) & CHUNKS,
    "or": CHUNKS | FirstKeys(1),
    "not": ~CHUNKS,
    "all": overt.Lengths(7) & ~(CHUNKS & torch.ones(LENGTH, dtype=torch.bool) | overt.Causal()),
}


class Attends(nn.Module):
    """One call of attention under a mask."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, x):
        return overt.attend(x, x, x, mask=self.mask)


def recorded(mask, **options):
    with record(model := Attends(mask), **options) as recording:
        model(INPUT)
    return recording


def dense(mask):
    positions = torch.arange(LENGTH)
    return mask.bind(2, LENGTH, LENGTH).block(positions, positions)


@pytest.mark.parametrize("name", COMBINED)
def test_the_native_path_serves_it(name):
    mask = COMBINED[name]
    assert overt.plan(INPUT, INPUT, INPUT, mask=mask).path == "native"
    with overt.use_path("blocked"):
        expected = overt.attend(INPUT, INPUT, INPUT, mask=dense(mask))
    torch.testing.assert_close(overt.attend(INPUT, INPUT, INPUT, mask=mask), expected)


@pytest.mark.parametrize("name", COMBINED)
def test_a_saved_recording_holds_it(name, tmp_path):
    recording = recorded(COMBINED[name])
    recording.save(tmp_path / "recording.safetensors")
    loaded = load(tmp_path / "recording.safetensors")
    assert type(loaded.calls[0].call.mask) is type(COMBINED[name])
    assert loaded.verify().holds
    for first, second in zip(recording.heads(), loaded.heads(), strict=True):
        assert torch.equal(first.weights(), second.weights())


def test_a_file_that_names_a_class_which_is_not_registered_is_refused(tmp_path, monkeypatch):
    recorded(CHUNKS).save(tmp_path / "recording.safetensors")
    monkeypatch.delitem(pieces.registered, pieces.registered_name(Chunks))
    with pytest.raises(InputError, match=r"registered classes alone, got .*test_own_mask\.Chunks'. Fix: import the module"):
        load(tmp_path / "recording.safetensors")


def test_a_class_of_the_same_name_as_one_of_overts_does_not_replace_it():
    @pieces.piece
    class Causal(Mask):
        def block(self, rows, keys):
            return keys[None, :] >= 0

    assert pieces.registered["Causal"] is overt.Causal
    assert pieces.registered[pieces.registered_name(Causal)] is Causal


@pytest.mark.parametrize("name", COMBINED)
def test_some_heads_of_it_are_a_mask_of_the_same_kind(name):
    mask = COMBINED[name]
    some = recorded(mask, heads=[3, 1])
    expected = [head.weights() for head in recorded(mask).heads() if head.head in (1, 3)]
    for head, weights in zip(sorted(some.heads(), key=lambda head: head.head), expected, strict=True):
        torch.testing.assert_close(head.weights(), weights)
    if name == "chunks":
        assert type(some.calls[0].call.mask) is Chunks
        assert some.calls[0].call.mask.sizes.flatten().tolist() == [9, 3]


@pytest.mark.parametrize("name", ["chunks", "first keys", "and", "and of both"])
def test_the_viewer_has_its_ranges(name):
    for number, head in enumerate(recorded(COMBINED[name]).heads()):
        terms = head_terms(head)
        assert [term["kind"] for term in terms.mask] == ["ranges"] * 2
        positions = torch.arange(LENGTH)
        starts, stops = terms.mask[0]["starts"], terms.mask[0]["stops"]
        allowed = (starts[:, None] <= positions) & (positions < stops[:, None])
        expected = dense(COMBINED[name]).expand(HEADS, LENGTH, LENGTH)[number]
        assert torch.equal(allowed.expand(LENGTH, LENGTH), expected)


def test_a_mask_that_only_has_a_block_goes_to_the_blocks():
    class Even(Mask):
        def block(self, rows, keys):
            return (rows[:, None] + keys) % 2 == 0

    plan = overt.plan(INPUT, INPUT, INPUT, mask=Even())
    assert (plan.path, plan.refused["native"]) == ("blocked", "native kernels do not know the mask Even")


def test_a_class_may_have_ranges_for_some_of_its_masks_alone():
    class Some(Mask):
        def __init__(self, ranged):
            self.ranged = ranged

        def block(self, rows, keys):
            return keys[None, :] < 3

        def row_ranges(self, queries, keys, device):
            return (0, 3) if self.ranged else None

    class Says(Some):
        @property
        def has_row_ranges(self):
            return self.ranged

    assert overt.plan(INPUT, INPUT, INPUT, mask=Says(True)).path == "native"
    assert overt.plan(INPUT, INPUT, INPUT, mask=Says(False)).path == "blocked"
    with pytest.raises(
        InputError, match="Expected row_ranges of every mask .* got None from Some. Fix: return False from has_row_ranges"
    ):
        overt.attend(INPUT, INPUT, INPUT, mask=Some(False))
