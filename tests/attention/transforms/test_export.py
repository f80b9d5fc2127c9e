"""Exported programs hold the plain formula: torch.export and ONNX give attend's numbers without overt."""

import numpy as np
import pytest
import torch

import overt


class Attending(torch.nn.Module):
    """One call of attend, with a learned weight."""

    def __init__(self, options):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, generator=torch.Generator().manual_seed(1)))
        self.options = options

    def forward(self, query, key, value):
        return overt.attend(query, key, value, **self.options(self.weight))


CALLS = {
    "dot": lambda weight: {},
    "causal": lambda weight: {"mask": overt.Causal()},
    "capped, in a window": lambda weight: {"score": overt.Dot(softcap=2.0), "mask": overt.Causal() & overt.Window(3, 0)},
    "biased": lambda weight: {"bias": overt.ALiBi(torch.ones(3)), "normalizer": overt.Softmax(sink=torch.zeros(3))},
    "additive": lambda weight: {"score": overt.Additive(weight), "mask": overt.Lengths(6)},
}


def inputs():
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, 9, 4, generator=draw) for _ in range(3))


@pytest.mark.parametrize("name", CALLS)
def test_an_exported_program_is_made_of_torchs_own_operators(name):
    module, arguments = Attending(CALLS[name]).eval(), inputs()
    program = torch.export.export(module, arguments, strict=False)
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not {target for target in called if target.startswith("overt")}
    torch.testing.assert_close(program.module()(*arguments), module(*arguments))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # the exporter's own
@pytest.mark.parametrize("name", CALLS)
def test_an_onnx_file_gives_the_same_numbers(name, tmp_path):
    module, arguments = Attending(CALLS[name]).eval(), inputs()
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "attending.onnx"
    torch.onnx.export(module, arguments, path, input_names=["query", "key", "value"], verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value_info.name for value_info in session.get_inputs()]
    (result,) = session.run(None, {each: tensor.numpy() for each, tensor in zip(names, arguments, strict=True)})
    np.testing.assert_allclose(result, module(*arguments).detach().numpy(), atol=1e-5, rtol=1e-5)
