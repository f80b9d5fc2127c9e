"""What each process of test_sharded_models.py runs: a Hugging Face model whose parameters are spread over processes, recorded."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

import overt

TOKENS = torch.arange(12)[None]
SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2)).eval()


def recorded(model):
    with torch.no_grad(), overt.lens.record(model) as recording:
        logits = model(TOKENS).logits
    return recording, logits


def fully_sharded(mesh):
    sharded = model()
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(sharded, mesh=mesh)


def tensor_parallel(mesh):
    plan = {}
    for layer in (f"model.layers.{index}." for index in range(2)):
        plan |= {f"{layer}self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
        plan |= {f"{layer}self_attn.o_proj": RowwiseParallel(), f"{layer}mlp.down_proj": RowwiseParallel()}
        plan |= {f"{layer}mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    return parallelize_module(model(), mesh, plan)


def sequence_parallel(mesh):
    """Between attention and feed-forward layers each process has a part of the sequence; inside attention, some heads of all of it."""
    along, whole = Shard(1), Replicate()
    apart = {"output_layouts": along, "use_local_output": False}
    plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, **apart),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=along, output_layouts=whole),
    }
    for layer in (f"model.layers.{index}." for index in range(2)):
        plan |= {f"{layer}{norm}_layernorm": SequenceParallel() for norm in ("input", "post_attention")}
        plan[f"{layer}self_attn"] = PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": along}, desired_input_kwarg_layouts={"hidden_states": whole}
        )
        plan[f"{layer}mlp"] = PrepareModuleInput(input_layouts=(along,), desired_input_layouts=(whole,))
        plan |= {f"{layer}self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
        plan |= {f"{layer}mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
        plan |= {f"{layer}self_attn.o_proj": RowwiseParallel(**apart), f"{layer}mlp.down_proj": RowwiseParallel(**apart)}
    return parallelize_module(model(), mesh, plan)


class Attends(torch.nn.Module):
    def forward(self, x):
        return overt.attend(x, x, x)


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    whole, expected = recorded(model())
    mine = range(2 * rank, 2 * rank + 2)
    for make, heads in ((fully_sharded, range(4)), (tensor_parallel, mine), (sequence_parallel, mine)):
        recording, logits = recorded(make(mesh))
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        assert torch.allclose(logits, expected, atol=1e-5), make.__name__
        assert recording.missing == [], f"{make.__name__}: {recording.missing}"
        assert recording.verify().holds, make.__name__
        for layer in range(2):
            for number, head in enumerate(heads):
                difference = (recording[layer, number].weights() - whole[layer, head].weights()).abs().max()
                assert difference < 1e-5, f"{make.__name__}, layer {layer}, head {head}: {difference:.1e}"
    attends = Attends()
    with overt.lens.record(attends) as recording:
        attends(distribute_tensor(torch.randn(1, 4, 12, 8), mesh, [Shard(2)]))
    assert "it ran on DTensors, of which this process has a part" in recording.missing[0][1]
    Path(folder, f"{rank}.done").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), sys.argv[2])
