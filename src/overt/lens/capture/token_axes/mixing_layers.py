"""The layers of a model that mix tokens without attention, by module names that a reader knows."""

from collections import Counter

from torch import nn

from overt.lens.capture.token_axes.labels import LOOP, Mixing


class MixingLayers:
    """The modules that attended, and the modules that mixed tokens in another way."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.modules: dict[str, nn.Module] = {name or type(model).__name__: module for name, module in model.named_modules()}
        self.attending: dict[str, None] = {}
        self.ways: dict[str, Counter[Mixing]] = {}

    def begin_pass(self) -> None:
        """Begin a pass: a recurrence over tokens repeats within a pass, so a step per generated token is no recurrence."""
        for ways in self.ways.values():
            if ways[LOOP] == 1:
                del ways[LOOP]

    def attends(self, name: str) -> None:
        """Note attention in this module, recorded or not."""
        self.attending.setdefault(name)

    def mixes(self, name: str, way: Mixing) -> None:
        """Note a function that mixed tokens in this module."""
        self.ways.setdefault(name, Counter())[way] += 1

    def explained(self, name: str, way: Mixing) -> None:
        """Remove the note of a function that is named elsewhere."""
        self.ways[name][way] -= 1

    def others(self) -> list[tuple[str, str]]:
        """Each layer that mixes tokens without attention, once, with a sentence on how.

        In a module with attention, mixing that looks like a step of attention does not count.
        """
        layers: dict[str, dict[str, None]] = {}
        for name, ways in self.ways.items():
            for way, count in ways.items():
                if (way.like_attention and name in self.attending) or (way.repeat and count < 2) or count < 1:
                    continue
                layers.setdefault(self._layer(name), {}).setdefault(way.says)
        outer = [name for name in layers if not any(name.startswith(f"{other}.") for other in layers)]
        inside = {name: [layer for layer in layers if layer == name or layer.startswith(f"{name}.")] for name in outer}
        return [(name, self._sentence(name, [says for item in inside[name] for says in layers[item]])) for name in outer]

    def _layer(self, name: str) -> str:
        """The module of the model's own code around a torch layer, unless it has attention; else the layer itself."""
        above = name
        while _is_torch_module(self.modules[above]) and "." in above:
            above = above.rpartition(".")[0]
        attends = any(layer == above or layer.startswith(f"{above}.") for layer in self.attending)
        return name if attends or _is_torch_module(self.modules[above]) else above

    def _sentence(self, name: str, ways: list[str]) -> str:
        said = list(dict.fromkeys(ways))
        several = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
        return f"{type(self.modules[name]).__name__} mixes tokens by {several}: no attention weights are recorded"


def _is_torch_module(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")
