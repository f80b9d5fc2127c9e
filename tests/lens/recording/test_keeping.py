"""What is kept of a recorded call, and where: copies or statistics, in memory or in files, within a size."""

import gc
import os
import re
import stat
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import overt
from overt.attention.kernels.blocked import in_blocks
from overt.attention.mechanism import formula
from overt.errors import InputError, KindError
from overt.lens import record
from overt.lens.captured import CapturedCall
from overt.lens.storage import offloading


class Fused(nn.Module):
    """Two layers of torch's function, four heads of eight features."""

    def __init__(self, **options):
        super().__init__()
        self.first, self.second = Layer(options), Layer(options)

    def forward(self, x):
        return self.second(self.first(x))


class Layer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.project, self.options = nn.Linear(32, 96), options

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)  # (3, B, H, N, D)
        return functional.scaled_dot_product_attention(q, k, v, **self.options).transpose(1, 2).flatten(2)


def sequence(length=20, batch=2):
    return torch.randn(batch, length, 32, generator=torch.Generator().manual_seed(1))


def pair(model, x, *, heads=None, **options):
    """The same run, whole and in the way that is asked for."""
    with record(model, heads=heads) as whole:
        model(x)
    with record(model, heads=heads, **options) as other:
        model(x)
    return whole, other


WAYS = [{"keep": "summary"}, {"offload": "cpu"}, {"offload": "disk"}, {"keep": "summary", "offload": "disk"}]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way.values()))


