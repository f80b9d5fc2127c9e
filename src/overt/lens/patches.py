"""Attention of image models: the weights of a query as a grid of patches, drawn over the image."""

import math
from typing import Any

import numpy as np

from overt.drawing.canvas import drawing
from overt.errors import InputError, KindError

LOST = (255, 0, 255)  # the colour (magenta, RGB) of patches whose weight is NaN


def patch_grid(keys: int, grid: tuple[int, int] | None = None, aside: int | None = None) -> tuple[int, tuple[int, int]]:
    """The number of keys before the patches, such as a class token, and the (rows, columns) of the patches.

    Pass `grid` if it is not square, and `aside` if more than a class token precedes the patches (such as registers).

    >>> patch_grid(197), patch_grid(201, aside=5), patch_grid(7, grid=(2, 3))
    ((1, (14, 14)), (5, (14, 14)), (1, (2, 3)))
    """
    if grid is not None:
        if not isinstance(grid, tuple) or len(grid) != 2 or any(type(item) is not int or item < 1 for item in grid):
            raise KindError("grid as (rows, columns), two whole numbers", got=repr(grid), fix="pass grid=(14, 14)")
        before = keys - grid[0] * grid[1]
        if before < 0 or aside not in (None, before):
            others = "" if aside is None else f" and aside={aside}"
            fix = "pass the rows and columns of patches that the model cuts the image into, (height, width) over the patch size"
            raise InputError(
                f"a grid of as many patches as there are among the {keys} keys", got=f"grid={grid}{others}", fix=fix
            )
        return before, grid
    for before in (0, 1) if aside is None else (aside,):
        side = math.isqrt(max(keys - before, 0))
        if 0 < side * side == keys - before:
            return before, (side, side)
    some = "with a class token or without" if aside is None else f"after {aside} tokens"
    fix = (
        "pass grid=(rows, columns), or aside= the number of tokens before the patches (5 for a class token and four registers)"
    )
    raise InputError("keys that are a square of patches, or a grid=", got=f"{keys} keys, {some}", fix=fix)


def overlay_patches(image: Any, weights: Any, *, opacity: float = 0.75) -> Any:
    """Draw weights over the image that the model read: a larger weight makes its patch's colour more opaque.

    `image` is a Pillow image, a path, or an array (height, width) or (height, width, 3) of bytes or of numbers from 0 to 1.
    `weights` is a tensor or array (rows, columns), such as `head.patches(0)[0]`. The patch with the largest weight has the full
    `opacity`, from 0 to 1, the others a share of it. Patches are not smoothed, and a patch whose weight is NaN is magenta.
    Returns a Pillow image of the same size. Raises InputError for other shapes, and MissingExtra without matplotlib and Pillow.

    >>> overlay_patches(np.zeros((8, 12)), np.eye(2)).size
    (12, 8)
    """
    matplotlib = drawing("overt.lens.overlay_patches")
    from PIL import Image

    if not 0 <= opacity <= 1:
        raise InputError("an opacity from 0 to 1", got=repr(opacity), fix="pass 1 to cover the image")
    picture, grid = _picture(image), _weights(weights)
    largest = np.nanmax(grid) if np.isfinite(grid).any() else 0.0
    share = np.divide(grid, largest, out=np.zeros_like(grid), where=np.isfinite(grid) & (largest > 0))
    colours = matplotlib.colormaps["inferno"](share)[..., :3] * 255
    cover = (opacity * share)[..., None]
    lost = ~np.isfinite(grid)
    colours[lost], cover[lost] = LOST, opacity
    index = [np.arange(size) * count // size for size, count in zip(picture.shape[:2], grid.shape, strict=True)]
    colours, cover = (part[index[0][:, None], index[1]] for part in (colours, cover))  # (height, width, 3 or 1)
    pixels = picture * (1 - cover) + colours * cover
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def _picture(image: Any) -> np.ndarray:
    """An image as numbers from 0 to 255, (height, width, 3)."""
    from PIL import Image

    if isinstance(image, str) or hasattr(image, "__fspath__"):
        with Image.open(image) as opened:
            return np.asarray(opened.convert("RGB"), dtype=float)
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"), dtype=float)
    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or 0 in pixels.shape:
        fix = "convert it: tensor.permute(1, 2, 0) puts the colours last"
        raise InputError("an image (height, width) or (height, width, 3)", got=f"shape {pixels.shape}", fix=fix)
    if pixels.dtype.kind == "f" and not (pixels.min() >= 0 and pixels.max() <= 1):
        fix = "undo the model's normalisation: pixels * std + mean"
        raise InputError("an image of numbers from 0 to 1", got=f"from {pixels.min():.2g} to {pixels.max():.2g}", fix=fix)
    scaled = pixels.astype(float) * (255 if pixels.dtype.kind in "fb" else 1)
    return np.repeat(scaled[..., None], 3, axis=2) if pixels.ndim == 2 else scaled


def _weights(weights: Any) -> np.ndarray:
    grid = np.asarray(weights.detach().cpu().double() if hasattr(weights, "detach") else weights, dtype=float)
    if grid.ndim != 2 or 0 in grid.shape:
        fix = "pass those of one image: head.patches(row)[0]"
        raise InputError("weights of patches, (rows, columns)", got=f"shape {grid.shape}", fix=fix)
    return grid
