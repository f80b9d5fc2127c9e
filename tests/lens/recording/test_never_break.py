"""Whatever fails beside a model that is recorded: the model's outputs stay its own, to the bit, and the recording says what is missing."""

import copy
import errno
import io
import os
import subprocess
import sys
import warnings

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import overt
from families import FAMILIES, same
from module_hooks import global_hooks
from overt.errors import InputError
from overt.lens import ablate, captured, record
from overt.lens.analysis.editing.editor import Editor
from overt.lens.capture import adapters, hugging_face, recorder, watching
from overt.lens.capture.adapters import Catcher
from overt.lens.capture.barrier import guarded, out_of_sight, sentence
from overt.lens.capture.hugging_face import RegistryEntry
from overt.lens.capture.ranges import MaskReader
from overt.lens.capture.recordable import COMPILED
from overt.lens.capture.recorder import Recorder
from overt.lens.capture.torch_layers.fast_path import FastPath
from overt.lens.capture.torch_layers.multi_head import MultiHeadSteps
from overt.lens.capture.written_out import tracker
from overt.lens.capture.written_out.tracker import WeightedSum, WrittenOut
from overt.lens.statistics import summarized
from overt.lens.storage import offloading
from overt.lens.storage.offloading import OnDisk


class Fused(nn.Module):
    """Four heads over torch's fused function."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).transpose(1, 3).unbind(2)  # (B, H, N, D) each
        return (
            functional.scaled_dot_product_attention(q, k, v, attn_mask=x.new_ones(7, 7).tril().bool())
            .transpose(1, 2)
            .flatten(2)
        )


class Written(nn.Module):
    def forward(self, x):
        return torch.softmax((x @ x.mT).masked_fill(x.new_ones(7, 7).triu(1).bool(), -torch.inf), -1) @ x


class WithWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)[0]


class Attends(nn.Module):
    def forward(self, x):
        return overt.attend(x, x, x, mask=overt.Causal())


def sequence():
    return torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))


def all_kinds():
    """One model with every way in which attention is caught from torch."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), 1)
    return nn.Sequential(Fused(), Written(), WithWeights().train(), Attends(), encoder.eval())


def hub_model():
    """One that goes through transformers' registry, where it writes its attention out, with softcaps."""
    family = next(each for each in FAMILIES if each.name == "Gemma2")
    return family.build("eager"), family.inputs("left")


def from_torch():
    model, x = all_kinds(), sequence()
    return model, lambda: model(x)


def from_hub():
    model, inputs = hub_model()
    return model, lambda: model(**inputs)


MODELS = {"torch": from_torch, "transformers": from_hub}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def run(model, call, **options):
    """A run alone and one recorded, both without gradients, where torch takes its fast path."""
    with torch.no_grad():
        plain = call()
        before = torch.get_rng_state()
        with record(model, **options) as recording:
            output = call()
    assert torch.equal(before, torch.get_rng_state())
    assert equal(output, plain)
    assert torch._C._len_torch_function_stack() == 0
    return recording


def equal(first, second):
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else same(first, second)


def work_of(monkeypatch, change):
    """Every piece of work that the barrier runs goes through `change` first."""

    def changed(failed, work, *args):
        return guarded(failed, change(work, args), *args)

    for module in (adapters, hugging_face, watching):
        monkeypatch.setattr(module, "guarded", changed)


def name_of(work, args):
    """What a piece of work is called; the catcher's own comes as the argument of what hides it."""
    inner = args[0] if work is out_of_sight else work
    return getattr(inner, "__qualname__", None) or inner.func.__qualname__


@models
def test_every_piece_of_work_beside_a_model_may_fail(make, monkeypatch):
    model, call = make()
    names = set()
    with monkeypatch.context() as watched:
        work_of(watched, lambda work, args: (names.add(name_of(work, args)), work)[1])
        whole = run(model, call)
    assert whole.missing == []
    assert {"Catcher._watch", "Catcher._keep", "Catcher.entered", "Recorder.entered", "Recorder.keep"} <= names | {
        "Catcher._keep"
    }
    for failing in names:

        def fail(work, args, failing=failing):
            def fails(*_):
                raise RuntimeError(f"{failing} fails")

            return fails if name_of(work, args) == failing else work

        with monkeypatch.context() as failed:
            work_of(failed, fail)
            recording = run(model, call)
        reasons = [reason for _, reason in recording.missing]
        assert f"overt failed to record it, and the model was not affected: RuntimeError: {failing} fails" in reasons