@ways
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"dropout_p": 0.4}], ids=["plain", "causal", "dropout"])
def test_outputs_gradients_and_random_numbers_are_the_models_own(way, options):
    model, result = Fused(**options), []
    for recorded in (False, True):
        torch.manual_seed(3)
        model.zero_grad()
        if recorded:
            with record(model, **way) as recording:
                output = model(sequence())
            assert (recording.layers, recording.missing) == (["first", "second"], [])
        else:
            output = model(sequence())
        output.square().sum().backward()
        result.append([output, torch.get_rng_state(), *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(*both) for both in zip(*result, strict=True))


@ways
def test_statistics_are_those_of_the_weights(way):
    whole, other = pair(Fused(attn_mask=torch.rand(20, 20) > 0.3), sequence(), heads=[2, 0], **way)
    for one, head in zip(whole.heads(), other.heads(), strict=True):
        weights = one.weights()
        torch.testing.assert_close(head.entropy(), torch.special.entr(weights).sum(-1))
        torch.testing.assert_close(head.received(), weights.mean(-2))
        torch.testing.assert_close(head.map(4), weights.unflatten(-1, (4, 5)).unflatten(-3, (4, 5)).mean((-1, -3)))
        result = head.top(7, 3)
        torch.testing.assert_close(result.weights, weights[:, 7].topk(3).values)
        assert torch.equal(result.keys, weights[:, 7].topk(3).indices)
    assert other.verify().holds
    assert other.verify().difference == pytest.approx(whole.verify().difference, abs=1e-6)
    assert [role.role for role in other.roles()] == [role.role for role in whole.roles()]


@pytest.mark.parametrize(
    "options",
    [
        {"mask": overt.Lengths(torch.tensor([3, 6])), "bias": overt.ALiBi(torch.rand(4))},
        {"score": overt.Additive(torch.randn(4, 8)), "normalizer": overt.Softmax(sink=torch.rand(4))},
    ],
    ids=["padding and alibi", "parameters by head"],
)
def test_overts_own_attention_is_summarised_once_and_by_head(options):
    class Custom(nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, **options)

    whole, other = pair(Custom(), torch.randn(2, 4, 6, 8), heads=[3, 1], keep="summary")
    assert len(other) == 1
    for one, head in zip(whole.heads(), other.heads(), strict=True):
        torch.testing.assert_close(head.entropy(), one.entropy())
        torch.testing.assert_close(head.map(6), one.weights())
    assert other.verify().holds


def test_a_summary_says_that_an_output_is_not_attentions(monkeypatch):
    class Wrong(nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x)

    monkeypatch.setattr(overt.attention.mechanism, "compute", lambda call: in_blocks(call, formula) + 0.5)
    with record(model := Wrong(), keep="summary") as recording:
        model(torch.randn(1, 2, 5, 8))
    assert recording.verify().difference == pytest.approx(0.5, abs=1e-4)
    assert not recording.verify().holds


def test_a_summary_of_dropout_compares_nothing():
    with record(model := Fused(dropout_p=0.5), keep="summary") as recording:
        model(sequence())
    assert "dropout 0.5 was drawn at random, and draws are not recorded" in str(recording.verify())
    weights = pair(model, sequence())[0][0, 1].weights()
    torch.testing.assert_close(recording[0, 1].map(20), weights)


def test_nothing_that_is_summarised_grows_with_the_square_of_the_length():
    sizes = {}
    for length in (256, 512, 1024):
        with record(model := Fused(), keep="summary") as recording:
            model(sequence(length, batch=1))
        sizes[length] = recording.bytes
        assert all(not isinstance(call, CapturedCall) for call in recording.calls)
    assert sizes[1024] - sizes[512] == 2 * (sizes[512] - sizes[256])


def test_what_a_summary_let_go_is_refused_with_the_cure():
    with record(model := Fused(), keep="summary") as recording:
        model(sequence())
    head = recording[1, 3]
    looks = [
        head.weights,
        head.mask,
        *(lambda name=name: getattr(head, name) for name in ("query", "key", "value", "output", "call")),
    ]
    for look in [*looks, lambda: head.steps(0)]:
        message = r'got summaries of second\. Fix: record with keep="qkv"'
        with pytest.raises(InputError, match=message):
            look()
    with pytest.raises(InputError, match="k of at most 8, the largest weights that the summary has, got k=9"):
        head.top(0, 9)
    with pytest.raises(InputError, match="a row of this head, 0 to 19, got row 20"):
        head.top(20)


def test_the_map_of_a_summary_joins_the_cells_that_are_kept():
    whole, other = pair(Fused(), sequence(128, 1), keep="summary")
    for size in (64, 32, (16, 8), 1):
        torch.testing.assert_close(other[0, 1].map(size), whole[0, 1].map(size))
    with pytest.raises(InputError, match="join the 64 cells of the summary, over 128 positions, got 48 cells.*pass size=64"):
        other[0, 1].map(48)


def test_copies_in_files_answer_to_the_bit_and_are_removed_with_the_recording():
    whole, other = pair(Fused(), sequence(), offload="disk")
    assert all(torch.equal(one.weights(), head.weights()) for one, head in zip(whole.heads(), other.heads(), strict=True))
    assert other.bytes == whole.bytes
    folder = other.calls[0].store.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 8
    head = other[1, 2]
    weights = head.weights()
    del other
    gc.collect()
    assert not folder.exists()
    assert torch.equal(head.weights(), weights)


def test_a_mask_that_layers_share_is_one_file():
    mask = torch.rand(20, 20) > 0.5
    with record(model := Fused(attn_mask=mask), offload="disk") as recording:
        model(sequence())
        model(sequence())
    assert len(list(recording.calls[0].store.folder.iterdir())) == 4 * 4 + 1
    mask[:] = True
    assert recording.verify().holds


def test_a_score_of_the_callers_own_stays_in_memory_beside_the_files():
    class Custom(nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, score=lambda q, k: q @ k.mT / 3)

    whole, other = pair(Custom(), torch.randn(1, 2, 5, 8), offload="disk")
    assert torch.equal(other[0, 1].weights(), whole[0, 1].weights())


MEMORY = """
import torch, overt
from torch.nn import functional

class Model(torch.nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

model, x = Model(), torch.randn(1, 4, 4096, 64)  # 4 MB; a call keeps four of these
with torch.no_grad(), overt.lens.record(model, offload="disk") as recording:
    model(x[:, :, :512]), model(x[:, :, :512])
    before = resident()
    for _ in range(12):
        model(x)
    print(resident() - before, recording.bytes / 2**20)
"""


@pytest.mark.slow
def test_resident_memory_does_not_grow_with_the_calls_that_go_to_files():
    # Freed memory is handed back at once, so that what is measured is what is held.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, env=environment, check=True).stdout
    grown, remaining = map(float, result.split())
    assert remaining > 192
    assert grown < 40


def test_copies_from_elsewhere_are_moved_whole_and_a_shared_mask_once(monkeypatch):
    mask = torch.rand(20, 20) > 0.3
    monkeypatch.setattr(offloading, "_on_other_device", lambda tensor: True)
    monkeypatch.setattr(offloading, "_on_cpu", torch.clone)
    whole, other = pair(Fused(attn_mask=mask.expand(2, 4, 20, 20)), sequence(), offload="cpu")
    assert all(torch.equal(one.weights(), head.weights()) for one, head in zip(whole.heads(), other.heads(), strict=True))
    first, second = (call.call.mask for call in other.calls)
    assert all(one is another for one, another in zip(tree_leaves(first), tree_leaves(second), strict=True))
    mask[:] = True
    assert other.verify().holds


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CPU has nowhere to move copies from")
def test_copies_of_a_gpu_are_moved_to_the_cpu():
    model = Fused(attn_mask=(torch.rand(20, 20) > 0.3).cuda()).cuda()
    whole, other = pair(model, sequence().cuda(), offload="cpu")
    for one, head in zip(whole.heads(), other.heads(), strict=True):
        assert head.query.device.type == "cpu"
        assert torch.equal(head.query, one.query.cpu())
        torch.testing.assert_close(head.weights(), one.weights().cpu(), rtol=0, atol=1e-5)
    assert other.verify().holds


def test_copies_on_a_cpu_stay_where_they_are_and_masks_are_the_models_own():
    mask = torch.randn(20, 20)
    with record(model := Fused(attn_mask=mask), offload="cpu") as recording:
        model(sequence())
    mask[0, 0] = 9.0
    with pytest.raises(InputError, match="the mask of first unchanged"):
        recording.verify()


def test_a_mask_made_in_inference_mode_is_copied_once_and_again_when_it_was_written_over():
    with torch.inference_mode():
        mask = torch.rand(20, 20) > 0.5
        model = Fused(attn_mask=mask)
        with record(model) as recording:
            model(sequence())
            mask.logical_not_()
            model(sequence())
    copies = [tree_leaves(call.call.mask)[0] for call in recording.calls]
    assert copies[0] is copies[1]
    assert copies[2] is copies[3]
    assert torch.equal(copies[0].reshape(20, 20), ~mask)
    assert recording.verify().holds


@pytest.mark.parametrize("way", [{}, {"keep": "summary"}])
def test_more_than_the_limit_is_not_kept_and_the_cures_are_named(way):
    with record(model := Fused(), limit=1000, **way) as recording:
        model(sequence())
    assert not len(recording)
    assert [layer for layer, _ in recording.missing] == ["first", "second"]
    fixes = 'layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit='
    assert all(fixes in reason for _, reason in recording.missing)


def test_more_than_the_disk_has_is_not_kept(monkeypatch):
    monkeypatch.setattr(offloading.OnDisk, "free", property(lambda _: 1000))
    with record(model := Fused(), offload="disk") as recording:
        model(sequence())
    assert not len(recording)
    [(_, why), *_] = recording.missing
    assert re.search(
        r"enough free disk space in .*, got 1.0 kB for a call of 20.5 kB, after 0 bytes for others\. Fix: free disk", why
    )
    assert 'keep="summary"' in why
    assert 'offload="disk"' not in why
    assert "limit=" not in why


def test_the_size_is_that_of_the_copies_and_is_printed():
    with record(model := Fused()) as recording:
        model(sequence())
    assert recording.bytes == 2 * 4 * (2 * 4 * 20 * 8) * 4  # calls · tensors · (B · H · N · D) · bytes
    assert "41.0 kB are recorded" in str(recording).splitlines()
    assert sum(each.bytes for each in recording.passes) == recording.bytes


def test_a_step_of_a_growing_cache_counts_its_own_keys():
    class Growing(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x[:, :, -1:], x, x)

    model, x = Growing(), torch.randn(1, 1, 9, 4)
    steps = [x[:, :, :length] for length in range(1, 10)]
    with record(model, limit=400) as recording:
        list(map(model, steps))
    assert [len(each) for each in recording.passes] == [1] * 6 + [0] * 3
    ((_, reason),) = recording.missing  # said once, and not for every step
    assert reason.startswith("Expected a recording of at most 400 bytes, got 64 bytes for this call and 384 bytes for others")
    assert recording.bytes == 6 * 4 * 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "all"}, r'keep="qkv" or keep="summary", got keep=\'all\''),
        ({"offload": "tape"}, r'offload="cpu" or offload="disk", got offload=\'tape\''),
        ({"limit": "4 GB"}, "limit to be a whole number of at least 1, got '4 GB'"),
    ],
)
def test_other_options_are_refused(options, message):
    with pytest.raises(InputError, match=message), record(Fused(), **options):
        pass


