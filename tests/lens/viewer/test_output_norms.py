import pytest
import torch
from torch import nn

import families
import overt
from overt.errors import InputError
from overt.lens.statistics.output_norms import output_matrix, output_norms


def recorded(model, *args, **kwargs):
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(*args, **kwargs)
    return recording


def by_hand(head, rows):
    """‖v_j W‖ with the matrix's own columns for this head, written out."""
    width = head.value.shape[-1]
    head_rows = rows[head.head * width : (head.head + 1) * width]  # (E, model's width)
    return torch.linalg.vector_norm(head.value @ head_rows, dim=-1)


def test_of_an_overt_layer_the_norms_are_those_of_value_times_output_matrix():
    layer = overt.layers.MultiHeadAttention(12, heads=3)
    head = recorded(layer, torch.randn(2, 5, 12))[0, 1]
    torch.testing.assert_close(output_norms(head, layer).norms, by_hand(head, layer.output.weight.mT))


def test_of_torchs_layer_too():
    layer = nn.MultiheadAttention(12, 3, batch_first=True)
    x = torch.randn(2, 5, 12)
    head = recorded(layer, x, x, x)[0, 2]
    torch.testing.assert_close(output_norms(head, layer).norms, by_hand(head, layer.out_proj.weight.mT))


def test_heads_that_share_a_value_have_norms_of_their_own():
    layer = overt.layers.MultiHeadAttention(12, heads=4, kv_heads=2, head_width=3)
    recording = recorded(layer, torch.randn(1, 5, 12))
    for head in recording.heads():
        torch.testing.assert_close(output_norms(head, layer).norms, by_hand(head, layer.output.weight.mT))


def input_of(model, matrix, **inputs):
    """What the linear layer that holds this matrix reads when the model runs, all tokens (..., H·E)."""
    observed = []
    hooks = [
        module.register_forward_pre_hook(lambda module, args: observed.append(args[0]))
        for module in model.modules()
        if (weight := getattr(module, "weight", None)) is not None and weight.data_ptr() == matrix.data_ptr()
    ]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return observed


UNKNOWN = {"Albert"}  # a norm that follows the matrix stands in the same module: it is not told from one before


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_in_every_family_the_matrix_that_is_found_reads_the_recorded_heads(family):
    model = family.build()
    inputs = family.inputs()
    recording = recorded(model, **inputs)
    result = 0
    for captured in recording.calls:
        width = captured.output.shape[-1]
        matrix = output_matrix(model, captured.layer, captured.total, width)
        if isinstance(matrix, str):
            continue
        result += 1
        heads = captured.output.transpose(-2, -3).flatten(-2)  # (B, Q, H·E)
        read = input_of(model, matrix, **inputs)
        assert any(each.numel() == heads.numel() and torch.equal(each.reshape(heads.shape), heads) for each in read)
    assert bool(result) == (family.name not in UNKNOWN)


class Sub(nn.Module):
    """Attention whose heads are normalised before the output matrix."""

    def __init__(self):
        super().__init__()
        self.o_proj, self.inner_norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(-2, -3)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return self.o_proj(self.inner_norm(mixed.transpose(-2, -3).flatten(-2)))


def test_a_norm_in_between_is_said_and_nothing_is_claimed():
    model = Sub()
    result = output_norms(recorded(model, torch.randn(1, 5, 8))[0, 0], model)
    assert result.norms is None
    assert result.reason == "Sub holds LayerNorm, inner_norm, which may be between its heads and its output matrix"


def test_a_matrix_of_another_width_is_not_taken():
    model = Sub()
    model.o_proj = nn.Linear(6, 8)
    assert (
        output_matrix(model, "Sub", 2, 4) == "Sub has no single output matrix that reads 2 heads of 4 numbers (o_proj reads 6)"
    )


def test_a_summary_has_no_values_and_says_so():
    layer = overt.layers.MultiHeadAttention(8, heads=2)
    with overt.lens.record(layer, keep="summary") as recording:
        layer(torch.randn(1, 5, 8))
    assert output_norms(recording[0, 0], layer).reason == "the recording has summaries, without values"


def test_another_model_is_refused():
    layer = overt.layers.MultiHeadAttention(8, heads=2)
    recording = recorded(layer, torch.randn(1, 5, 8))
    with pytest.raises(
        InputError, match="the model that was recorded, with its module MultiHeadAttention, got a Linear without it"
    ):
        output_norms(recording[0, 0], nn.Linear(2, 2))
