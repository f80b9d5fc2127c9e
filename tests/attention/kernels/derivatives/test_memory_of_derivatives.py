"""The memory of second derivatives, third ones and forward mode is linear in the length."""

import os
import subprocess
import sys

import pytest

GROWTH = """
import resource, sys, torch, overt
names, length = sys.argv[1].split("; "), int(sys.argv[2])
options = {"score": overt.Additive(torch.ones(8))} if names[0].startswith("additive") else {"mask": "causal"}

def second(x, name):
    (gradient,) = torch.autograd.grad(overt.attend(x, x, x, **options).square().sum(), x, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), x, create_graph=name.endswith("third"))[0]

def run(x, name):
    if name.endswith("hessian"):
        return torch.func.jvp(torch.func.grad(lambda x: overt.attend(x, x, x, **options).square().sum()), (x,), (x,))
    if name.endswith("third"):
        return torch.autograd.grad(second(x, name).square().sum(), x)
    return second(x, name)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

x = torch.randn(1, 2, length, 8)
for name in names:
    run(x[:, :, :300].clone().requires_grad_(), name)
before = peak()
for name in names:
    run(x.requires_grad_(), name)
print(peak() - before)
"""


def growth(names, length):
    """By how many bytes a process grows at most, by any of these derivatives."""
    command = [sys.executable, "-c", GROWTH, names, str(length)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.slow
def test_second_derivatives_of_long_inputs_grow_as_they_do():
    # The weights of two heads are 134 MB; a second derivative of theirs that is not linear holds several such tensors.
    assert growth("dot; dot, hessian", 4096) < 3e7


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize("name", ["additive", "additive, hessian", "dot, third"])
def test_derivatives_without_a_kernel_hold_a_block_at_a_time(name):
    # Weights of 2,048 tokens are 34 MB; a block and what is computed of it is about as much, and its pairs' features eight times.
    short, long = growth(name, 1024), growth(name, 2048)
    assert long < 1.5e8
    assert long - short < 5e7
