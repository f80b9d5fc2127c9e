"""The page's content without scripts: a picture of the heads' maps and the strongest links as a table."""

import struct
import zlib
from base64 import b64encode
from typing import Any

import numpy as np

from overt.drawing.html import escape_text
from overt.drawing.numbers import number, scientific, shorten, visible
from overt.lens.viewer.packing import Packed
from overt.lens.viewer.pyramids import MOST, NAN, OCTAVES, ZERO

HEADS, ROWS = 24, 20  # HEADS: the most pictures, ROWS: the most lines of the table; the page with scripts has all
CELLS = 128  # the most cells along a side of a picture
SHOWN = 9  # octaves of weights from the darkest to the lightest colour
# _MINUS, _PLUS: the page's colours on a light background, from vermillion (largest negative weight) through cream to blue.
_MINUS = [[110, 47, 0], [213, 94, 0], [238, 154, 85], [249, 217, 189]]
_PLUS = [[243, 241, 234], [196, 220, 235], [106, 174, 214], [0, 114, 178], [0, 53, 92]]
_WRONG = np.array([232, 32, 84])


def static_page(packed: Packed, article: str = "") -> str:
    """The still page of the packed heads, as HTML with only text, pictures and a table; `article` replaces the table.

    The maps show the largest weight of each cell on a logarithmic scale, from 2^−9 on.
    """
    heads = packed.header["heads"]
    shown = _shown(packed.header)
    pictures = "".join(f"<li>{_picture(packed, index)}</li>" for index in shown)
    kinds = dict.fromkeys(item["mixer"] for item in packed.header["calls"] if item["mixer"])
    signed = (
        f" Of {escape_text(', '.join(kinds))}, weights are signed and do not sum to one: vermillion is negative."
        if kinds
        else ""
    )
    more = "" if len(shown) == len(heads) else f" {len(shown)} of {len(heads)} heads are shown."
    return f"""<div class="still">
<h1>{escape_text(packed.header["title"])}</h1>
{article}
<p>The largest weight of each cell of each head's map, rows are queries, columns are keys.{more}{signed} With scripts this page
zooms down to single weights, and shows the text and the steps.</p>
<ul class="stills">{pictures}</ul>
{_table(packed, packed.header["start"]) if heads and not article else ""}
{"" if article else _residual(packed.header)}
</div>"""


def _shown(header: dict[str, Any]) -> list[int]:
    """The indices of the shown heads of the first batch element, beginning with the head that the page opens with."""
    indices = [index for index, head in enumerate(header["heads"]) if head["batch"] == 0]
    return sorted(indices, key=lambda index: index != header["start"])[:HEADS]


def _picture(packed: Packed, index: int) -> str:
    name, head = _name(packed.header, index), packed.header["heads"][index]
    if not head["base"]:
        return f"<p><b>{name}</b> has no map</p>"
    base = head["base"]
    codes = _array(packed, base["max"]).reshape(base["rows"], base["columns"])
    signed = bool(packed.header["calls"][head["call"]]["mixer"])
    data = b64encode(_png(_diverging(_fewer(codes, signed)) if signed else _coloured(_fewer(codes, signed)))).decode()
    role = escape_text(head["role"]) if head["role"] else ""
    image = f'<img alt="{name}: map of weights" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption><b>{name}</b> {role}</figcaption></figure>"


def _name(header: dict[str, Any], index: int) -> str:
    head = header["heads"][index]
    return f"L{header['calls'][head['call']]['number']}H{head['head']}"


