"""How a configuration of transformers is made small: rules by the names of its fields, and exceptions in `small.json`.

A model is to be small enough to run in milliseconds and large enough to go wrong: two to four layers, four heads of 16 features, two
key heads where the default groups them, one layer of each kind that the default has.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

WIDTH, HEADS, HEAD, KEY_HEADS, INNER, WORDS, POSITIONS = 64, 4, 16, 2, 96, 160, 128
IMAGE, PATCH = 32, 8
EXCEPTIONS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "small.json").read_text(encoding="utf-8"))

LAYERS = re.compile(
    r"(num_)?(\w+_)?(hidden_)?layers|n_layers?|(\w+_)?depth|num_blocks|(encoder|decoder|num)_(\w+_)?layers|num_layers_\w+"
)
KEYS = re.compile(r"(num_|n_)?(\w+_)?(key_value|kv)_(attention_)?heads")
# Names of whole numbers, the value that each gets where the default is larger. The first rule that matches decides.
NARROW: list[tuple[str, int]] = [
    (r"qk_rope_head_dim|rotary_dim", 8),
    (rf"{KEYS.pattern}|num_key_value_groups", KEY_HEADS),
    (r"mamba_n_heads|mamba_num_heads|n_mamba_heads", 8),
    (r"\w*heads|n_head|num_head|nhead", HEADS),
    (r"(\w+_)?head_(dim|size)|(\w+_)?dim_head|d_kv|d_head|mamba_d_head|mamba_headdim", HEAD),
    (r"(q|kv|o|hc)_?lora_rank|adapter_rank|hc_lowrank", 16),
    (r"(\w+_)?(intermediate_size|ffn_dim|mlp_dim|ffn_size|intermediate_dim|ffn_hidden_size)(_mlp)?", INNER),
    (r"(\w+_)?(inner|feedforward|feed_forward_size|d_ff)|n_inner|mlp_hidden_size", INNER),
    (r"(\w+_)?(num_experts|n_routed_experts|num_local_experts|moe_num_experts|n_experts)", 4),
    (r"(\w+_)?(num_experts_per_tok(en)?|moe_topk|moe_k|experts_per_token|top_k_experts)", 2),
    (r"n_group|topk_group|num_expert_groups?", 1),
    (r"index_topk|index_topk_blocks", 4),
    (r"mamba_d_state|state_size|ssm_state_size", 8),
    (r"time_step_rank", 4),
    (r"(\w+_)?chunk_size|mamba_chunk_size", 4),
    (r"(\w+_)?(hidden_size|hidden_dim|d_model|embed_dim|n_embd|emb_dim|embedding_size|embed_size)(_\w+)?", WIDTH),
    (r"(\w+_)?(projection_dim|embedding_dim|d_latents|hidden_channels|projection_size)(_\w+)?", WIDTH),
    (r"out_hidden_size|text_hidden_size|output_dim|pooler_output_size|dim|word_embed_proj_dim|conv_dim", WIDTH),
    (r"lru_width|entity_emb_size|upsample_groups|rel_extent", WIDTH),
]
ALWAYS: list[tuple[str, int]] = [
    (r"(\w+_)?vocab(ulary)?_size(_\w+)?|num_embeddings|n_token|n_words", WORDS),
    (r"codebook_size", 64),
    (r"(\w+_)?(max_position_embeddings|n_positions|max_(source|target|text|speech)_positions)", POSITIONS),
    (r"(\w+_)?(max_seq(uence)?_len(gth)?|n_ctx|context_length|model_max_length|max_2d_position_embeddings)", POSITIONS),
    (r"(sliding|attention|local)_window(_size)?|sliding_window_size|swa_window|attention_chunk_size", 4),
    (r"(pretrain_)?(image|img|input|input_image)_(size|resolution)", IMAGE),
    (r"(vision_|temporal_)?patch_(size|stride)", PATCH),
    (r"num_mel_bins|n_mels|num_mel_channels|input_feat_per_channel", 16),
    (r"num_queries|num_query_tokens|num_latents|num_detection_tokens|num_denoising|resampler_n_latents", 10),
    (r"num_frames|frames_per_clip|n_frames", 2),
    (r"num_image_tokens|mm_tokens_per_image|image_seq_length|tokens_per_image", 16),
    (r"block_size|local_radius|global_block_size|num_global_tokens|axial_attn_chunk_length|(lsh|local)_attn_chunk_length", 4),
    (r"first_k_dense_replace|max_window_layers|num_first_full_attention_layers|num_last_full_attention_layers", 1),
    (r"train_num_points|num_negatives|num_parallel_samples", 8),
]
DROPS = re.compile(r"\w*(dropout|drop_path|layerdrop|drop)(_rate|_prob|_ratio)?\w*|\w*_pdrop|\w*_drop")
TOKENS = re.compile(r"\w*token_(id|index)|\w+_token_ids?|image_patch_id|\w*_token_index")


def small(config: Any, narrow: bool = True, exceptions: bool = True) -> Any:
    """The same kind of configuration, small. `narrow=False` leaves widths as they are, where widths depend on each other."""
    return type(config)(**arguments(config, narrow, exceptions))


def arguments(config: Any, narrow: bool = True, exceptions: bool = True) -> dict[str, Any]:
    """What to pass to make it small: only what differs from its default."""
    fields = {name: value for name, value in vars(config).items() if not name.startswith("_") and name != "id2label"}
    layers = _layers(fields)
    plain = _defaults(config)
    changed = {
        name: value for name, value in fields.items() if not _inside(value) and (name not in plain or value != plain[name])
    }
    joined = fields.get("qk_rope_head_dim") is not None  # keys in two parts, as DeepSeek has them
    special = _SpecialTokens()
    for name, value in fields.items():
        new = _one(name, value, narrow, layers, special)
        if joined and name in ("head_dim", "qk_head_dim"):
            new = {fields["qk_rope_head_dim"]: 8}.get(value, HEAD + 8) if value else None
        if narrow and KEYS.fullmatch(name) and value == fields.get("num_attention_heads"):
            new = HEADS  # no groups
        if new is not None and new is not value and (_inside(new) or new != value):
            changed[name] = new
    changed |= _joint(config, fields)
    if exceptions:
        for name, value in EXCEPTIONS.get(config.model_type, {}).items():
            if value == "default":
                changed.pop(name, None)
            else:
                changed[name] = value
    return {name: value for name, value in changed.items() if _settable(config, name)}


def _joint(config: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields whose values depend on others': windows that divide a picture, rotary sections that come to half a head."""
    changed: dict[str, Any] = {}
    if "depths" in fields and isinstance(fields.get("window_size"), int):
        changed |= {"image_size": 128, "window_size": 4}
    rotary = fields.get("rope_parameters")
    if isinstance(rotary, dict) and _reads(config, "mrope_section"):
        section = {"mrope_section": [2, 3, 3]}
        by_kind = all(isinstance(each, dict) for each in rotary.values())
        changed["rope_parameters"] = _rotary(
            {key: section | each for key, each in rotary.items()} if by_kind else section | rotary
        )
    return changed


