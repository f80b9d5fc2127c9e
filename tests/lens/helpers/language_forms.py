"""Small language models with random weights, one of each form of a residual stream."""

import torch
import transformers

import overt

WORDS = 60
IDS = torch.tensor([[5, 9, 31, 9, 44, 12, 7]])
WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": WORDS}
GROUPED = {**WIDE, "num_key_value_heads": 2, "head_dim": 8}
# One of each form: pre-norm, learned positions and biases, parallel blocks, norms after sublayers and a bound on logits, multipliers,
# a norm after each sublayer and a prediction head that is not linear, routed experts, a hybrid, one whose stream passes its norms, an
# encoder and a decoder.
FORMS = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "n_positions": 16}),
    "gpt_neox": ("GPTNeoXForCausalLM", WIDE),
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "final_logit_softcapping": 2.0}),
    "granite": ("GraniteForCausalLM", {**GROUPED, "residual_multiplier": 0.3, "logits_scaling": 3.0, "embedding_multiplier": 2.0}),
    "bert": ("BertForMaskedLM", {**WIDE, "max_position_embeddings": 16}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
    "bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS}),
    "minimax": (
        "MiniMaxForCausalLM",
        {**GROUPED, "num_local_experts": 4, "layer_types": ["linear_attention", "full_attention"], "block_size": 4},
    ),
    "cohere": ("CohereForCausalLM", {**GROUPED, "logit_scale": 0.5}),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {
            **GROUPED,
            "layer_types": ["linear_attention", "full_attention"],
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    "t5": ("T5ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS}),
}  # fmt: skip

WITHOUT_SDPA = {"gemma2", "bloom", "t5"}


def small(form: str, dtype: torch.dtype = torch.float32):
    name, settings = FORMS[form]
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    config = kind.config_class(**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = kind._from_config(config, attn_implementation="eager" if form in WITHOUT_SDPA else "sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(0.25 * noise if parameter.ndim > 1 else parameter + 0.1 * noise)
    return model.to(dtype).eval()


def arguments(form: str) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :4]} if form == "t5" else {})


def recorded(model, inputs):
    with torch.no_grad(), overt.lens.record(model) as recording:
        output = model(**inputs)
    return recording, output.logits
