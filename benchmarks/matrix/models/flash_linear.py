"""Models of flash-linear-attention, whose mixers are kernels of Triton: run on the processor by Triton's own interpreter.

Each way is one of its kernels' two forms: step by step, as for short texts, and in chunks. "eager" in the table is the first, "sdpa"
the second. The interpreter tunes nothing: each kernel runs in the first of its shapes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.models.hugging_face import NotBuilt, randomized
from benchmarks.matrix.verdicts import Verdict, error_line, of_recording

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "num_heads": 2, "head_dim": 16}
UNFUSED: dict[str, Any] = {"fuse_cross_entropy": False, "fuse_norm": False, "fuse_swiglu": False, "use_short_conv": True}
NAMES = (
    *("GLA", "RetNet", "RWKV6", "RWKV7", "HGRN", "HGRN2", "LinearAttention", "DeltaNet", "GatedDeltaNet", "KDA"),
    *("GatedDeltaProduct", "Comba", "GSA", "ForgettingTransformer", "Mamba", "Mamba2"),
)
SHORT, LONG = 11, 67  # chunks begin behind 64 tokens


def names() -> list[str]:
    """Every case."""
    return list(NAMES)


def build(name: str) -> nn.Module:
    """A small model."""
    import inspect

    from fla import models

    config = getattr(models, f"{name}Config")
    special = {"HGRN2": {"expand_ratio": 16, "num_heads": None}, "Mamba2": {"num_heads": 4, "state_size": 16}}
    options = SMALL | UNFUSED | special.get(name, {})
    known = inspect.signature(config).parameters
    return getattr(models, f"{name}ForCausalLM")(config(**{key: value for key, value in options.items() if key in known}))


def run_all(name: str) -> dict[str, Any]:
    """What is said of recording it, step by step and in chunks."""
    interpreted()
    ways = {"recording eager": one(name, SHORT), "recording sdpa": one(name, LONG)}
    return {"class": name, "kind": "words"} | {way: verdict.plain() for way, verdict in ways.items()}


def one(name: str, length: int) -> Verdict:
    """With a text of one length. Raises NotBuilt where it does not run step by step."""
    torch.manual_seed(0)
    ids = torch.randint(2, 60, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.compiler.set_stance("force_eager"):
        try:
            model = randomized(build(name)).eval()
            run(model, ids)
        except Exception as error:  # whatever the library and the interpreter raise
            if length == LONG:
                return Verdict("refused", f"Triton's interpreter does not run its chunks: {error_line(error, 120)}")
            raise NotBuilt(error_line(error)) from error
        return of_recording(model, lambda each: run(each, ids))


def run(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """Its output."""
    return {"output": model(ids, use_cache=False).logits}


def interpreted() -> None:
    """Let Triton's interpreter take the first shape of each kernel in this process, as it has no device to compare them on."""
    from triton.runtime import autotuner

    made = autotuner.Autotuner.__init__

    def one_shape(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.configs = self.configs[:1]

    autotuner.Autotuner.__init__ = one_shape
