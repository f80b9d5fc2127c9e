"""What a model is fed, by the names of its arguments: words, pictures, sound, tables, each small and random, the same every time."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.matrix.models.small import IMAGE, PATCH

BATCH, LENGTH, TARGET, PADDED, WORDS = 2, 12, 7, 4, 100
SAMPLES, FRAMES = 1600, 64
Inputs = dict[str, Any]


def candidates(model: Any) -> Iterator[tuple[str, Inputs]]:
    """Inputs to try, the richest first, with what they are."""
    names = dict(inspect.signature(model.forward).parameters)
    words, pictures, sounds = _words(model, names), _pictures(model, names), _sounds(model, names)
    extra = _required(model, names)
    if words and pictures:
        yield "words and pictures", words | pictures | extra
        if marked := _marked(model, words, pictures, "image"):
            yield "words and pictures", marked | extra
    if words and sounds:
        for sound in sounds:
            if marked := _marked(model, words, sound, "audio"):
                yield "words and sound", marked | extra
            yield "words and sound", words | sound | extra
    if words:
        yield "words", words | extra
    if pictures:
        yield "pictures", pictures | extra
        if "grid_thw" in pictures and "pixel_values" in pictures:
            yield "pictures", pictures | {"pixel_values": _squares(pictures["pixel_values"], model.config)} | extra
        if "decoder_input_ids" in names:
            yield "pictures", pictures | _targets(names) | extra
    for sound in sounds:
        yield "sound", sound | extra
        if "decoder_input_ids" in names:
            yield "sound", sound | _targets(names) | extra
    if extra:
        yield "its own kind of input", extra


def padded(inputs: Inputs, side: str) -> Inputs:
    """The same with the second sequence padded on one side."""
    mask = torch.ones(inputs["input_ids"].shape[:2], dtype=torch.long)
    mask[1, slice(0, PADDED) if side == "left" else slice(-PADDED, None)] = 0
    return inputs | {"attention_mask": mask}


def can_be_padded(model: Any, inputs: Inputs) -> bool:
    """Whether the model takes words and a mask of padding, and no pictures or sound among them."""
    names = inspect.signature(model.forward).parameters
    modal = any(name.startswith(("pixel", "image", "input_features", "input_values", "audio")) for name in inputs)
    ids = inputs.get("input_ids")
    return ids is not None and ids.ndim == 2 and "attention_mask" in names and not modal


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _ids(length: int, seed: int = 3, words: int = WORDS) -> Tensor:
    return torch.randint(5, words, (BATCH, length), generator=_draw(seed))


def _noise(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(shape, generator=_draw(seed))


def _targets(names: dict[str, Any]) -> Inputs:
    return {"decoder_input_ids": _ids(TARGET, 5)} if "decoder_input_ids" in names else {}


def _words(model: Any, names: dict[str, Any]) -> Inputs:
    if "input_ids" not in names:
        return {}
    words = field(model.config, "vocab_size", default=WORDS)
    inputs: Inputs = {"input_ids": _ids(LENGTH, words=min(words, WORDS) if isinstance(words, int) else WORDS)} | _targets(names)
    if "bbox" in names:
        low = torch.randint(0, 50, (BATCH, LENGTH, 2), generator=_draw(6))
        inputs["bbox"] = torch.cat([low, low + 20], dim=-1)
    return inputs


def field(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these fields that the configuration, or one inside it, has."""
    inside = [config, *(value for value in vars(config).values() if hasattr(type(value), "model_type"))]
    for each in inside:
        for name in names:
            value = vars(each).get(name, getattr(type(each), "attribute_map", {}).get(name))
            value = vars(each).get(value) if isinstance(value, str) else value
            if value is not None and not hasattr(type(value), "model_type"):
                return value
    deeper = [value for each in inside[1:] for value in vars(each).values() if hasattr(type(value), "model_type")]
    return next((value for each in deeper if (value := field(each, *names)) is not None), default)


def vision(config: Any) -> Any:
    """The part of the configuration that is about pictures."""
    for name in ("vision_config", "image_config", "backbone_config", "encoder", "vision_model_config", "global_vision_config"):
        part = getattr(config, name, None)
        if part is not None and hasattr(part, "model_type"):
            return part
    return config


