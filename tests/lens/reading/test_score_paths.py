"""Where the paths of a score begin: pictures, sound and vectors, learned queries, what a stream is added to, other runs."""

import pytest
import torch
import transformers
from torch import nn

import overt
from language_forms import IDS
from overt.errors import InputError
from overt.lens import score_contributions

QUERY, KEY = 3, 1


def product_of(head, row, key):
    """The model's scaled product of query and key, from what was recorded, in float64."""
    scale = head.call.score.factor(head.query)
    return float(head.query[0, row].double() @ head.key[0, key].double()) * scale


class Pooled(nn.Module):
    """Learned queries that attend to the tokens, as Perceiver's latents do; heads written out, or fused."""

    def __init__(self, fused):
        super().__init__()
        self.fused, self.embedding, self.latents = fused, nn.Embedding(60, 16), nn.Parameter(torch.randn(5, 16))
        self.norm, self.query, self.key, self.value = nn.LayerNorm(16), *(nn.Linear(16, 16) for _ in range(3))

    def forward(self, input_ids):
        torch.vmap(torch.sin)(self.latents)  # as masks of transformers are computed
        x, latents = self.embedding(input_ids), self.norm(self.latents.expand(len(input_ids), -1, -1))
        q, k, v = (
            layer(tokens).unflatten(-1, (4, 4)).transpose(1, 2)
            for layer, tokens in ((self.query, latents), (self.key, x), (self.value, x))
        )
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.softmax(q @ k.transpose(-1, -2) / 2, dim=-1) @ v


@pytest.mark.parametrize("fused", [True, False])
def test_a_learned_query_is_a_constant(fused):
    torch.manual_seed(0)
    model = Pooled(fused).eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(IDS)
    why = score_contributions(recording, model, head=(0, 2), query=4, key=KEY)
    assert why.holds
    assert [part.kind for part in why.query.parts] == ["constant"]
    assert {part.kind for part in why.key.parts} == {"embedding", "bias"}
    assert why.score == pytest.approx(product_of(recording[0, 2], 4, KEY), abs=1e-9)


OF_OTHER_INPUTS = {
    "ViTModel": ({"image_size": 16, "patch_size": 4}, {"pixel_values": torch.randn(1, 3, 16, 16)}),
    "Wav2Vec2Model": (
        {
            "conv_dim": [8, 8],
            "conv_stride": [4, 2],
            "conv_kernel": [8, 4],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
        },
        {"input_values": torch.randn(1, 120)},
    ),
}


@pytest.mark.parametrize("name", OF_OTHER_INPUTS)
def test_pictures_and_sound_are_followed_to_their_patches_and_frames(name):
    options, inputs = OF_OTHER_INPUTS[name]
    kind = getattr(transformers, name)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    model = kind(kind.config_class(**sizes, **options)).eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    why = score_contributions(recording, model, head=(1, 2), query=QUERY, key=KEY, inputs=inputs)
    assert why.holds
    assert why.score == pytest.approx(product_of(recording[1, 2], QUERY, KEY), abs=1e-9)
    assert len([part for part in why.key.parts if part.kind == "head"]) == 4
    if name == "ViTModel":  # its patches are linear in the picture; sound passes functions that are not
        assert [part.layer for part in why.key.parts if part.kind == "embedding"] == ["pixel_values"]


class Weighted(nn.Module):
    """Attention over vectors that a mask of numbers (B, K, 1) is multiplied with."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, inputs_embeds, soft_mask):
        x = inputs_embeds * soft_mask
        return self.attention(x, x, x, need_weights=False)[0]


def test_a_mask_of_numbers_is_a_factor_and_no_part():
    inputs = {"inputs_embeds": torch.randn(1, 7, 16), "soft_mask": torch.rand(1, 7, 1)}
    model = Weighted().eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    why = score_contributions(recording, model, head=(0, 2), query=QUERY, key=KEY, inputs=inputs)
    assert why.holds
    assert {part.kind for part in why.key.parts} == {"embedding", "bias"}


class Positioned(Weighted):
    """A stream that is added to a tensor of positions, which no writer made."""

    def forward(self, inputs_embeds):
        x = torch.arange(7.0)[None, :, None].expand(1, 7, 16).clone()
        x += inputs_embeds
        return self.attention(x, x, x, need_weights=False)[0]


def test_what_a_stream_is_added_to_in_place_is_a_constant():
    model, inputs = Positioned().eval(), {"inputs_embeds": torch.randn(1, 7, 16)}
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    why = score_contributions(recording, model, head=(0, 2), query=QUERY, key=KEY, inputs=inputs)
    assert why.holds
    assert {part.kind for part in why.key.parts} == {"constant", "embedding", "bias"}


class Drawn(Pooled):
    """A model that attends to a random half of its tokens."""

    def forward(self, input_ids):
        return super().forward(input_ids[:, torch.randperm(input_ids.shape[1])[:4]])


def test_a_model_that_draws_random_numbers_is_run_again_from_the_same_seed():
    model, inputs = Drawn(fused=True).eval(), {"input_ids": IDS}
    torch.manual_seed(7)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(IDS)
    with pytest.raises(InputError, match="cannot be repeated.*call torch.manual_seed before both runs of a model that draws"):
        score_contributions(recording, model, head=(0, 2), query=4, key=KEY, inputs=inputs)
    torch.manual_seed(7)
    assert score_contributions(recording, model, head=(0, 2), query=4, key=KEY, inputs=inputs).holds


class Hidden(nn.Module):
    """Attention whose first query is masked for every key."""

    def forward(self, inputs_embeds):
        x = inputs_embeds[:, None]
        mask = torch.ones(7, 7, dtype=torch.bool).tril(-1)
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def test_a_query_without_keys_is_refused():
    model, inputs = Hidden().eval(), {"inputs_embeds": torch.randn(1, 7, 16)}
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    with pytest.raises(InputError, match="a query that may attend to a key, got query 0, which may attend to none"):
        score_contributions(recording, model, head=(0, 0), query=0, key=KEY, inputs=inputs)
