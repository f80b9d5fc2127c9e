"""The page's facts that need the model itself: the norms of values after W_O, and the recipe of a layer."""

from typing import Any

from torch import Tensor, nn

from overt.layers import Contextual, CrossAttention, SelfAttention
from overt.lens.capture.recordable import required_model
from overt.lens.head import Head
from overt.lens.statistics.output_norms import output_norms

WITHOUT = "the page was made without the model, which holds W_O: page(…, model=model)"


def norms_and_recipe(head: Head, model: nn.Module | None) -> tuple[Tensor | None, dict[str, Any]]:
    """The norms ‖v_j W_O‖ (B, K) or None, and for the page's header the reason if they are unknown, and the layer's recipe.

    The recipe is "hidden" for a [h, c] layer, whose output is joined to its input, "states" for a layer whose values are the states
    themselves, and None for any other.

    >>> import torch, overt
    >>> layer = Contextual(nn.GRU(4, 6, batch_first=True), "additive")
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 4))
    >>> norms_and_recipe(recording[0, 0], layer)[1]["recipe"]
    'hidden'
    """
    if model is None:
        return None, {"outWhy": WITHOUT, "recipe": None}
    result = output_norms(head, required_model(model))
    return result.norms, {"outWhy": result.reason, "recipe": layer_recipe(head.layer, model)}


def layer_recipe(layer: str, model: nn.Module) -> str | None:
    """The recipe that the module of this name follows, judged by its class.

    >>> layer_recipe("Linear", nn.Linear(2, 2)) is None
    True
    """
    known = {name or type(model).__name__: module for name, module in model.named_modules()}
    parent, module = known.get(layer.rpartition(".")[0] or type(model).__name__), known.get(layer)
    if isinstance(parent, Contextual) or isinstance(module, Contextual):
        return "hidden"
    return "states" if isinstance(module, SelfAttention | CrossAttention) else None
