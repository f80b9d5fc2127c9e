"""Image models: a query's weights as the grid of its patches, and laid over the picture."""

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from overt.errors import InputError, KindError
from overt.lens import overlay_patches, record
from overt.lens.patches import patch_grid

RED = np.full((16, 24, 3), (200, 30, 40), dtype=np.uint8)


def vision_model(implementation, **options):
    """A small Vision Transformer of random weights: 8 × 8 pixels a patch."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 48}
    config = transformers.ViTConfig(**sizes, patch_size=8, attn_implementation=implementation)
    return transformers.ViTModel(config, add_pooling_layer=False).eval()


def pixels(height=48, width=48):
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_patches_are_the_models_own_weights_in_rows_and_columns(implementation):
    with record(model := vision_model(implementation)) as recording, torch.no_grad():
        model(pixels())
    with torch.no_grad():
        from_model = vision_model("eager")(pixels(), output_attentions=True).attentions[1]  # (B, H, 37, 37)
    result = recording[1, 2].patches(0)
    assert result.shape == (2, 6, 6)
    torch.testing.assert_close(result, from_model[:, 2, 0, 1:].reshape(2, 6, 6), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(recording[1, 2].patches(20)[:, 3, 4], from_model[:, 2, 20, 1 + 3 * 6 + 4], rtol=1e-5, atol=1e-6)


def test_an_image_that_is_not_square_says_its_grid():
    with record(model := vision_model("sdpa")) as recording, torch.no_grad():
        model(pixels(48, 64), interpolate_pos_encoding=True)
    head = recording[0, 0]
    torch.testing.assert_close(head.patches(0, grid=(6, 8)), head.weights(0)[:, 0, 1:].reshape(2, 6, 8))
    with pytest.raises(
        InputError,
        match=r"keys that are a square of patches, or a grid=, got 49 keys, after 2 tokens\. .*pass grid=\(rows, columns\), or aside=",
    ):
        head.patches(0, aside=2)
    with pytest.raises(InputError, match="got 51 keys, with a class token or without"):
        patch_grid(51)


@pytest.mark.parametrize(
    ("inputs", "result"),
    [
        ((256,), (0, (16, 16))),
        ((257,), (1, (16, 16))),
        ((261, None, 5), (5, (16, 16))),
        ((141, (14, 10)), (1, (14, 10))),
        ((145, (14, 10), 5), (5, (14, 10))),
    ],
)
def test_what_comes_before_the_patches_is_set_aside(inputs, result):
    assert patch_grid(*inputs) == result


def test_a_grid_that_does_not_fit_is_refused():
    with pytest.raises(
        InputError, match=r"a grid of as many patches as there are among the 37 keys, got grid=\(7, 7\)\. .*over the patch size"
    ):
        patch_grid(37, (7, 7))
    with pytest.raises(InputError, match=r"got grid=\(6, 6\) and aside=2"):
        patch_grid(37, (6, 6), 2)
    for wrong in (6, (6,), (6, 0), [6, 6]):
        with pytest.raises(KindError, match=r"grid as \(rows, columns\), two whole numbers"):
            patch_grid(37, wrong)  # type: ignore[arg-type]


def test_a_summary_has_no_patches_and_says_so():
    with record(model := vision_model("sdpa"), keep="summary") as recording, torch.no_grad():
        model(pixels())
    with pytest.raises(InputError, match='record with keep="qkv"'):
        recording[0, 0].patches(0)


def test_the_picture_is_covered_by_weight():
    weights = torch.tensor([[0.0, 0.1, 0.2], [0.0, 0.0, 0.4]])
    shown = np.asarray(overlay_patches(RED, weights, opacity=1))
    assert shown.shape == RED.shape
    assert (shown[:8, :8] == RED[:8, :8]).all()
    assert (shown[8:, 16:] == shown[8, 16]).all()
    colours = matplotlib.colormaps["inferno"]
    for share, (y, x) in ((0.25, (4, 12)), (0.5, (4, 20)), (1.0, (12, 20))):
        expected = RED[0, 0] * (1 - share) + np.array(colours(share)[:3]) * 255 * share
        assert np.abs(shown[y, x] - expected).max() < 2


def test_patches_share_a_picture_that_they_do_not_divide():
    shown = np.asarray(overlay_patches(np.zeros((10, 10)), [[0.0, 1.0, 0.0]], opacity=1)).sum(-1) > 0
    assert shown[0].tolist() == [False] * 4 + [True] * 3 + [False] * 3


def test_nan_is_shown_as_such_and_nothing_is_covered_without_weight():
    shown = np.asarray(overlay_patches(RED, [[0.0, np.nan]], opacity=1))
    assert (shown[:, 12:] == (255, 0, 255)).all()
    assert (shown[:, :12] == RED[:, :12]).all()
    assert (np.asarray(overlay_patches(RED, np.zeros((2, 2)))) == RED).all()


def test_files_images_and_arrays_are_the_same_picture(tmp_path):
    Image.fromarray(RED).save(tmp_path / "red.png")
    weights = np.eye(2)
    inputs = [tmp_path / "red.png", str(tmp_path / "red.png"), Image.fromarray(RED), RED, RED / 255.0]
    shown = [np.asarray(overlay_patches(image, weights)) for image in inputs]
    assert all((each == shown[0]).all() for each in shown)


@pytest.mark.parametrize(
    ("image", "weights", "options", "message"),
    [
        (
            torch.zeros(3, 8, 8),
            np.eye(2),
            {},
            r"an image \(height, width\) or .*, got shape \(3, 8, 8\)\. .*permute\(1, 2, 0\)",
        ),
        (np.full((8, 8), -2.0), np.eye(2), {}, "an image of numbers from 0 to 1, got from -2 to -2"),
        (RED, np.ones((1, 2, 2)), {}, r"weights of patches, \(rows, columns\), got shape \(1, 2, 2\)"),
        (RED, np.eye(2), {"opacity": 2}, "an opacity from 0 to 1, got 2"),
    ],
)
def test_what_is_no_picture_is_refused(image, weights, options, message):
    with pytest.raises(InputError, match=message):
        overlay_patches(image, weights, **options)
