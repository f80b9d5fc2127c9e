"""The weights against a judge that is not overt: the derivative of the model's own function with respect to its values."""

import inspect

import pytest
import torch
from transformers import RecurrentGemmaConfig, xLSTMConfig
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru
from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention_cpu
from transformers.models.xlstm.modeling_xlstm import xLSTMBackend

from overt.lens.capture.mixers.families import FORMS
from overt.lens.capture.mixers.form import MixerCall
from small_mixers import apart

B, H, N, D, E = 2, 2, 19, 4, 3


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def delta_rule(function, by_channel):
    arguments = {"query": drawn(B, N, H, D), "key": drawn(B, N, H, D) + 1, "value": drawn(B, N, H, E)}
    arguments |= {"g": -drawn(B, N, H, *([D] if by_channel else [])).abs(), "beta": drawn(B, N, H).sigmoid()}
    return function, {
        **arguments,
        "initial_state": drawn(B, H, D, E),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }


def mlstm(length):
    module = xLSTMBackend(xLSTMConfig(hidden_size=16, num_heads=H, chunk_size=8))
    arguments = {"query": drawn(B, H, length, D), "key": drawn(B, H, length, D), "value": drawn(B, H, length, E)}
    gates = {"igate": 3 * drawn(B, H, length), "fgate": drawn(B, H, length) + 1}
    return module.forward, arguments | {name: each.float() for name, each in gates.items()}


def rwkv():
    arguments = {"time_decay": drawn(H), "time_first": drawn(H), "key": 2 * drawn(B, N, H), "value": drawn(B, N, H)}
    return rwkv_linear_attention_cpu, {**arguments, "return_state": True}


def linear_unit():
    module = RecurrentGemmaRglru(RecurrentGemmaConfig(hidden_size=8, lru_width=H, num_attention_heads=1))
    reset = torch.zeros(B, N, 1, dtype=torch.bool)
    reset[:, [0, 9]] = True
    gate = drawn(B, N, H).sigmoid()
    return module._rnn_scan, {"hidden_states": drawn(B, N, H), "recurrent_gate": gate, "reset": reset, "recurrent_states": None}


CASES = {
    "gated delta rule, in chunks": lambda: delta_rule(qwen.torch_chunk_gated_delta_rule, False),
    "gated delta rule, step by step": lambda: delta_rule(qwen.torch_recurrent_gated_delta_rule, False),
    "Kimi, in chunks": lambda: delta_rule(kimi.chunk_kimi_delta_attention, True),
    "Kimi, step by step": lambda: delta_rule(kimi.recurrent_kimi_delta_attention, True),
    "mLSTM, in chunks": lambda: mlstm(16),
    "mLSTM, step by step": lambda: mlstm(7),
    "RWKV-4": rwkv,
    "linear recurrent unit": linear_unit,
}


def form_of(function):
    """The form that reads a function or method, chosen as it is in a model."""
    names, parameters = set(function.__code__.co_names), inspect.signature(function).parameters.keys()
    name = function.__name__
    return next(form for form in FORMS if name in form.functions or form.is_method(name, parameters, names))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.few_cases(3)
def test_weights_are_the_derivative_of_the_models_own_function_with_respect_to_its_values(case):
    function, arguments = CASES[case]()
    single = {
        name: each.float() if torch.is_tensor(each) and each.dtype == torch.float64 else each
        for name, each in arguments.items()
    }
    defaults = {
        name: each.default for name, each in inspect.signature(function).parameters.items() if each.default is not each.empty
    }
    call = MixerCall(function.__name__, defaults | single, getattr(function, "__self__", torch.nn.Identity()))
    form = form_of(function)
    weights = form.read(call).weights()  # (B, H, N, N)
    of_values = "value" if "value" in arguments else "hidden_states"

    def output(value):
        return form.result(call, function(**{**single, of_values: value}))[0]

    derivative = torch.autograd.functional.jacobian(output, single[of_values])  # (B, H, N, E, ...)
    channels = single[of_values].ndim == 3  # values (B, N, C): each channel is a head
    for batch, head, feature in ((0, 0, 0), (1, 1, 0 if channels else E - 1)):
        mine = derivative[batch, head, :, feature, batch]
        mine = mine[..., head] if channels else mine[:, head, :, feature] if "mLSTM" in case else mine[:, :, head, feature]
        assert apart(weights[batch, head], mine) < 2e-5