def _fewer(codes: np.ndarray, signed: bool) -> np.ndarray:
    """The codes in at most CELLS cells a side, each the largest in size of its part; NaN stays, because it is the largest code."""
    if signed:
        codes = codes.astype(int)
        sides = (codes.clip(ZERO), np.where(codes == NAN, NAN, (2 * ZERO - codes).clip(ZERO)))
        above, below = (_fewer(side, False) for side in sides)
        return np.where((above == NAN) | (above >= below), above, 2 * ZERO - below)
    for axis, size in enumerate(codes.shape):
        if size > CELLS:
            codes = np.maximum.reduceat(codes, np.arange(CELLS) * size // CELLS, axis=axis)
    return codes


def _coloured(codes: np.ndarray) -> np.ndarray:
    """Codes (rows, columns) as red, green, blue, alpha: zero is transparent."""
    share = np.clip(1 - (MOST - codes.astype(float)) / (MOST - 1) * OCTAVES / SHOWN, 0, 1)
    colours = np.where((codes == NAN)[..., None], _WRONG, _shade(share))
    alpha = np.where(codes == 0, 0, 255)[..., None]
    return np.concatenate([colours, alpha], axis=-1).round().astype(np.uint8)


def _diverging(codes: np.ndarray) -> np.ndarray:
    """Codes of signed weights (rows, columns) as red, green, blue, alpha: vermillion below zero, blue above."""
    share = (codes.astype(float) - ZERO) / np.abs(np.where(codes == NAN, 0, codes - ZERO)).max(initial=1)
    size = np.clip(1 - 4 * (1 - np.abs(share).clip(0, 1)), 0, 1)
    colours = np.where((codes == NAN)[..., None], _WRONG, _shade(np.sign(share) * size))
    return np.concatenate([colours, np.full((*codes.shape, 1), 255)], axis=-1).round().astype(np.uint8)


def _shade(share: np.ndarray) -> np.ndarray:
    """The colour (…, 3) of a share from −1 to 1."""
    ramp = np.array([*_MINUS, *_PLUS])
    return np.stack([np.interp(share, np.linspace(-1, 1, len(ramp)), channel) for channel in ramp.T], axis=-1)


def _png(pixels: np.ndarray) -> bytes:
    """Pixels (rows, columns, 4) as a PNG file (W3C PNG, section 5)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows, columns = pixels.shape[:2]
    lines = b"".join(b"\0" + pixels[row].tobytes() for row in range(rows))
    size = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def _array(packed: Packed, address: list[Any]) -> np.ndarray:
    """The array at an address of the header."""
    block, offset, kind, count = address
    whole = b"".join(packed.blocks.parts[block])
    return np.frombuffer(whole, dtype=np.dtype(kind).newbyteorder("<"), count=count, offset=offset)


def _table(packed: Packed, index: int) -> str:
    """The strongest links of the head that the page opens with."""
    head, name = packed.header["heads"][index], _name(packed.header, index)
    weights, rows, keys = (_array(packed, head["links"][part])[:ROWS] for part in ("weights", "rows", "keys"))
    rows_html = "".join(
        f'<tr><th scope="row">{_token(packed, head["queries"], int(row))}</th><td>{_token(packed, head["keys"], int(key))}</td>'
        f'<td class="number">{number(float(weight), 4)}</td></tr>'
        for weight, row, key in zip(weights, rows, keys, strict=True)
    )
    return (
        f"<table><caption>The strongest links of {name}</caption><thead><tr><th scope=col>query</th><th scope=col>key</th>"
        f"<th scope=col>weight</th></tr></thead><tbody>{rows_html}</tbody></table>"
    )


def _token(packed: Packed, words: int | None, index: int) -> str:
    text = str(index) if words is None else shorten(visible(packed.header["words"][words][index]), 40)
    return f"<bdi>{escape_text(text)}</bdi> <small>{index}</small>"


def _residual(header: dict[str, Any]) -> str:
    verified = header["verified"]
    if verified["difference"] != verified["difference"]:
        return ""
    bound = f"rounding bound {scientific(verified['bound'])}"
    within = f"within the {bound}" if verified["holds"] else f"not everywhere within its rounding bound; the largest {bound}"
    return f"<p>recomputed vs. model: {scientific(verified['difference'])}, {within}</p>"
