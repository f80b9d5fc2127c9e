"""A recording that was saved and loaded answers as the one that was made, equal to the bit, and nothing else is read."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import overt
from overt.attention.pieces import registered
from overt.errors import InputError
from overt.lens import load, record

WORDS = [["a", "b", ".", "d", "e", "f", "g"], ["g", "f", "e", "d", ".", "b", "a"]]
INPUT = torch.randn(2, 4, 7, 8, generator=torch.Generator().manual_seed(1))


class Attends(nn.Module):
    """overt.attend with whatever it takes, twice."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return overt.attend(overt.attend(x, x, x, **self.options), x, x, **self.options)


class Fused(nn.Module):
    """torch's function on heads that lie in memory as models have them."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
        return functional.scaled_dot_product_attention(x, x, x, **self.options)


def recorded(model, x=INPUT, **options):
    with record(model, **options) as recording:
        model(x)
    return recording


def saved(recording, tmp_path):
    recording.save(tmp_path / "recording.safetensors")
    return load(tmp_path / "recording.safetensors")


def same(first, second):
    assert str(first) == str(second)
    assert first.layers == second.layers
    assert first.missing == second.missing
    assert [each.layers for each in first.passes] == [each.layers for each in second.passes]
    assert str(first.verify()) == str(second.verify())
    assert first.roles() == second.roles()
    assert first.tokens == second.tokens
    assert first.bytes == second.bytes
    heads = list(zip(first.heads(), second.heads(), strict=True))
    assert heads
    for one, other in heads:
        equal(one.entropy(), other.entropy())
        equal(one.received(), other.received())
        equal(one.map(3), other.map(3))
        equal(tuple(one.top(3)), tuple(other.top(3)))
    return heads


def equal(first, second):
    """To the bit; NaN, which negative weights have for an entropy, is NaN."""
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


PIECES = {
    "dot": {"score": overt.Dot(0.3, softcap=2.0)},
    "bilinear": {"score": overt.Bilinear(random(8, 8).T)},
    "additive and temperature": {
        "score": overt.Additive(random(4, 8), "sigmoid"),
        "normalizer": overt.Softmax(torch.rand(4, 1, 1) + 1),
    },
    "cosine and sparsemax": {"score": overt.Cosine(3.0), "normalizer": overt.Sparsemax()},
    "gaussian and entmax": {"score": overt.Gaussian(0.7), "normalizer": overt.Entmax(1.3)},
    "sink": {"normalizer": overt.Softmax(sink=random(4))},
    "sigmoid": {"normalizer": overt.normalizers.Sigmoid(), "mask": overt.Causal()},
    "sum": {"normalizer": overt.normalizers.Sum(), "mask": ~overt.Window(1, 0) | overt.Causal()},
    "lengths, documents and keys": {
        "mask": overt.Lengths(torch.tensor([5, 7]))
        & overt.Documents(torch.arange(7) // 4)
        & overt.masks.Keys(random(2, 7) > -2)
    },
    "alibi": {"bias": overt.ALiBi(random(4).abs()), "mask": random(4, 7, 7) > -1},
    "relative": {"bias": overt.RelativePositionBias(random(4, 9))},
    "tensor bias with infinity": {"bias": random(2, 1, 7, 7).where(random(2, 1, 7, 7) > -1, -torch.inf)},
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
def test_what_is_loaded_answers_as_what_was_saved(pieces, tmp_path):
    recording = recorded(Attends(**pieces), key_tokens=WORDS)
    for one, other in same(recording, saved(recording, tmp_path)):
        assert torch.equal(one.weights(), other.weights())
        assert torch.equal(one.steps(2).output, other.steps(2).output)
        assert torch.equal(one.output, other.output)


@pytest.mark.parametrize("options", [{"heads": [3, 1]}, {"keep": "summary"}, {"offload": "disk"}, {"layers": [1]}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_way_of_keeping_can_be_saved_in_every_dtype(options, dtype, tmp_path):
    recording = recorded(Attends(mask=overt.Causal(), bias=random(4, 7, 7).to(dtype)), INPUT.to(dtype), **options)
    same(recording, saved(recording, tmp_path))
    same(recording, saved(saved(recording, tmp_path), tmp_path))


def test_heads_that_lie_apart_in_memory_are_recomputed_to_the_same_bit(tmp_path):
    recording = recorded(Fused())
    for one, other in same(recording, saved(recording, tmp_path)):
        assert torch.equal(one.weights(), other.weights())


def test_passes_notes_and_what_is_missing_are_kept(tmp_path):
    model = Fused()
    with record(model, layers=[0, 9]) as recording:
        model(INPUT)
        model(INPUT[:1])
    recording.recorded.stored[1] = replace(recording.calls[1], notes=("as run: without its sink",))
    loaded = saved(recording, tmp_path)
    assert [each.layers for each in loaded.passes] == [["Fused"], ["Fused"]]
    assert loaded.missing == [("9", "layers= names it, but no call of attention has this number or name")]
    assert "call 1: as run: without its sink" in str(loaded)
    assert "; as run: without its sink" in str(loaded.verify())


def test_why_nothing_was_recorded_is_in_the_file(tmp_path):
    model = Fused()
    with record(model, layers=[7]) as recording:
        model(INPUT)
    loaded = saved(recording, tmp_path)
    assert "Expected calls that layers= names, got 7; the call is 0: Fused." in str(loaded)
    assert str(loaded) == str(recording)


def test_a_mask_that_layers_share_is_written_once(tmp_path):
    mask = (random(700, 700) > 0).expand(2, 4, 700, 700)
    x = torch.randn(2, 4, 700, 2)
    recording = recorded(nn.Sequential(Fused(attn_mask=mask), Fused(attn_mask=mask)), x)
    saved(recording, tmp_path)
    size = (tmp_path / "recording.safetensors").stat().st_size
    assert recording.bytes + 700 * 700 < size < recording.bytes + 700 * 700 + 10_000


def test_a_mask_of_the_callers_own_is_written_as_the_tensor_that_it_makes(tmp_path):
    class Even:
        def block(self, rows, keys):
            return (rows[:, None] + keys) % 2 == 0

    recording = recorded(Attends(mask=Even()))
    for one, other in same(recording, saved(recording, tmp_path)):
        assert torch.equal(one.weights(), other.weights())
    assert not saved(recording, tmp_path)[0, 0].weights()[0, 0, 1::2].any()


@pytest.mark.parametrize(
    ("pieces", "name"),
    [({"score": lambda q, k: q @ k.mT}, "<lambda>"), ({"normalizer": lambda s, allowed: s.softmax(-1)}, "<lambda>")],
)
def test_code_of_the_callers_own_is_refused_unless_summaries_are_kept(pieces, name, tmp_path):
    message = f'no code, got {name}, which is the caller\'s own.*or record with keep="summary"'
    with pytest.raises(InputError, match=message):
        recorded(Attends(**pieces)).save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
    recording = recorded(Attends(**pieces), keep="summary")
    same(recording, saved(recording, tmp_path))


def test_a_mask_that_was_written_over_is_not_saved(tmp_path):
    mask = random(7, 7)
    recording = recorded(Fused(attn_mask=mask))
    mask[0, 1] += 1
    with pytest.raises(InputError, match="the mask of Fused unchanged"):
        recording.save(tmp_path / "x.safetensors")


def test_what_was_loaded_needs_no_file_any_more(tmp_path):
    recording = recorded(Fused())
    loaded = saved(recording, tmp_path)
    (tmp_path / "recording.safetensors").unlink()
    assert torch.equal(loaded[0, 1].weights(), recording[0, 1].weights())


@pytest.mark.slow
def test_a_recording_is_looked_at_where_its_model_is_not(tmp_path):
    path = tmp_path / "x.safetensors"
    recorded(Fused()).save(path)
    program = (
        "import sys, overt; recording = overt.lens.load(sys.argv[1]);"
        "print(recording.layers, round(float(recording[0, 1].weights().sum()), 3))"
    )
    result = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, env=os.environ, check=True)
    assert result.stdout == "['Fused'] 14.0\n"


def test_tokens_that_are_half_a_letter_are_saved(tmp_path):
    recording = recorded(Attends(), torch.randn(1, 1, 2, 4), key_tokens=["\ud800", "\0"])
    assert saved(recording, tmp_path).tokens == ["\ud800", "\0"]


def metadata(stored):
    return {"overt.recording": json.dumps(stored)}


GOOD = {
    "format": 2,
    "model": "M",
    "passes": 1,
    "missing": [],
    "mixing": [],
    "query_tokens": None,
    "key_tokens": None,
    "calls": [],
}
DAMAGED = "Expected a recording in .*, got a file that cannot be read: .* Fix: save it again: the file is damaged"


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (None, "Expected a file that holds a recording, got .*, a safetensors file without one"),
        ({"other": "x"}, "Expected a file that holds a recording, got .*, a safetensors file without one"),
        (metadata(GOOD | {"format": 4}), "a recording of format 3, got format 4, written by a newer overt.*--upgrade overt"),
        (metadata(GOOD | {"format": 1}), "a recording of format 3, got format 1, written by an older overt.*record the model"),
        ({"overt.recording": "{"}, DAMAGED),
        (metadata([]), DAMAGED),
        (metadata({"format": 2}), DAMAGED),
        (
            metadata(GOOD | {"calls": [{"is": "Popen", "with": {}}]}),
            "registered classes alone, got 'Popen'. Fix: import the module",
        ),
        (metadata(GOOD | {"calls": [{"is": "CapturedCall", "with": {"shell": True}}]}), DAMAGED),
        (metadata(GOOD | {"calls": [{"is": "Window", "with": {"before": "x", "after": 0}}]}), DAMAGED),
        (metadata(GOOD | {"calls": ["call"]}), DAMAGED),
        (metadata(GOOD | {"calls": [{"put": ["9", [1]]}]}), DAMAGED),
        (metadata(GOOD | {"calls": [{"dtype": "load"}]}), DAMAGED),
        (metadata(GOOD | {"key_tokens": "abc"}), DAMAGED),
    ],
)
def test_files_that_hold_no_recording_are_refused(stored, message, tmp_path):
    save_file({"0": torch.ones(1)}, tmp_path / "x.safetensors", metadata=stored)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "x.safetensors")


TAMPERED = [
    ("qkv", ("passes",), "x"),
    ("qkv", ("missing",), [["only a name"]]),
    ("qkv", ("calls", 0, "with", "queries"), 10**12),
    ("qkv", ("calls", 0, "with", "keys"), "x"),
    ("qkv", ("calls", 0, "with", "pass_index"), 1),
    ("qkv", ("calls", 0, "with", "layer"), None),
    ("qkv", ("calls", 0, "with", "heads"), {"tuple": [0, 99]}),
    ("qkv", ("calls", 0, "with", "copies"), {"tuple": [0]}),
    ("qkv", ("calls", 0, "with", "batch"), -1),
    ("qkv", ("calls", 0, "with", "score_dtype"), {"dtype": "int64"}),
    ("qkv", ("calls", 0, "with", "output"), {"put": ["0", [10**9, 2, 4, 7, 8]]}),
    ("qkv", ("calls", 0, "with", "call", "with", "query"), None),
    ("qkv", ("calls", 0, "with", "call", "with", "key"), {"put": ["0", [10**9, 2, 4, 7, 8]]}),
    ("qkv", ("calls", 0, "with", "call", "with", "score"), 5),
    ("qkv", ("calls", 0, "with", "call", "with", "mask"), {"put": ["0", [2, 4, 7, 8]]}),
    ("qkv", ("calls", 0, "with", "call", "with", "bias"), {"put": ["0", [2, 4, 7, 8]]}),
    ("qkv", ("calls", 0, "with", "call", "with", "mask"), {"is": "Dense", "with": {"allowed": {"put": ["0", [2, 4, 7, 8]]}}}),
    ("qkv", ("calls", 0, "with", "call", "with", "normalizer"), None),
    ("qkv", ("calls", 0, "with", "call", "with", "dropout"), 5),
    ("summary", ("calls", 0, "with", "summary", "with", "entropy"), None),
    ("summary", ("calls", 0, "with", "summary", "with", "key_edges"), 5),
    ("summary", ("calls", 0, "with", "comparison"), 5),
    ("summary", ("calls", 0, "with", "shares"), {"tuple": []}),
]


def test_a_bias_that_an_older_file_holds_as_a_tensor_is_read(tmp_path):
    recording = recorded(Fused(attn_mask=torch.randn(2, 1, 7, 7, generator=torch.Generator().manual_seed(3))))
    path = tmp_path / "x.safetensors"
    recording.save(path)
    with safe_open(path, "pt") as opened:
        stored = json.loads(opened.metadata()["overt.recording"])
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    call = stored["calls"][0]["with"]["call"]["with"]
    assert call["bias"]["is"] == "TensorBias"
    call["bias"] = call["bias"]["with"]["tensor"]
    save_file(tensors, path, metadata=metadata(stored))
    assert torch.equal(load(path)[0, 1].weights(), recording[0, 1].weights())


@pytest.mark.parametrize(("keep", "position", "put"), TAMPERED, ids=lambda each: each[-1] if isinstance(each, tuple) else None)
def test_files_whose_parts_do_not_fit_together_are_refused_at_once(keep, position, put, tmp_path):
    path = tmp_path / "x.safetensors"
    recorded(Fused(), keep=keep).save(path)
    with safe_open(path, "pt") as opened:
        stored = json.loads(opened.metadata()["overt.recording"])
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    part = stored
    for step in position[:-1]:
        part = part[step]
    assert position[-1] in part
    part[position[-1]] = put
    save_file(tensors, path, metadata=metadata(stored))
    with pytest.raises(InputError, match=DAMAGED):
        load(path)


def test_what_was_loaded_can_be_saved_again(tmp_path):
    mask = torch.rand(7, 7, generator=torch.Generator().manual_seed(0)) > 0.3
    model = nn.Sequential(Fused(attn_mask=mask), Fused(attn_mask=mask))
    once = saved(recorded(model), tmp_path)
    once.save(tmp_path / "again.safetensors")
    same(load(tmp_path / "again.safetensors"), once)


@pytest.mark.parametrize("keep", [0, 7, 100, -1, -1000])
def test_files_that_end_too_early_are_refused(keep, tmp_path):
    path = tmp_path / "x.safetensors"
    recorded(Fused()).save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=DAMAGED):
        load(path)


def test_files_that_are_not_there_are_refused(tmp_path):
    for position in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=r"Expected a file that recording.save wrote, got .*, which is not a file"):
            load(position)


def test_the_file_is_safetensors_with_metadata_in_json(tmp_path):
    recorded(Fused(is_causal=True)).save(tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "pt") as opened:
        stored = json.loads(opened.metadata()["overt.recording"])
    assert (stored["format"], stored["model"]) == (3, "Fused")
    assert stored["calls"][0]["with"]["call"]["with"]["mask"] == {"is": "Causal", "with": {"offset": 0}}


def test_every_piece_of_overt_can_be_written():
    pieces = {
        name
        for module in [module for name, module in sys.modules.items() if name.startswith("overt.")]
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__.startswith("overt.") and value in torch.utils._pytree.SUPPORTED_NODES
    }
    assert {"Dot", "Causal", "ALiBi", "Softmax", "SumOfBiases"} <= pieces
    assert pieces <= set(registered)


def test_without_safetensors_saving_says_what_to_install(monkeypatch, tmp_path):
    recording = recorded(Fused())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(overt.errors.MissingExtra, match=r'needs safetensors, which is not installed.*\[text\]"'):
        recording.save(tmp_path / "x.safetensors")


def test_a_page_and_a_figure_are_not_written_over_the_recording_they_show(tmp_path):
    path = tmp_path / "recording.pdf"
    recorded(Fused()).save(path)
    content, loaded = path.read_bytes(), load(path)
    (tmp_path / "link.pdf").symlink_to(path)
    for write in (loaded.page, loaded.plot, loaded.passes[0].page):
        with pytest.raises(InputError, match="not an input file, got path .*, the same file as the recording"):
            write(tmp_path / "link.pdf")
    assert path.read_bytes() == content
    loaded.tokens = [*"abcdefg"]
    loaded.save(path)  # the same recording, and whole
    assert load(path).tokens == [*"abcdefg"]
    assert torch.equal(loaded[0, 1].weights(), load(path)[0, 1].weights())
