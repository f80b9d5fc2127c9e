"""Replace torch's multi-head attention inside a model by overt's; calls, returns and parameters stay the same."""

import warnings
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn import functional

from overt.attention import check
from overt.attention.kernels.blocked import blocked
from overt.attention.kernels.call import Call
from overt.attention.mechanism import attend, formula
from overt.errors import InputError, KindError
from overt.layers.parts import checks
from overt.layers.parts.extra_keys import bias_with_extra, mask_with_extra, with_extra
from overt.layers.parts.heads import join_heads, split_heads, with_batch
from overt.layers.torch_interop.masks import read_masks

NAME = "torch.nn.MultiheadAttention"
Model = TypeVar("Model", bound=nn.Module)


def replace_multihead_attention(model: Model) -> Model:
    """Make every `torch.nn.MultiheadAttention` in a model compute with `overt.attend`; the model is changed in place, and returned.

    Parameters, their names, attributes, hooks and shared modules stay the same objects, so state dicts, optimizers and libraries that
    change the layer (adapters, pruning, parametrizations) work as before; calls, returns and masks have torch's meaning
    (`ReplacedAttention` lists what differs). A hook switches off the fast path of torch's Transformer layers, and nested tensors are
    off too. With `need_weights=False` and without an n × n mask, memory is linear in the length.

    A subclass of `MultiheadAttention` may compute something else, so it is not replaced, and a warning names it. Raises InputError
    if there is nothing to replace.

    >>> import torch
    >>> layer = nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()
    >>> x = torch.randn(2, 5, 16)
    >>> before = layer(x)
    >>> torch.allclose(replace_multihead_attention(layer)(x), before, atol=1e-5)
    True
    """
    if not isinstance(model, nn.Module):
        raise KindError(
            "a torch.nn.Module in replace_multihead_attention",
            got=type(model).__name__,
            fix="pass the model that holds the layers",
        )
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)}
    subclasses = {
        name: module for name, module in attentions.items() if type(module) not in (nn.MultiheadAttention, ReplacedAttention)
    }
    names = ", ".join(f"{name or 'the model'} ({type(module).__name__})" for name, module in subclasses.items())
    if len(attentions) == len(subclasses):
        raise InputError(
            f"a model that contains {NAME}",
            got=f"{type(model).__name__} with subclasses of it: {names}" if names else f"{type(model).__name__} without any",
            fix="pass a model that is built of it; layers of overt need no replacing",
        )
    if names:
        warnings.warn(
            f"replace_multihead_attention does not replace {names}: a subclass may compute something else", stacklevel=2
        )
    for name in attentions.keys() - subclasses.keys():
        attentions[name].__class__ = ReplacedAttention
        _keep_off_the_fast_path(attentions[name])
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoder) and any(isinstance(inner, ReplacedAttention) for inner in part.modules()):
            part.use_nested_tensor = False
        if isinstance(part, nn.TransformerEncoderLayer) and isinstance(part.self_attn, ReplacedAttention):
            part.activation_relu_or_gelu = 0  # so that an encoder built from this layer packs nothing into nested tensors
    return model


def _keep_off_the_fast_path(layer: nn.MultiheadAttention) -> None:
    """Give the layer a hook: torch's Transformer layers compute attention themselves only if no module inside has a hook."""
    if _no_fast_path not in layer._forward_pre_hooks.values():
        layer.register_forward_pre_hook(_no_fast_path)


def _no_fast_path(layer: nn.Module, inputs: Any) -> None:
    """Change nothing."""


class ReplacedAttention(nn.MultiheadAttention):
    """A `torch.nn.MultiheadAttention` that computes with `overt.attend`; `replace_multihead_attention` makes them.

    Call, return and masks are torch's: True in a bool mask excludes, numbers are added. Differences: for a query without visible
    keys, where torch returns NaN, heads and weights are zeros; NaN in a masked key reaches no output; the returned weights
    are those before dropout; and every query attends to the keys of add_bias_kv and add_zero_attn, also with `is_causal`.

    >>> import torch
    >>> layer, x = replace_multihead_attention(nn.MultiheadAttention(8, 2, batch_first=True)), torch.randn(1, 3, 8)
    >>> type(layer).__name__, layer(x, x, x, key_padding_mask=torch.ones(1, 3, dtype=torch.bool))[1].abs().max().item()
    ('ReplacedAttention', 0.0)
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the layer from a pickle."""
        super().__setstate__(state)
        _keep_off_the_fast_path(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attention output and, with `need_weights`, the weights, averaged over the heads or for each head."""
        _check(self, query, key, value)
        unbatched, length_first = query.ndim == 2, query.ndim == 3 and not self.batch_first
        projected = (x.transpose(0, 1) if length_first else x for x in self._projected(query, key, value))
        queries, keys, values = (with_batch(split_heads(x, self.num_heads)) for x in projected)  # (B, H, n, D)
        shape = (queries.shape[0], self.num_heads, queries.shape[-2], keys.shape[-2])
        mask, bias = read_masks(shape, key_padding_mask, attn_mask, is_causal, need_weights)
        extra = (self.bias_k is not None) + self.add_zero_attn
        arguments = {
            "query": queries,
            "key": with_extra(keys, self.bias_k, self.add_zero_attn),
            "value": with_extra(values, self.bias_v, self.add_zero_attn),
            "mask": mask_with_extra(mask, extra),
            "bias": bias_with_extra(bias, extra),
            "dropout": self.dropout if self.training else 0.0,
        }
        heads = attend(**arguments)
        weights = _weights(arguments, average_attn_weights).to(heads.dtype) if need_weights else None
        output = functional.linear(join_heads(heads), self.out_proj.weight, self.out_proj.bias)  # (B, Q, E)
        if unbatched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output.transpose(0, 1) if length_first else output, weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        bias, packed = self.in_proj_bias, self.in_proj_weight if self._qkv_same_embed_dim else None
        if packed is not None and query is key and key is value:
            return functional.linear(query, packed, bias).chunk(3, dim=-1)
        matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if packed is None else packed.chunk(3)
        biases = (None, None, None) if bias is None else bias.chunk(3)
        return tuple(functional.linear(*parts) for parts in zip((query, key, value), matrices, biases, strict=True))


def _weights(arguments: dict[str, Any], averaged: bool) -> Tensor:
    """The weights before dropout (B, H, Q, K), or their mean over the heads (B, Q, K)."""
    call = Call.checked(**arguments | {"value": arguments["value"][..., :1], "dropout": 0.0})  # weights need only one feature
    (weights,) = blocked(call, lambda block: formula(block)[2:3], every_key=True)
    return weights.mean(dim=1) if averaged else weights


def _check(layer: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
    if any(isinstance(tensor, Tensor) and tensor.is_nested for tensor in (query, key, value)):
        raise KindError(
            "padded tensors in a replaced attention",
            got="a nested tensor",
            fix="pass a padded tensor with key_padding_mask, or replace the whole TransformerEncoder, which then does so",
        )
    checks.states(NAME, "query", query, layer.embed_dim, option="embed_dim")
    checks.states(NAME, "key", key, layer.kdim, option="kdim")
    checks.states(NAME, "value", value, layer.vdim, option="vdim")
    if query.ndim > 3 or not query.ndim == key.ndim == value.ndim:
        raise InputError(
            f"query, key and value of {NAME} all with two dimensions, (L, E), or all with three, in a batch",
            got=check.shapes(query=query, key=key, value=value),
            fix="give all three a batch, or none",
        )
