"""Small random models with linear token mixers, and what every recording of one has to keep."""

import functools

import torch

import overt
from overt.lens.linear.captured import CapturedMixer

COMMON = {"vocab_size": 60, "hidden_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
DECODER = {"num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
DELTA = {
    **HYBRID,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
BY_NAME = {
    "Qwen3Next": {**DECODER, **DELTA, **EXPERTS},
    "OlmoHybrid": {**DECODER, **DELTA, "linear_num_key_heads": 4},
    "KimiLinear": {
        **DECODER,
        "num_key_value_heads": 4,
        **HYBRID,
        "linear_num_heads": 2,
        "linear_head_dim": 8,
        "num_experts": 2,
        "num_experts_per_token": 2,
        "moe_intermediate_size": 16,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "q_lora_rank": None,
    },
    "MiniMax": {**DECODER, **HYBRID, "num_local_experts": 2, "block_size": 16},
    "xLSTM": {"hidden_size": 128, "num_hidden_layers": 2, "num_blocks": 2, "num_heads": 2, "chunk_size": 16},
    "Rwkv": {"num_hidden_layers": 2, "attention_hidden_size": 32},
    "RecurrentGemma": {
        **DECODER,
        "lru_width": 32,
        "block_types": ["recurrent", "attention"],
    },
}
STATE_SPACES = {
    "Mamba": {"num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4},
    "FalconH1": {
        **DECODER,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_n_groups": 2,
        "mamba_chunk_size": 4,
        "mamba_rms_norm": False,
    },
}
MIXERS = {"Qwen3Next": 1, "OlmoHybrid": 1, "KimiLinear": 1, "MiniMax": 1, "xLSTM": 2, "Rwkv": 2, "RecurrentGemma": 1}


@functools.cache
def model(name: str):
    """A small causal language model of this family, whose mixers write and forget enough to be seen."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**COMMON | (BY_NAME | STATE_SPACES)[name])
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
    calls = (call.opened() for call in recording.calls)
    return [call for call in calls if isinstance(call, CapturedMixer)]


def apart(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    return float((left - right).abs().max() / right.abs().max())