def test_tokens_may_be_given_before_the_run_or_after_it():
    before, after = list("abcde"), [list("fghij")] * 2
    with record(model := Fused(), key_tokens=before) as recording:
        model(sequence(5))
    assert recording.tokens == before
    assert (recording[0, 0].query_tokens, recording[0, 0].key_tokens) == ([before], [before])
    recording.tokens = after
    assert recording[1, 3].key_tokens == after
    assert recording.passes[0].tokens == after


def test_an_encoder_decoder_has_its_own_tokens_on_each_side():
    model = nn.Transformer(32, 4, 1, 1, 32, batch_first=True).eval()
    source, target = list("quelle"), list("ziel")
    with record(model, key_tokens=source, query_tokens=target) as recording:
        model(sequence(6), sequence(4))
    sides = [(recording[call, 0].query_tokens, recording[call, 0].key_tokens) for call in range(3)]
    assert sides == [([source], [source]), ([target], [target]), ([target], [source])]


def test_equally_long_sides_are_told_apart_by_the_layers_name():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = {
                name: nn.MultiheadAttention(32, 4, batch_first=True) for name in ("encoder", "decoder", "cross_attention")
            }
            self.layers = nn.ModuleDict(layers)

        def forward(self, x):
            return [layer(x, x, x) for layer in self.layers.values()]

    source, target = list("abcd"), list("ABCD")
    with record(model := Model(), key_tokens=source, query_tokens=target) as recording:
        model(sequence(4))
    sides = [(recording[call, 0].query_tokens, recording[call, 0].key_tokens) for call in range(3)]
    assert sides == [([source], [source]), ([target], [target]), ([target], [source])]


