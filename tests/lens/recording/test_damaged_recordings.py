"""Whatever is changed in a recording's file, it is refused in a sentence or it can be used, and it costs little memory."""

import json
import random as draws
import struct
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from everyday import everyday
from full_disk import files_up_to
from json_parts import changed, parts
from overt.errors import InputError, OvertError
from overt.lens import load, record
from overt.lens.capture.barrier import unseen
from overt.lens.capture.sink import CaughtMixer
from overt.lens.capture.watching import at_work
from overt.lens.linear import Recurrence

RANDOM = torch.Generator().manual_seed(2)


def random(*shape):
    return torch.randn(*shape, generator=RANDOM)


class Attends(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return overt.attend(x, x, x, **self.options)


class Grouped(nn.Module):
    """Two query heads a key head, and a mask that repeats."""

    def forward(self, x):
        mask = torch.ones(1, 1, 7, 7).bool().tril().expand(2, 4, 7, 7)
        return functional.scaled_dot_product_attention(x, x[:, :2], x[:, :2], attn_mask=mask, enable_gqa=True)


class Continues(nn.Module):
    """Two passes: each sequence of the second goes on with the keys of the other one."""

    def forward(self, x):
        query = x if x.shape[-2] == 5 else x[..., 5:, :]
        return overt.attend(query, x, x, mask=overt.Causal())

    def passes(self, x):
        return [x[..., :5, :], x.flip(0)]


class Mixes(nn.Module):
    """A linear mixer with all the parts that a recurrence may have; its heads share their keys."""

    def forward(self, x):
        key, state = functional.normalize(x[:, :1], dim=-1), random(2, 4, 8, 8)
        log_decay, row = -x.abs(), x[:, :, 2:, 0]
        recurrence = Recurrence(
            x[:, :, 2:], key, x, log_decay, -key, key / 2, diagonal=row, normalizer=1 + row.abs(), reads="before", start=state
        )
        output = recurrence.output()
        if (catcher := at_work()) is not None:
            with unseen():
                catcher.keep_mixer(CaughtMixer(recurrence, output, "a formula", ("a convolution before it",), ("a note",)))
        return output


class WrittenOut(nn.Module):
    """Attention of which the weights themselves are kept."""

    def forward(self, x):
        return torch.softmax((x @ x.mT).clamp(max=3), -1) @ x


MASKS = overt.Lengths(torch.tensor([5, 7])) & overt.Documents(torch.arange(7) // 4) & overt.masks.Keys(random(2, 7) > -2)
RECORDED = {
    "plain": (Attends(), {}),
    "window": (Attends(score=overt.Dot(0.3, softcap=2.0), mask=overt.Window(2, 1)), {}),
    "additive": (Attends(score=overt.Additive(random(4, 8)), normalizer=overt.Softmax(torch.ones(4, 1, 1))), {}),
    "gaussian": (Attends(score=overt.Gaussian(0.7), normalizer=overt.Entmax(1.3)), {}),
    "bilinear": (Attends(score=overt.Bilinear(random(8, 8)), normalizer=overt.Softmax(2.0, sink=random(4))), {}),
    "masks": (Attends(mask=MASKS | ~overt.Causal()), {}),
    "alibi": (Attends(bias=overt.ALiBi(random(4).abs()), mask=random(4, 7, 7) > -1), {"heads": [3, 1]}),
    "relative": (Attends(bias=overt.RelativePositionBias(random(4, 8), "log", True, 16)), {}),
    "bias": (Attends(bias=random(2, 1, 7, 7)), {"heads": [2]}),
    "grouped": (Grouped(), {"heads": [0, 3]}),
    "written out": (WrittenOut(), {}),
    "summary": (Attends(mask=overt.Causal()), {"keep": "summary"}),
    "continued": (Continues(), {}),
    "continued summary": (Continues(), {"keep": "summary"}),
    "mixer": (Mixes(), {"heads": [3, 1]}),
    "mixer summary": (Mixes(), {"keep": "summary"}),
}
VALUES = [
    *("x", "", None, True, [], [1], ["a"], [[1, 2]], {}, {"tuple": []}, {"tuple": [0]}),
    *(-1, 0, 1, 3, 10**6, 2**31, 2**40, 2**63 - 1, 2**63, -(2**63), 10**12, 10**30, 10**400, 1.5, -0.5, 1e300),
    *({"float": "nan"}, {"float": "inf"}, {"float": "x"}, {"dtype": "int64"}, {"dtype": "float8_e4m3fn"}),
    *({"put": ["0", [1]]}, {"put": ["0", [10**9]]}, {"put": ["1", [2, 4, 7, 8]]}, {"put": ["9", [7, 7]]}),
    *(
        {"is": "Dot", "with": {"scale": None, "softcap": None}},
        {"is": "Causal", "with": {"offset": 0}},
        {"is": "x", "with": {}},
    ),
]


def recorded(name, tmp_path):
    """The file's name, its header, what it says of the recording, and the bytes of its tensors."""
    path = tmp_path / "recording.safetensors"
    model, options = RECORDED[name]
    with record(model, key_tokens=[[*"abcdefg"]] * 2, **options) as recording:
        x = random(2, 4, 7, 8)
        for each in model.passes(x) if hasattr(model, "passes") else [x]:
            model(each)
    recording.save(path)
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    return path, header, json.loads(header["__metadata__"]["overt.recording"]), content[8 + length :]


def written(path, header, metadata, tensors):
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    raw = json.dumps({**header, "__metadata__": {"overt.recording": text}}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + tensors)
    return path


def use(path):
    """Load it and look at all of it; only overt's own errors may come of that."""
    try:
        recording = load(path)
    except InputError:
        return False
    looks = [
        recording.page,
        lambda: str(recording.verify()),
        lambda: f"{recording!r} {recording} {recording.bytes} {recording.passes[:3]}",
        recording.roles,
        lambda: [(head.entropy(), head.received(), head.top(0, 2), head.map(3)) for head in recording.heads()],
    ]
    for look in looks:
        try:
            look()
        except OvertError:
            continue
    return True


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    "name", everyday(RECORDED, "plain", "masks", "relative", "written out", "summary", "continued", "mixer")
)
def test_a_recording_with_anything_changed_is_refused_or_can_be_used(name, tmp_path):
    path, header, metadata, tensors = recorded(name, tmp_path)
    assert use(path)
    drawn = draws.Random(name)
    locations = [
        position for position in parts(metadata) if position[0] not in ("query_tokens", "key_tokens") or len(position) < 4
    ]
    for position in locations:
        for value in drawn.sample(VALUES, 1 if "continued" in name else 2):  # two calls have twice as many parts
            use(written(path, header, changed(metadata, position, value), tensors))


@pytest.mark.parametrize("name", [pytest.param("continued", marks=pytest.mark.slow), "continued summary"])
def test_how_a_call_continues_another_with_anything_changed_is_refused_or_can_be_used(name, tmp_path):
    path, header, metadata, tensors = recorded(name, tmp_path)
    assert metadata["continuations"] == [None, [0, [1, 0], 0, 5, 7, 0]]
    used = 0
    for position in parts(metadata["continuations"]):
        for value in VALUES:
            used += use(written(path, header, changed(metadata, ("continuations", *position), value), tensors))
    assert 0 < used < 20  # its fields are numbers, few of which fit


@pytest.mark.parametrize("name", ["mixer", "mixer summary"])
def test_a_mixer_continues_all_of_a_call_or_none_and_has_heads(name, tmp_path):
    path, header, metadata, tensors = recorded(name, tmp_path)
    call = metadata["calls"][0]
    second = changed(call, ("with", "number"), 1)
    for continuation in ([0, None, 0, 7, 7, 0], [0, None, 0, 2, 7, 0], [0, [1, 0], 2, 5, 7, 1]):
        joined = {**metadata, "calls": [call, second], "continuations": [None, continuation]}
        with pytest.raises(
            InputError, match="a file that cannot be read: (the call before it|its lengths) cannot be part of a recorded call"
        ):
            load(written(path, header, joined, tensors))
    with pytest.raises(InputError, match="a file that cannot be read"):
        load(written(path, header, changed(metadata, ("calls", 0, "with", "heads"), {"tuple": []}), tensors))


@pytest.mark.parametrize(("judged", "queries"), [(3, None), (-1, 7), (8, 7), (None, -1)])
def test_a_comparison_of_other_numbers_of_queries_is_refused(judged, queries, tmp_path):
    path, header, metadata, tensors = recorded("summary", tmp_path)
    metadata["calls"][0]["with"]["comparison"]["with"] |= {"judged": judged, "queries": queries}
    with pytest.raises(InputError, match="its comparison cannot be part of a recorded call"):
        load(written(path, header, metadata, tensors))


def test_a_summary_of_before_there_were_mixers_is_read(tmp_path):
    path, header, metadata, tensors = recorded("summary", tmp_path)
    expected = load(path).roles()
    del metadata["continuations"]
    for field in ("mixer", "around"):
        del metadata["calls"][0]["with"][field]
    assert load(written(path, header, {**metadata, "format": 2}, tensors)).roles() == expected
    assert use(path)


BOMB = """
import resource, sys
import torch
torch.set_num_threads(1)
# 2 GB beyond the libraries: torch for CUDA maps 3.4 GB of them.
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (2 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from overt.errors import InputError
from overt.lens import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        load(path).page()
        print("used")
    except InputError as error:
        print("refused", error.expected)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
HUGE = 10**9


def repeated(metadata, position, index, size):
    """The shape of the tensor at a place, one of its sizes made huge."""
    part = metadata
    for step in position:
        part = part[step]
    shape = list(part["put"][1])
    shape[index] = size
    return {"put": [part["put"][0], shape]}


def bombs(names, tmp_path):
    call = ("calls", 0, "with", "call", "with")
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, header, metadata, tensors = recorded(name, folder)
        locations = [position for position in parts(metadata) if position[-1] == "put"]
        for count, position in enumerate(locations):
            for index in range(-len(_at(metadata, position)[1]), 0):
                tampered = changed(metadata, position[:-1], repeated(metadata, position[:-1], index, HUGE))
                yield written(folder / f"{count} {index}", header, tampered, tensors)
        yield written(folder / "passes", header, {**metadata, "passes": HUGE}, tensors)
        for field in ("total", "batch", "queries", "keys"):
            yield written(folder / field, header, changed(metadata, ("calls", 0, "with", field), HUGE), tensors)
        for field in range(6) if name == "continued" else ():
            value = [HUGE] if field == 1 else HUGE
            yield written(folder / f"continued {field}", header, changed(metadata, ("continuations", 1, field), value), tensors)
        if name == "masks":
            yield written(folder / "low", header, changed(metadata, (*call, "mask"), MANY_ROWS), tensors)


def _at(metadata, position):
    for step in position:
        metadata = metadata[step]
    return metadata


# Two short tensors that would make a long one together.
MANY_ROWS = {"is": "Ranges", "with": {"low": {"put": ["3", [HUGE, 1]]}, "high": {"put": ["3", [1, HUGE]]}}}


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["masks", "summary", "continued"], 25),
        pytest.param(
            ["masks", "relative", "bias", "grouped", "alibi", "summary", "mixer", "continued"], 60, marks=pytest.mark.slow
        ),
    ],
)
def test_sizes_that_a_file_only_names_take_no_memory(names, count, tmp_path):
    paths = list(bombs(names, tmp_path))
    result = subprocess.run([sys.executable, "-c", BOMB, *paths], capture_output=True, text=True, check=True).stdout.split("\n")
    assert len(paths) > count
    assert all(line.startswith("refused") for line in result[: len(paths)])
    assert int(result[len(paths)]) < 100  # MB, of files of less than 20 kB each


def test_a_tensor_without_numbers_names_no_sizes(tmp_path):
    path, header, metadata, tensors = recorded("plain", tmp_path)
    header = {**header, "empty": {"dtype": "F32", "shape": [HUGE, HUGE, 0], "data_offsets": [len(tensors), len(tensors)]}}
    metadata = changed(metadata, ("calls", 0, "with", "output"), {"put": ["empty", [HUGE, HUGE, 0]]})
    with pytest.raises(InputError, match="an empty tensor has the sizes"):
        load(written(path, header, metadata, tensors))


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 1, "format": 1}', "the key 'format' is repeated"),
        ('{"format": NaN}', "NaN is not a JSON number"),
        ('{"format": ' + "1" * 5001 + "}", "Exceeds the limit"),
        ('{"format": {}}', "its format is not a valid number"),
        ('{"format": 1', "Expecting"),
    ],
)
def test_metadata_that_is_no_json_of_ours_is_refused(text, got, tmp_path):
    path, header, _, tensors = recorded("plain", tmp_path)
    with pytest.raises(InputError, match="a recording in .* got a file that cannot be read:") as caught:
        load(written(path, header, text, tensors))
    assert got in str(caught.value)


def nested(metadata, depth):
    mask = {"is": "Causal", "with": {"offset": 0}}
    for _ in range(depth):
        mask = {"is": "Not", "with": {"inner": mask}}
    return changed(metadata, ("calls", 0, "with", "call", "with", "mask"), mask)


def test_masks_within_masks_have_an_end(tmp_path):
    path, header, metadata, tensors = recorded("plain", tmp_path)
    assert use(written(path, header, nested(metadata, 60), tensors))
    for depth in (65, 150):
        with pytest.raises(InputError, match="a file that cannot be read"):
            load(written(path, header, nested(metadata, depth), tensors))
    mask = overt.Causal()
    for _ in range(35):
        mask = ~(mask & overt.Causal())
    with record(model := Attends(mask=mask)) as recording:
        model(random(1, 1, 3, 4))
    with pytest.raises(InputError, match=r"a mask or bias with at most 64 levels of nesting, to be saved, got more levels in"):
        recording.save(tmp_path / "deep.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        {"0": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}},
        {
            "0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "1": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        },
        {"0": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"0": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}},
        {"0": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"0": {"dtype": "Q7", "shape": [2], "data_offsets": [0, 8]}},
        {"0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**12]}},
        {"0": 5},
        [],
    ],
    ids=["short", "overlapping", "backwards", "overflow", "negative", "dtype", "beyond the file", "no tensor", "a list"],
)
def test_a_header_that_lies_is_refused(header, tmp_path):
    raw = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(12))
    with pytest.raises(InputError, match="a file that cannot be read"):
        load(tmp_path / "x")


@pytest.mark.parametrize("length", [0, 10**6, 2**40, 2**64 - 1])
def test_a_header_whose_length_is_not_so_is_refused(length, tmp_path):
    (tmp_path / "x").write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(InputError, match="a file that cannot be read|a file that holds a recording"):
        load(tmp_path / "x")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", ""])
def test_a_name_that_no_file_has_is_refused(name):
    with pytest.raises(InputError, match="a file that recording.save wrote, got"):
        load(name)


def test_a_full_disk_is_said_of_the_file_that_was_asked_for(tmp_path):
    with record(model := Attends()) as recording:
        model(random(2, 4, 7, 8))
    outputs = [recording.save, recording.page, recording.plot, recording.plot]
    for output, name in zip(outputs, ["a.safetensors", "a.html", "a.pdf", "a.png"], strict=True):
        with files_up_to(1024), pytest.raises(InputError, match=rf"/{name} to be writable, got File too large\."):
            output(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
