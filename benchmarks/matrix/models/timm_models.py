"""One model of each of timm's modules, the smallest: "eager" with its fused attention off, "sdpa" with it on."""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.models.hugging_face import PARAMETERS, NotBuilt, randomized
from benchmarks.matrix.verdicts import Verdict, error_line, of_recording

LITTLE = ("atto", "femto", "pico", "nano", "xxs", "tiny", "_t0", "_s0", "_b0", "_m0", "xs", "_small", "_s", "18")
TRIED = 6
LARGE = 512


def names() -> list[str]:
    """Every module of models."""
    import timm

    return timm.list_modules()


def smallest(module: str) -> str:
    """The model of a module with the fewest parameters, among those whose names say that they are little."""
    import timm

    models = timm.list_models(module=module)
    if not models:
        raise NotBuilt("it has no models")
    models.sort(key=lambda name: (next((index for index, word in enumerate(LITTLE) if word in name), len(LITTLE)), len(name)))
    sizes: dict[str, int] = {}
    for name in models[:TRIED]:
        try:
            with torch.device("meta"):
                sizes[name] = _size(create(name))
        except Exception:  # a model that cannot be made without memory is made with some
            sizes[name] = _size(create(name))
    name = min(sizes, key=lambda each: sizes[each])
    if sizes[name] > PARAMETERS:
        raise NotBuilt(f"its smallest model has {sizes[name]:,} parameters")
    return name


def create(name: str) -> nn.Module:
    """The model with two blocks, or for a smaller picture where its own is large, where it can be had so; else as it is."""
    import timm

    large = max(timm.get_pretrained_cfg(name).input_size) > LARGE
    for options in ({"depth": 2}, {"img_size": LARGE // 2} if large else {}, {}):
        try:
            return timm.create_model(name, **options)
        except (TypeError, AssertionError, RuntimeError, IndexError, ValueError):
            continue
    raise NotBuilt(f"{name} cannot be made")


def _size(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def run_all(module: str) -> dict[str, Any]:
    """What is said of recording it on both paths."""
    from timm.layers import set_fused_attn

    name = smallest(module)
    ways: dict[str, Verdict] = {}
    for way, fused in (("recording eager", False), ("recording sdpa", True)):
        set_fused_attn(fused)
        model, picture = build(name)
        ways[way] = of_recording(model, lambda each, picture=picture: run(each, picture))
    return {"class": name, "kind": "pictures", "parameters": _size(model)} | {
        way: verdict.plain() for way, verdict in ways.items()
    }


def build(name: str) -> tuple[nn.Module, Tensor]:
    """The model and a picture of its size. Raises NotBuilt where it does not run."""
    torch.manual_seed(0)
    try:
        model = randomized(create(name)).eval()
        channels, *size = model.default_cfg["input_size"]
        if max(size) > LARGE:
            size = [LARGE // 2, LARGE // 2]
        picture = torch.randn(1, channels, *size, generator=torch.Generator().manual_seed(0))
        run(model, picture)
    except Exception as error:  # whatever the library raises
        raise NotBuilt(f"{name}: {error_line(error)}") from error
    return model, picture


def run(model: nn.Module, picture: Tensor) -> dict[str, Tensor]:
    """Its scores."""
    torch.manual_seed(1)
    return {"output": model(picture.clone())}