def _inside(value: Any) -> bool:
    """Whether it is a configuration, of a part of the model."""
    return hasattr(type(value), "model_type")


def _reads(config: Any, name: str) -> bool:
    """Whether the model's code names something that its configuration may leave out."""
    source = Path(sys.modules[type(config).__module__].__file__ or "").with_name(
        type(config).__module__.rpartition(".")[2].replace("configuration_", "modeling_") + ".py"
    )
    return source.exists() and name in source.read_text(encoding="utf-8")


def _defaults(config: Any) -> dict[str, Any]:
    """What the fields are by default; a configuration inside another may stray from that."""
    try:
        return vars(type(config)())
    except Exception:  # one that has no default
        return {}


def _settable(config: Any, name: str) -> bool:
    return not isinstance(getattr(type(config), name, None), property)


class _SpecialTokens:
    """Small numbers for special tokens, each its own, behind those of words."""

    def __init__(self):
        self.next = 130

    def take(self, name: str, old: int) -> int:
        fixed = {
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "sep_token_id": 2,
            "mask_token_id": 4,
        }
        if name in fixed:
            return fixed[name]
        self.next += 1
        return self.next


def _layers(fields: dict[str, Any]) -> dict[int, list[int]]:
    """For each default number of layers the layers that stay: one of each kind, two at least."""
    stages = {
        len(value)
        for name, value in fields.items()
        if isinstance(value, list | tuple) and re.search(r"depths|hidden_sizes|conv_dim|conv_kernel", name)
    }
    counts = {value for name, value in fields.items() if LAYERS.fullmatch(name) and type(value) is int and value > 2} - stages
    picks = {}
    for count in counts:
        lists = [
            value
            for name, value in fields.items()
            if isinstance(value, list | tuple) and len(value) == count and "type" in name
        ]
        kinds: dict[str, int] = {}
        for layer in range(count):
            kinds.setdefault(str([each[layer] for each in lists]), layer)
        chosen = sorted(kinds.values())[:4]
        picks[count] = chosen if len(chosen) > 1 else [0, count - 1]
    return picks


