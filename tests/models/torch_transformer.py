"""torch's own Transformer beside ours with the same weights, to compare with."""

import torch
from torch import Tensor, nn

NAMES = {
    ".multihead_attn.": ".cross_attention.",
    ".linear1.": ".feed_forward.widen.",
    ".linear2.": ".feed_forward.narrow.",
}
ENCODER_NAMES = {
    ".self_attn.": ".attention.",
    ".norm1.": ".around_attention.norm.",
    ".norm2.": ".around_feed_forward.norm.",
}
DECODER_NAMES = {
    ".self_attn.": ".self_attention.",
    ".norm1.": ".around_self_attention.norm.",
    ".norm2.": ".around_cross_attention.norm.",
    ".norm3.": ".around_feed_forward.norm.",
}


def torch_twin(model) -> nn.Transformer:
    """An nn.Transformer with random layers of the same shape, which a `Transformer` takes over."""
    inputs = model.config
    layer = {
        "d_model": inputs["width"],
        "nhead": inputs["heads"],
        "dim_feedforward": inputs["feed_forward"],
        "dropout": 0.0,
        "activation": inputs["activation"],
        "batch_first": True,
        "norm_first": inputs["norm"] == "pre",
    }
    norms = [nn.LayerNorm(inputs["width"]) if inputs["norm"] == "pre" else None for _ in range(2)]
    encoder_layer, decoder_layer = nn.TransformerEncoderLayer(**layer), nn.TransformerDecoderLayer(**layer)
    encoder = nn.TransformerEncoder(encoder_layer, inputs["encoder_layers"], norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, inputs["decoder_layers"], norms[1])
    theirs = nn.Transformer(inputs["width"], inputs["heads"], custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = theirs.to(model.output.weight.dtype).eval()
    state = {_renamed(name): weight for name, weight in theirs.state_dict().items()}
    missing, unknown = model.load_state_dict(state, strict=False)
    assert not unknown
    assert all("embedding" in name or name == "output.weight" for name in missing)
    return theirs


def _renamed(name: str) -> str:
    for theirs, ours in (NAMES | (ENCODER_NAMES if name.startswith("encoder") else DECODER_NAMES)).items():
        name = name.replace(theirs, ours)
    return name


def torch_states(model, theirs: nn.Transformer, source: Tensor, target: Tensor, source_lengths: Tensor | None) -> Tensor:
    """The decoder's states by torch, from embeddings made by hand."""
    padding = None if source_lengths is None else torch.arange(source.shape[1]) >= source_lengths[:, None]
    later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    return theirs(
        embedded(model.encoder.embedding.table.weight, source),
        embedded(model.decoder.embedding.table.weight, target),
        tgt_mask=later,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )


def embedded(table: Tensor, tokens: Tensor) -> Tensor:
    """√width · table[token] + sines and cosines of the place, the formula of Vaswani et al. 2017, section 3.5."""
    width = table.shape[1]
    positions = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None]
    angles = positions / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    vectors = torch.zeros(tokens.shape[1], width, dtype=torch.float64)
    vectors[:, 0::2], vectors[:, 1::2] = angles.sin(), angles.cos()
    return table[tokens] * width**0.5 + vectors.to(table.dtype)
