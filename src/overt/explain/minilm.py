"""all-MiniLM-L6-v2, the complete model on one page: a BERT encoder of 6 layers and 12 heads.

Parameter names and operations are those of Hugging Face's `BertModel`, so its weights load unchanged and its outputs are
the same; but `transformers` is not imported, which would take longer than everything else in `overt explain`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional


class BertSelfAttention(nn.Module):
    """Query, key and value of each token, then attention in every head."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query: nn.Linear = nn.Linear(width, width)
        self.key: nn.Linear = nn.Linear(width, width)
        self.value: nn.Linear = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the values of a sequence (B, N, width) by attention; `mask` (B, 1, 1, N) is False at padding."""
        query, key, value = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, D)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # (B, H, N, D)
        return mixed.transpose(1, 2).flatten(2)  # (B, N, H·D)


class BertOutput(nn.Module):
    """Project, add the sublayer's input, normalise."""

    def __init__(self, inner: int, width: int, epsilon: float):
        super().__init__()
        self.dense: nn.Linear = nn.Linear(inner, width)
        self.LayerNorm: nn.LayerNorm = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor, came_in: Tensor) -> Tensor:
        """LayerNorm(W x + the sublayer's input)."""
        return self.LayerNorm(self.dense(x) + came_in)


class BertAttention(nn.Module):
    """Self-attention and its output projection."""

    def __init__(self, width: int, heads: int, epsilon: float):
        super().__init__()
        self.self: BertSelfAttention = BertSelfAttention(width, heads)
        self.output: BertOutput = BertOutput(width, width, epsilon)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend, then project and add."""
        return self.output(self.self(x, mask), x)


class Layer(nn.Module):
    """One layer: attention, then two linear maps with a GELU between them."""

    def __init__(self, width: int, heads: int, inner: int, epsilon: float):
        super().__init__()
        self.attention: BertAttention = BertAttention(width, heads, epsilon)
        self.intermediate: nn.ModuleDict = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output: BertOutput = BertOutput(inner, width, epsilon)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """One layer of the encoder, (B, N, width) to (B, N, width)."""
        x = self.attention(x, mask)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Embeddings(nn.Module):
    """Embeddings of word, type and position of each token, summed and normalised."""

    def __init__(self, words: int, kinds: int, positions: int, width: int, epsilon: float):
        super().__init__()
        self.word_embeddings: nn.Embedding = nn.Embedding(words, width)
        self.position_embeddings: nn.Embedding = nn.Embedding(positions, width)
        self.token_type_embeddings: nn.Embedding = nn.Embedding(kinds, width)
        self.LayerNorm: nn.LayerNorm = nn.LayerNorm(width, epsilon)

    def forward(self, ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Token ids (B, N) to vectors (B, N, width)."""
        words, kinds = self.word_embeddings(ids), self.token_type_embeddings(torch.zeros_like(ids))
        position_ids = torch.arange(ids.shape[-1], device=ids.device) if position_ids is None else position_ids
        return self.LayerNorm(words + kinds + self.position_embeddings(position_ids))


class MiniLM(nn.Module):
    """The encoder: token ids (B, N) to one vector for each token (B, N, 384)."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.embeddings: Embeddings = Embeddings(
            config["vocab_size"], config["type_vocab_size"], config["max_position_embeddings"], width, epsilon
        )
        layers = [
            Layer(width, config["num_attention_heads"], config["intermediate_size"], epsilon)
            for _ in range(config["num_hidden_layers"])
        ]
        self.encoder: nn.ModuleDict = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None) -> Tensor:
        """The last layer's vectors; in a batch with padding, `attention_mask` (B, N) is 0 at padding and 1 elsewhere.

        A mask (B, 1, N, N) is added to the scores, and `position_ids` (B, N) number the tokens, so that a row may have several texts.
        """
        mask = attention_mask
        if mask is not None and mask.ndim == 2:
            mask = None if bool(mask.all()) else mask.bool()[:, None, None, :]
        x = self.embeddings(ids, position_ids)
        for layer in self.encoder["layer"].children():
            x = layer(x, mask)
        return x


def load(folder: Path) -> MiniLM:
    """Build the model from the folder's config.json and model.safetensors, in evaluation mode."""
    config = json.loads((folder / "config.json").read_text())
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn and replaced, without changing the caller's generator
        model = MiniLM(config)
    weights = load_file(folder / "model.safetensors")
    wanted = model.state_dict().keys()
    model.load_state_dict({name: tensor for name, tensor in weights.items() if name in wanted}, assign=True)
    return model.eval().requires_grad_(False)