def _one(name: str, value: Any, narrow: bool, layers: dict[int, list[int]], special: _SpecialTokens) -> Any:
    if _inside(value):
        return small(value, narrow)
    if isinstance(value, bool) or value is None:
        return False if name == "use_pretrained_backbone" and value else None
    if isinstance(value, dict):
        return _rotary(value) if name.startswith("rope") else None
    if isinstance(value, float):
        return 0.0 if DROPS.fullmatch(name) and value > 0 else None
    if isinstance(value, int):
        return _number(name, value, narrow, layers, special)
    if isinstance(value, list | tuple) and value:
        return _list(name, value, narrow, layers)
    return None


def _rotary(value: dict) -> dict:
    """Rotary positions whose sections, of time, height and width, come to half a head."""
    new = {key: _rotary(each) if isinstance(each, dict) else each for key, each in value.items()}
    for key in ("mrope_section", "xdrope_section"):
        if key in new:
            sections = len(new[key])
            new[key] = type(new[key])([2, 3, 3] if sections == 3 else [HEAD // 2 // sections] * sections)
    return new


def _number(name: str, value: int, narrow: bool, layers: dict[int, list[int]], special: _SpecialTokens) -> int | None:
    if TOKENS.fullmatch(name):
        return None if value < 0 else special.take(name, value)
    if LAYERS.fullmatch(name):
        return len(layers[value]) if value in layers else None
    for pattern, new in ALWAYS + (NARROW if narrow else []):
        if re.fullmatch(pattern, name):
            return new if value > new else None
    return None


def _list(name: str, value: list | tuple, narrow: bool, layers: dict[int, list[int]]) -> Any:
    kind = type(value)
    if len(value) in layers and not re.search(r"size|dim|channel|stride|kernel|depth|ratio|pinpoints", name):
        return kind(value[layer] for layer in layers[len(value)])
    if not all(isinstance(each, int) for each in value):
        return None
    if re.fullmatch(r"\w*depths?|num_blocks|blocks_per_stage|num_encoder_blocks|stage_num_blocks|layer_depths", name):
        return kind(1 for _ in value)
    if re.fullmatch(r"\w*heads?(_per_stage)?", name) and narrow:
        return kind(min(1 << index + 1, each) if max(value) > HEADS else each for index, each in enumerate(value))
    if re.fullmatch(r"(pretrain_)?(image|img|input|input_image)_size", name):
        return kind(min(each, IMAGE) for each in value)
    if name == "conv_dim" and narrow:
        return kind(min(each, WIDTH) for each in value)
    if re.fullmatch(r"patch_size|patch_stride", name) and max(value) > PATCH:
        return kind(min(each, PATCH) for each in value)
    if name in ("fullatt_block_indexes", "deepstack_visual_indexes", "global_attn_indexes", "intermediate_layers_indices"):
        return kind([0, 1][: len(value)])
    return None