ENTRIES = [
    (Catcher, "_watch"),
    (Catcher, "_fused"),
    (Catcher, "_traced"),
    (Catcher, "_multi_head_step"),
    (Catcher, "_multi_head"),
    (Catcher, "_fast"),
    (Catcher, "_keep"),
    (Catcher, "_written"),
    (Catcher, "enter"),
    (Catcher, "leave"),
    (Catcher, "entered"),
    (Catcher, "left"),
    (Recorder, "entered"),
    (Recorder, "left"),
    (Recorder, "keep"),
    (Recorder, "_wanted"),
    (Recorder, "_affordable"),
    (Recorder, "_owner"),
    (RegistryEntry, "from_arguments"),
    (RegistryEntry, "written"),
    (RegistryEntry, "notes"),
    (FastPath, "observe"),
    (MultiHeadSteps, "observe"),
    (MultiHeadSteps, "inputs_and_output"),
    (MaskReader, "read"),
    (WrittenOut, "before"),
    (WrittenOut, "observe"),
    (WeightedSum, "call"),
    (hugging_face, "_noted"),
    (adapters, "arguments"),
    (adapters, "unreadable"),
    (adapters, "overridden"),
    (recorder, "copied"),
    (recorder, "versions"),
    (recorder, "CapturedCall"),
    (recorder, "head_count"),
    (tracker, "product"),
    (captured, "detached"),
]