def _size(config: Any) -> tuple[int, int]:
    size = field(vision(config), "image_size", "img_size", "input_size", "pretrain_image_size", default=IMAGE)
    if isinstance(size, dict):
        return size["height"], size["width"]
    return (size, size) if isinstance(size, int) else tuple(size)[-2:]


def _pictures(model: Any, names: dict[str, Any]) -> Inputs:
    config = model.config
    channels = field(vision(config), "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    if {"pixel_values", "grid_thw"} <= set(names):
        patches = _patches(config, names, channels)
        inputs = {"pixel_values": patches["hidden_states"], "grid_thw": patches["grid_thw"]}
        return inputs | ({"merge_sizes": torch.ones(BATCH, dtype=torch.long)} if "merge_sizes" in names else {})
    if {"pixel_values", "image_grid_thw"} <= set(names) or {"hidden_states", "grid_thw"} <= set(names):
        return _patches(config, names, channels)
    height, width = _size(config)
    if "pixel_values" in names:
        shape = [BATCH, channels, height, width]
        if _takes_frames(model, names):
            shape.insert(1, field(config, "num_frames", "frames_per_clip", default=2))
        inputs: Inputs = {"pixel_values": _noise(*shape)}
        if "image_sizes" in names:
            inputs["image_sizes"] = torch.tensor([[height, width]] * BATCH)
        return inputs
    for name in ("pixel_values_videos", "video"):
        if name in names:
            frames = field(config, "num_frames", "frames_per_clip", default=2)
            return {name: _noise(BATCH, frames, channels, height, width)}
    return {}


def _takes_frames(model: Any, names: dict[str, Any]) -> bool:
    """Whether a clip is expected where others take a picture."""
    kind = model.config.model_type
    return not kind.endswith("_vision") and any(
        part in kind
        for part in ("timesformer", "vivit", "videomae", "xclip", "tvp", "videoprism", "idefics", "smolvlm", "llava_next_video")
    )


def _patches(config: Any, names: dict[str, Any], channels: int) -> Inputs:
    """Pictures as rows of patches with their grid, as Qwen-VL takes them."""
    part = vision(config)
    patch, frames = field(part, "patch_size", default=PATCH), field(part, "temporal_patch_size", default=1)
    grid = torch.tensor([[1, 4, 4]] * BATCH)
    rows = _noise(BATCH * 16, channels * frames * patch * patch)
    if "grid_thw" in names:
        return {"hidden_states": rows, "grid_thw": grid}
    return {"pixel_values": rows, "image_grid_thw": grid}


def _squares(rows: Tensor, config: Any) -> Tensor:
    """Patches as pictures (N, C, P, P), as some take them."""
    size = field(vision(config), "patch_size", default=PATCH)
    return rows.reshape(len(rows), -1, size, size)


# Where the number of features is written in the code alone.
BINS = {"gemma4_audio": 128, "gemma3n_audio": 128}


def _sounds(model: Any, names: dict[str, Any]) -> list[Inputs]:
    bins = field(
        model.config,
        "num_mel_bins",
        "n_mels",
        "input_feat_per_channel",
        "feature_size",
        "num_mel_channels",
        "input_dim",
        "feature_projection_input_dim",
        default=16,
    )
    bins = BINS.get(model.config.model_type, bins if isinstance(bins, int) else 16)
    tries: list[Inputs] = []
    if "input_features" in names:
        frames = field(model.config, "max_source_positions", default=0)
        lengths = dict.fromkeys([2 * frames if isinstance(frames, int) and frames else FRAMES, FRAMES])
        for length in lengths:
            tries += [{"input_features": _noise(BATCH, bins, length)}, {"input_features": _noise(BATCH, length, bins)}]
            if "feature_lens" in names:
                tries.insert(
                    0, {"input_features": _noise(bins, BATCH * length), "feature_lens": torch.tensor([length] * BATCH)}
                )
            if "is_longer" in names:
                tries.insert(
                    0, {"input_features": _noise(BATCH, 1, length, bins), "is_longer": torch.tensor([[False]] * BATCH)}
                )
            if "input_features_mask" in names:
                tries += [each | {"input_features_mask": torch.ones(BATCH, length, dtype=torch.long)} for each in tries[-2:]]
    for name in ("input_values", "audio_values"):
        if name in names:
            tries += [{name: _noise(BATCH, SAMPLES)}, {name: _noise(BATCH, 1, SAMPLES)}, {name: _noise(BATCH, FRAMES, bins)}]
            length = getattr(model.config, "max_length", None)
            if isinstance(length, int):
                tries.append({name: _noise(BATCH, length, bins)})
    return tries


def _required(model: Any, names: dict[str, Any]) -> Inputs:
    """Arguments without a default that are neither words, pictures nor sound."""
    config, inputs = model.config, {}
    width = field(config, "hidden_size", "d_model", default=64)
    for name, each in names.items():
        if name in (
            "self",
            "input_ids",
            "pixel_values",
            "input_features",
            "input_values",
            "grid_thw",
            "decoder_input_ids",
        ) or each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            continue
        if name == "hidden_states" and "grid_thw" in names:
            continue
        if name in MORE and (each.default is each.empty or name in ALWAYS_GIVEN):
            inputs[name] = MORE[name](config, width)
    return inputs


ALWAYS_GIVEN = {"past_values", "visual_feats", "visual_pos", "input_shape_ids", "inputs"}
MORE: dict[str, Callable[[Any, int], Any]] = {
    "inputs_embeds": lambda config, width: _noise(BATCH, LENGTH, width),
    "hidden_states": lambda config, width: _noise(BATCH, LENGTH, width),
    "encoder_hidden_states": lambda config, width: _noise(BATCH, LENGTH, field(config, "encoder_hidden_size", default=width), seed=8),
    "query_embeds": lambda config, width: _noise(BATCH, 6, width),
    "attention_mask": lambda config, width: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "visual_feats": lambda config, width: _noise(BATCH, 5, field(config, "visual_feat_dim", default=width)),
    "visual_pos": lambda config, width: _noise(BATCH, 5, 4),
    "past_values": lambda config, width: _series(config),
    "past_time_features": lambda config, width: _noise(BATCH, _past(config), field(config, "num_time_features", default=1)),
    "past_observed_mask": lambda config, width: torch.ones(BATCH, _past(config), dtype=torch.bool),
    "qformer_input_ids": lambda config, width: _ids(LENGTH),
    "inputs": lambda config, width: _ids(LENGTH) if config.model_type != "perceiver" else _noise(BATCH, LENGTH, config.d_model),
}  # fmt: skip


def _past(config: Any) -> int:
    lags = getattr(config, "lags_sequence", None) or [0]
    return (getattr(config, "context_length", None) or 32) + max(lags)


def _series(config: Any) -> Tensor:
    channels = getattr(config, "num_input_channels", None)
    length = _past(config)
    return _noise(BATCH, length, channels) if channels else _noise(BATCH, length)


@torch.no_grad()
def _marked(model: Any, words: Inputs, more: Inputs, modality: str) -> Inputs | None:
    """Words with as many places for the picture as it has features; None where the model has no such places."""
    token = next(
        (
            value
            for name in (f"{modality}_token_id", f"{modality}_token_index", f"{modality}_patch_id")
            if (value := field(model.config, name)) is not None
        ),
        None,
    )
    features = getattr(model, f"get_{modality}_features", None) or getattr(
        getattr(model, "model", None), f"get_{modality}_features", None
    )
    if not isinstance(token, int) or features is None:
        return None
    accepted = inspect.signature(features).parameters
    try:
        count = _rows(features(**{name: value for name, value in more.items() if name in accepted}))
    except Exception:  # whatever a model of someone else's raises: these inputs are not for it
        return None
    if not count or count % BATCH or count // BATCH > 200:
        return None
    positions = torch.full((BATCH, count // BATCH), token)
    ids = torch.cat([words["input_ids"][:, :3], positions, words["input_ids"][:, 3:]], dim=1)
    inputs = words | more | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    names = inspect.signature(model.forward).parameters
    if "mm_token_type_ids" in names:
        inputs["mm_token_type_ids"] = (ids == token).long()
    if "token_type_ids" in names:
        inputs["token_type_ids"] = (ids == token).long()
    return inputs


def _rows(features: Any) -> int:
    if hasattr(features, "pooler_output"):
        features = features.pooler_output
    if isinstance(features, list | tuple):
        return sum(_rows(each) for each in features if each is not None)
    if not isinstance(features, Tensor):
        return 0
    return features.shape[:-1].numel()
