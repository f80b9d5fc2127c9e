"""Small random models with linear token mixers, and what every recording of one has to keep."""

import functools

import torch

import overt
from overt.lens.linear.captured import CapturedMixer

BY_NAME = {
    "Qwen3Next": {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "num_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}
COMMON = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@functools.cache
def model(name: str):
    """A small causal language model of this family, whose mixers write and forget enough to be seen."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**COMMON, **BY_NAME[name])
    made = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
    return made


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(2, 60, (batch, length), generator=torch.Generator().manual_seed(length))


def recorded(made, *args, **kwargs):
    """The recording of a run, and its output, which is the one without a recording to the bit."""
    with torch.no_grad():
        plain = made(*args, **kwargs)
        with overt.lens.record(made) as recording:
            output = made(*args, **kwargs)
    assert torch.equal(plain.logits, output.logits)
    return recording, output


def mixers(recording) -> list[CapturedMixer]:
    return [call for call in recording.calls if isinstance(call, CapturedMixer)]


def apart(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    return float((left - right).abs().max() / right.abs().max())
