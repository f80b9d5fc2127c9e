"""A small Llama with its tokenizer, and the GGUF file of both that llama.cpp reads."""

import numpy as np
import torch

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}
SPECIAL = ["<s>", "</s>"]
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "under", "tree"]
SPELLED = [f"Ġ{word}" for word in WORDS] + WORDS  # a space before a word is a part of it
MERGES = [*dict.fromkeys((word[:stop], word[stop]) for word in SPELLED for stop in range(1, len(word)))]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def small_llama():
    """The model, whose numbers are the same for every version of torch and NumPy, and its byte-level tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = small_tokenizer()
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, **SIZES)).eval()
    draws = np.random.RandomState(0)  # its stream is frozen
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.ndim == 2:
                parameter.copy_(torch.tensor(draws.standard_normal(parameter.shape) * (1.5 if "embed" in name else 0.3)))
    return model, tokenizer


def small_tokenizer():
    """Bytes, and the pieces of a few words, as GPT-2's tokenizer has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in MERGES)]
    pieces = Tokenizer(models.BPE({name: number for number, name in enumerate(dict.fromkeys(names))}, MERGES))
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    pieces.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE)


def write_gguf(model, tokenizer, path, kind="F32"):
    """Write both as llama.cpp reads them, matrices rounded to `kind`: F32, Q8_0 or Q4_0."""
    import gguf

    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    quantized = gguf.GGMLQuantizationType[kind]
    for name, tensor in _tensors(model):
        matrix = tensor.ndim == 2
        data = gguf.quants.quantize(tensor, quantized) if matrix else tensor
        writer.add_tensor(name, data, raw_dtype=quantized if matrix else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer, tokenizer):
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types([3 if name in SPECIAL else 1 for name in names])  # control tokens, and normal ones
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def _tensors(model):
    """The parameters by their names in GGUF; rows of queries and keys in the order of llama.cpp's rotation, pairs side by side."""
    state, config = {name: each.float().numpy() for name, each in model.state_dict().items()}, model.config
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    yield "output_norm.weight", state["model.norm.weight"]
    yield "output.weight", state["lm_head.weight"]
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(config.num_hidden_layers):
        for name, matrix in names.items():
            tensor = state[f"model.layers.{layer}.{matrix}.weight"]
            if name in heads:
                rows, columns = tensor.shape
                halves = tensor.reshape(heads[name], 2, rows // heads[name] // 2, columns)
                tensor = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
            yield f"blk.{layer}.{name}.weight", tensor