@pytest.mark.parametrize(("owner", "name"), ENTRIES, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.few_cases(10)
def test_every_entrance_may_fail(owner, name, monkeypatch):
    def fails(*args, **kwargs):
        raise ZeroDivisionError("nothing works")

    monkeypatch.setattr(owner, name, fails)
    recordings = [run(*make()) for make in MODELS.values()]
    assert any("ZeroDivisionError: nothing works" in reason for each in recordings for _, reason in each.missing)


def test_a_hook_that_fails_once_leaves_the_rest_recorded(monkeypatch):
    model, call = from_torch()
    whole, number = run(model, call), 0
    for failing in range(5):
        count = iter(range(100))

        def keep(self, *args, original=Recorder.keep, count=count, failing=failing, **kwargs):
            if next(count) == failing:
                raise KeyError("once")
            original(self, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(Recorder, "keep", keep)
            recording = run(model, call)
        assert recording.missing == [
            (whole.layers[failing], "overt failed to record it, and the model was not affected: KeyError: 'once'")
        ]
        assert recording.layers == [layer for number, layer in enumerate(whole.layers) if number != failing]
        number += 1
    assert number == len(whole)


@pytest.mark.parametrize("way", [{"keep": "summary"}, {"offload": "disk"}, {"keep": "summary", "offload": "disk"}])
def test_what_fails_where_it_is_kept_is_missing(way, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(offloading.import_safetensors().torch, "save_file", full)
    if "offload" not in way:
        monkeypatch.setattr(summarized, "with_masses", full)
    recording = run(*from_torch(), **way)
    assert len(recording) == 0
    assert [layer for layer, _ in recording.missing] == ["0", "1", "2.attention", "3", "4.layers.0.self_attn"]
    assert all("o space left on device" in reason for _, reason in recording.missing)


def test_a_file_that_could_not_be_written_whole_is_removed(monkeypatch):
    def half(tensors, path, metadata=None):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folders = []
    monkeypatch.setattr(offloading.import_safetensors().torch, "save_file", half)
    monkeypatch.setattr(OnDisk, "free", property(lambda store: folders.append(store.folder) or 10**9))
    with monkeypatch.context() as stays:
        stays.setattr(offloading.shutil, "rmtree", lambda *args, **kwargs: None)
        run(*from_torch(), offload="disk")
    assert list(folders[0].iterdir()) == []
    folders[0].rmdir()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_passes(error, monkeypatch):
    def ends(*args, **kwargs):
        raise error

    monkeypatch.setattr(Recorder, "keep", ends)
    model, call = from_torch()
    with pytest.raises(error), torch.no_grad(), record(model):
        call()
    assert torch._C._len_torch_function_stack() == 0
    assert not any(global_hooks())


def test_the_models_own_errors_pass_as_they_are():
    class Failing(nn.Module):
        def forward(self, x):
            functional.scaled_dot_product_attention(x, x, x)
            return functional.scaled_dot_product_attention(x, x, x[..., :3, :], attn_mask="no mask")

    model, messages = Failing(), []
    for watched in (False, True):
        with pytest.raises(TypeError) as raised, record(model) if watched else torch.no_grad() as recording:
            model(sequence())
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert (recording.layers, recording.missing) == (["Failing"], [])


def test_errors_that_a_model_catches_itself_are_its_own():
    class Recovering(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Fused(), Fused()

        def forward(self, x):
            try:
                return self.first(x[..., :3])
            except RuntimeError:
                return self.second(x)

    model, x = Recovering(), sequence()
    recording = run(model, lambda: model(x))
    assert (recording.layers, recording.missing) == (["second"], [])


def test_an_error_without_a_text_has_a_sentence():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert sentence(Mute()) == "overt failed to record it, and the model was not affected: Mute"
    assert sentence(InputError("a rule", got="this", fix="do that")) == "Expected a rule, got this. Fix: do that."


def test_sinks_of_each_token_are_recorded():
    config = transformers.AutoConfig.for_model(
        "inkling2_text",
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=60,
    )
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    ids = torch.randint(3, 60, (2, 9))
    recording = run(model, lambda: model(input_ids=ids))
    assert len(recording.layers) + len(recording.missing) >= 2
    assert recording.verify().holds


compiled_here = pytest.mark.filterwarnings("ignore")  # torch.compile's own


class Flex(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).transpose(1, 3).unbind(2)
        return torch.nn.attention.flex_attention.flex_attention(q, k, v)


@compiled_here
def test_a_module_that_calls_flex_attention_itself_runs_as_alone():
    model, x = nn.Sequential(Flex()), sequence()
    assert run(model, lambda: model(x)).missing == [("0", COMPILED)]
    with torch.compiler.set_stance("force_eager"):
        recording = run(model, lambda: model(x))
    assert recording.missing == [("0", "flex_attention scores with a function of the model's own, which is not recorded")]


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@compiled_here
@pytest.mark.parametrize("where", ["forward", "layer", "function", "disabled inside"])
def test_compiled_code_runs_as_alone_and_is_missing(where):
    model, x = nn.Sequential(Fused(), Fused()), sequence()
    if where == "forward":
        model.forward = torch.compile(model.forward, backend="aot_eager")
    elif where == "layer":
        model[1].forward = torch.compile(model[1].forward, backend="aot_eager")
    else:
        function = torch.compile(lambda x: hidden(x.softmax(-1) @ x.mT @ x), backend="aot_eager")
        hidden = torch._dynamo.disable(torch.sin) if where == "disabled inside" else torch.sin
        model[0].register_forward_hook(lambda module, args, output: function(output))
    torch._dynamo.reset()
    with torch.no_grad():
        model(x)
    before = graphs()
    recording = run(model, lambda: model(x))
    assert graphs() == before  # the recorder is nothing that torch compiles again for
    assert recording.missing == [({"forward": "Sequential", "layer": "1"}.get(where, "Sequential"), COMPILED)]
    assert [call.layer for call in recording.calls] == {"forward": [], "layer": ["0"]}.get(where, ["0", "1"])


LATE = """
import sys, torch
from overt.lens import record
from torch import nn

class Late(nn.Module):
    def forward(self, x):
        return torch.compile(lambda y: nn.functional.scaled_dot_product_attention(y, y, y), backend="eager", fullgraph=True)(x)

assert "torch._dynamo.eval_frame" not in sys.modules
model, x, before = Late(), torch.randn(2, 5, 8), torch.compile
with record(model) as recording:
    output = model(x)
assert torch.equal(output, model(x)) and torch.compile is before
print(recording.missing[0][1])
"""


@pytest.mark.slow
def test_a_compiler_that_is_imported_while_the_model_runs_is_heard_of():
    message = subprocess.run([sys.executable, "-W", "ignore", "-c", LATE], capture_output=True, text=True, check=True).stdout
    assert message == f"{COMPILED}\n"


@compiled_here
def test_a_compiled_model_that_is_run_in_place_of_the_recorded_one_is_missing():
    model, x = nn.Sequential(Fused(), Fused()), sequence()
    compiled = torch.compile(model, backend="aot_eager")
    assert run(model, lambda: compiled(x)).missing == [("Sequential", COMPILED)]
    inside = torch.compile(lambda x: model(x) + 1, backend="aot_eager")
    assert run(model, lambda: inside(x)).missing == [("Sequential", COMPILED)]


@pytest.mark.filterwarnings("error:.*global hooks on modules:UserWarning")
def test_a_compiled_module_that_its_parent_hides_is_not_warned_of_hooks():
    class Hiding(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [torch.compile(Fused(), backend="aot_eager")]

        def forward(self, x):
            return self.hidden[0](x)

    model, x = Hiding(), sequence()
    assert run(model, lambda: model(x)).missing == [("Hiding", COMPILED)]


@pytest.mark.filterwarnings("ignore")  # torch's own, of its tracer
@pytest.mark.parametrize("trace", ["jit", "fx", "make_fx", "export"])
def test_what_is_traced_while_recorded_holds_the_model_alone(trace):
    x, traced = sequence(), []
    for watched in (False, True):
        model = nn.Sequential(Written() if trace != "fx" else WithWeights(), nn.Linear(16, 16)).eval()
        with record(model) if watched else torch.no_grad(), torch.no_grad():
            if trace == "jit":
                traced.append([node.kind() for node in torch.jit.trace(model, x).inlined_graph.nodes()])
            elif trace == "fx":
                traced.append(str(torch.fx.symbolic_trace(model).graph))
            elif trace == "make_fx":
                traced.append(str(torch.fx.experimental.proxy_tensor.make_fx(model)(x).graph))
            else:
                traced.append(str(torch.export.export(model, (x,)).graph))
    assert traced[0] == traced[1]


@compiled_here
def test_scripted_functions_inside_a_model_run_as_alone():
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.mT, -1) @ x

    class Scripting(nn.Module):
        def forward(self, x):
            return scripted(x)

    model, x = Scripting(), sequence()
    run(model, lambda: model(x))


def test_copies_and_files_of_a_model_hold_nothing_of_its_recording():
    model, x = all_kinds(), sequence()
    with torch.no_grad(), record(model) as recording:
        model(x)
        other = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        other(x)
    assert len(recording) == 5
    assert recording.pass_count == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in other.modules())


class Meters(torch.Tensor):
    """A subclass that takes part in every function of torch."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_subclass_of_tensor_stays_one(need_weights):
    attention, x = nn.MultiheadAttention(16, 4, batch_first=True), sequence().as_subclass(Meters)
    with record(attention) as recording:
        output = attention(x, x, x, need_weights=need_weights)[0]
    plain = attention(x, x, x, need_weights=need_weights)[0]
    assert type(output) is type(plain) is Meters
    assert torch.equal(output, plain)
    assert recording.missing == [
        ("MultiheadAttention", "torch passes its multi-head attention to Meters as a whole, where it cannot be observed")
    ]


def test_another_mode_of_torch_gets_what_it_gets_alone():
    class Counting(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    model, x, message = all_kinds(), sequence(), []
    for watched in (False, True):
        with torch.no_grad(), Counting() as outside, record(model) if watched else Counting(), Counting() as inside:
            model(x)
        message.append((outside.names, inside.names))
    assert message[0][1] == message[1][1]


def test_what_is_computed_beside_a_model_is_hidden_from_modes_that_count():
    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    model, x, counts = all_kinds(), sequence(), []
    with torch.no_grad():
        model(x)
        for watched in (False, True):
            with record(model) if watched else torch.no_grad(), Counting() as counting:
                model(x)
            counts.append(counting.count)
    assert counts[0] == counts[1]


def test_hooks_that_replace_inputs_and_outputs_go_on_doing_so():
    model, x = all_kinds(), sequence()
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[1].register_forward_hook(lambda module, args, output: output + 1)
    assert len(run(model, lambda: model(x))) == 5


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_compute_the_same_gradients(reentrant):
    model, gradients = all_kinds(), []
    for watched in (False, True):
        x = sequence().requires_grad_()
        with record(model) if watched else torch.enable_grad() as recording:
            torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert (len(recording), recording.missing) == (5, [])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float64])
def test_other_numbers_run_as_alone(dtype):
    class Complex(nn.Module):
        def forward(self, x):
            return torch.softmax((x @ x.mH).abs(), -1).to(x.dtype) @ x

    model, x = Complex(), torch.randn(2, 7, 16, dtype=dtype)
    run(model, lambda: model(x))


def test_nested_and_wrapped_tensors_run_as_alone():
    class Nested(nn.Module):
        def forward(self, *parts):
            x = torch.nested.nested_tensor(list(parts), layout=torch.jagged)
            x = x.unflatten(-1, (4, 4)).transpose(1, 2)
            return functional.scaled_dot_product_attention(x, x, x).transpose(1, 2).to_padded_tensor(0.0)

    model, parts = Nested(), (torch.randn(3, 16), torch.randn(5, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recording = run(model, lambda: model(*parts))
    assert [layer for layer, _ in recording.missing] == ["Nested"]


def test_an_ablation_that_fails_says_so_instead_of_leaving_the_head_in(monkeypatch):
    def fails(*args, **kwargs):
        raise ZeroDivisionError("nothing works")

    model, x = all_kinds(), sequence()
    for owner, name in [
        (Catcher, "_fused"),
        (Catcher, "_watch"),
        (Recorder, "entered"),
        (Editor, "_spot"),
        (MaskReader, "read"),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fails)
            with pytest.raises(ZeroDivisionError, match="nothing works"):
                ablate(model, lambda: model(x), [("0", 1)])
    assert ablate(model, lambda: model(x), [("0", 1)]).effect > 0


@pytest.mark.filterwarnings("ignore:There is a performance drop.*batching rule:UserWarning")
def test_a_head_that_some_of_the_calls_could_not_leave_out_is_refused():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fused()

        def forward(self, x):
            return self.inner(x) + torch.vmap(self.inner)(x[None])[0]

    model, x = Sometimes(), sequence()
    with pytest.raises(InputError, match=r"scale 0 of inner H1, got it ran under a transform of torch.func"):
        ablate(model, lambda: model(x), [("inner", 1)])
