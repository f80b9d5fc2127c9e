"""Every kind of model is recorded, or refused in a sentence."""

import copy
import math
import os
import subprocess
import sys
import threading
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from overt import attend
from overt.attention import mechanism
from overt.errors import InputError, KindError
from overt.lens import record
from overt.lens.capture.recordable import recordable


class Attending(nn.Module):
    """Four heads over torch's fused function."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.project, self.dropout = nn.Linear(16, 48), dropout

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).transpose(1, 3).unbind(2)  # (B, H, N, D) each
        dropout = self.dropout if self.training else 0.0
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(2)


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def sequence():
    return torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))


def stack():
    return nn.Sequential(Attending(), Attending())


def recorded(model, x, within=nullcontext):
    """The recording of a run whose outputs are those of a plain one, to the bit."""
    with within():
        plain = model(x)
        with record(model) as recording:
            output = model(x)
    assert torch.equal(output, plain)
    return recording


def by_hand(model, x, head):
    """Weights of one head of `Attending`."""
    q, k, _ = model.project(x).unflatten(-1, (3, 4, 4)).transpose(1, 3).unbind(2)
    return (q[:, head] @ k[:, head].mT / 2).softmax(-1)


KINDS = {
    "evaluation": (lambda: stack().eval(), nullcontext, torch.float32),
    "training": (stack, nullcontext, torch.float32),
    "without gradients": (stack, torch.no_grad, torch.float32),
    "inference mode": (stack, torch.inference_mode, torch.float32),
    "float64": (lambda: stack().double(), nullcontext, torch.float64),
    "float16": (lambda: stack().half(), nullcontext, torch.float16),
    "bfloat16": (lambda: stack().bfloat16(), nullcontext, torch.bfloat16),
    "frozen": (lambda: stack().requires_grad_(False), nullcontext, torch.float32),
    "copied": (lambda: copy.deepcopy(stack()), nullcontext, torch.float32),
    "traced by fx": (lambda: torch.fx.symbolic_trace(stack()), nullcontext, torch.float32),
}


@pytest.mark.parametrize(("make", "within", "dtype"), KINDS.values(), ids=KINDS)
def test_a_model_is_recorded_as_it_runs(make, within, dtype):
    recording = recorded(make(), sequence().to(dtype), within)
    assert len(recording) == 2
    assert recording[1, 3].query.dtype == dtype
    assert recording.verify().holds


def test_dropout_in_training_is_noted_and_weights_are_those_before_it():
    model = Attending(dropout=0.5).train()
    torch.manual_seed(0)
    plain = model(sequence())
    torch.manual_seed(0)
    with record(model) as recording:
        assert torch.equal(model(sequence()), plain)
    torch.testing.assert_close(recording[0, 2].weights(), by_hand(model, sequence(), 2).detach())
    verified = recording.verify()
    assert math.isnan(verified.difference)
    assert "dropout 0.5 was drawn at random" in str(verified)


def test_autocast_is_recorded_in_its_own_precision():
    recording = recorded(stack(), sequence(), lambda: torch.autocast("cpu", torch.bfloat16))
    assert recording[0, 1].query.dtype == torch.bfloat16
    assert recording.verify().holds


def test_layers_that_share_their_parameters_are_told_apart_by_their_calls():
    shared = Attending()
    model = nn.Sequential(shared, shared)
    recording = recorded(model, sequence())
    assert recording.layers == ["0", "0"]
    torch.testing.assert_close(recording[1, 2].weights(), by_hand(shared, shared(sequence()), 2).detach())


def test_modules_with_one_parameter_in_two_places_keep_their_names():
    model = stack()
    model[1].project.weight = model[0].project.weight
    assert recorded(model, sequence()).layers == ["0", "1"]


def test_data_parallel_without_devices_has_the_layers_of_its_model():
    model = stack()
    recording = recorded(nn.DataParallel(model), sequence())
    assert recording.layers == ["0", "1"]
    assert repr(recording).startswith("<recording of Sequential")


def test_data_parallel_on_several_devices_is_refused():
    model = nn.DataParallel(stack())
    model.device_ids = [0, 1]
    message = (
        r"a copy in a thread for each device.*got DataParallel on 2 devices.*record and run the model itself: model.module"
    )
    with pytest.raises(KindError, match=message):
        recordable(model)


DISTRIBUTED = """
import sys, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from overt.lens import record

distributed.init_process_group("gloo", store=distributed.FileStore(sys.argv[1], 1), rank=0, world_size=1)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2)
wrapped, x = DistributedDataParallel(model), torch.randn(2, 5, 16)
plain = wrapped(x)
plain.sum().backward()
before = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
with record(wrapped) as recording:
    output = wrapped(x)