def test_queries_that_continue_a_cache_have_the_last_tokens():
    class Continuing(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x[:, :, -2:], x, x)

    with record(model := Continuing(), key_tokens=list("abcde")) as recording:
        model(torch.randn(1, 1, 5, 4))
    assert recording[0, 0].query_tokens == [["d", "e"]]


def test_tokens_that_fit_no_side_are_an_error_with_both_numbers():
    with record(model := Fused(), key_tokens=[list("abc")] * 3) as recording:
        model(sequence(3))
    message = r"got \[3, 3, 3\] tokens for 3 keys of first in each of 2 sequences"
    with pytest.raises(InputError, match=message):
        _ = recording[0, 0].key_tokens
    recording.tokens = list("ab")
    with pytest.raises(InputError, match=r"got \[2\] tokens for 3 keys of first"):
        _ = recording[0, 0].query_tokens


@pytest.mark.parametrize("inputs", ["abc", [1, 2], [["a"], "b"]])
def test_what_is_no_list_of_strings_is_refused(inputs):
    with (
        pytest.raises(KindError, match="key_tokens as a list of strings, one for each position"),
        record(Fused(), key_tokens=inputs),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"layers": "0"},
            r"layers as a list of numbers of calls or names of modules, at least one, got layers='0'\. .*layers=\[…\]",
        ),
        ({"layers": 3}, "got layers=3"),
        ({"layers": []}, r"got layers=\[\]"),
        ({"heads": 1}, r"heads as a list of numbers of heads, at least one, got heads=1\. .*heads=\[…\]"),
        ({"heads": []}, r"got heads=\[\]"),
        ({"heads": ["1"]}, r"got heads=\['1'\]"),
    ],
)
def test_what_is_no_list_of_layers_or_heads_is_refused(options, message):
    with pytest.raises(KindError, match=message), record(torch.nn.Identity(), **options):
        pass