output.sum().backward()
same = [torch.equal(output, plain), *(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before))]
print(recording.layers, len(recording.passes), recording.verify().holds, all(same))
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_distributed_data_parallel_has_the_layers_of_its_model(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", "-c", DISTRIBUTED, tmp_path / "store"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=120).stdout
    assert result == "['layers.0.self_attn', 'layers.1.self_attn'] 1 True True\n"


def test_a_wrapper_inside_a_model_is_part_of_the_names():
    assert recorded(nn.Sequential(nn.DataParallel(Attending())), sequence()).layers == ["0.module"]


@pytest.mark.parametrize("make", [lambda: stack().eval(), lambda: nn.Sequential(Multi()).eval()], ids=["fused", "multi-head"])
def test_linear_layers_quantised_on_the_fly_are_recorded(make):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(torch.ao.quantization|quantized tensor)")
        model = torch.ao.quantization.quantize_dynamic(make(), {nn.Linear}, dtype=torch.qint8)
    recording = recorded(model, sequence())
    assert recording.missing == []
    assert recording.verify().holds


def test_the_quantisable_multi_head_attention_is_recorded():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.ao")
        attention = torch.ao.nn.quantizable.MultiheadAttention(16, 4, batch_first=True).eval()
    x = sequence()
    with record(attention) as recording:
        output, weights = attention(x, x, x, average_attn_weights=False)
    assert torch.equal(output, attention(x, x, x)[0])
    for head in range(4):
        torch.testing.assert_close(recording[0, head].weights(), weights[:, head].detach(), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:There is a performance drop.*batching rule:UserWarning")
@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_transforms_are_refused_in_a_sentence(transform):
    model, x = Attending(), sequence()
    parameters = dict(model.named_parameters())

    def loss(inputs):
        return torch.func.functional_call(model, inputs, (x,)).sum()

    with record(model) as recording:
        if transform == "vmap":
            torch.vmap(lambda each: model(each[None])[0])(x)
        else:
            torch.func.grad(loss)(parameters)
    with pytest.raises(
        InputError, match=r"it ran under a transform of torch.func \(vmap, grad, …\), whose tensors are gone after it"
    ):
        recording.roles()


def masked(x, allowed):
    return functional.scaled_dot_product_attention(x, x, x, attn_mask=allowed)


def written_out(x, allowed):
    return (x @ x.mT).masked_fill(~allowed, -1e9).softmax(-1) @ x


class Runs(nn.Module):
    """A module that runs a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.filterwarnings("ignore:There is a performance drop.*batching rule:UserWarning")
@pytest.mark.parametrize("function", [masked, written_out])
def test_masks_under_a_transform_leave_the_run_as_it_is(function):
    model, x, allowed = Runs(function), sequence()[:, None], torch.ones(2, 5, 5).tril().bool()
    plain = torch.vmap(model)(x, allowed)
    with record(model) as recording:
        output = torch.vmap(model)(x, allowed)
    assert torch.equal(output, plain)
    assert recording.missing == [
        ("Runs", "it ran under a transform of torch.func (vmap, grad, …), whose tensors are gone after it")
    ]


@pytest.mark.parametrize("function", [masked, written_out])
def test_masks_without_numbers_leave_the_run_as_it_is(function):
    model, x = Runs(function), sequence().to("meta")
    with record(model) as recording:
        output = model(x, torch.ones(5, 5, dtype=torch.bool, device="meta"))
    assert output.shape == (2, 5, 16)
    assert recording.missing == [("Runs", "it ran on tensors without data, so there are no numbers to record")]


def test_what_runs_in_another_thread_is_said_and_counts_no_passes():
    model, x = stack(), sequence()
    with record(model) as recording:
        model(x)
        other = threading.Thread(target=model, args=(x,))
        other.start()
        other.join()
    assert (len(recording), recording.pass_count) == (2, 1)
    assert recording.missing == [
        ("Sequential", "it ran in another thread too, and a recording covers the thread in which it was opened")
    ]


def test_recordings_that_end_in_another_order_leave_nothing_behind():
    model, x = Runs(attend), sequence()
    first, second = record(model), record(model)
    first.__enter__()
    recording = second.__enter__()
    first.__exit__(None, None, None)
    model(x, x, x)
    Runs.forward(model, x, x, x)  # no module runs
    Runs.__call__(Runs(functional.scaled_dot_product_attention), x, x, x)  # another one does
    model.function = functional.scaled_dot_product_attention
    model(x, x, x)
    second.__exit__(None, None, None)
    assert [call.source for call in recording.calls] == ["overt.attend", "scaled_dot_product_attention"]
    assert mechanism.observers.get() == ()
    assert torch._C._len_torch_function_stack() == 0


def test_parameters_from_outside_are_recorded():
    model, x = Attending(), sequence()
    doubled = {name: 2 * parameter for name, parameter in model.named_parameters()}
    with record(model) as recording:
        torch.func.functional_call(model, doubled, (x,))
    torch.testing.assert_close(recording[0, 0].query, 2 * recorded(model, x)[0, 0].query)


def test_a_model_without_numbers_is_refused_in_a_sentence():
    model = stack().to("meta")
    with record(model) as recording:
        model(sequence().to("meta"))
    assert recording.missing == [(name, "it ran on tensors without data, so there are no numbers to record") for name in "01"]
    with pytest.raises(InputError, match="tensors without data"):
        recording.roles()


def test_an_exported_model_is_refused_with_the_cure():
    exported = torch.export.export(Attending().eval(), (sequence(),))
    with pytest.raises(KindError, match="a torch.nn.Module for overt.lens.record, got ExportedProgram"), record(exported):
        pass
    message = "got 0, a GraphModule of operators. Fix: record the module that it was exported from"
    with pytest.raises(KindError, match=message), record(nn.Sequential(exported.module())):
        pass


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_traced_model_is_refused_with_the_cure():
    traced = torch.jit.trace(Attending(), sequence())
    with (
        pytest.raises(KindError, match="got the model, a TopLevelTracedModule.*the module that it was scripted from"),
        record(traced),
    ):
        pass
