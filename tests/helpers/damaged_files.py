"""Files of every kind that overt reads, damaged in many ways: the same files for the same seed."""

import gzip
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import numpy as np

Damage = Callable[[bytes, random.Random], bytes]

ROWS = 40


# Any bytes ----------------------------------------------------------------------------------------------------------


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def flip(content: bytes, draw: random.Random) -> bytes:
    """Change single bits."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 3, 20, 200])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def overwrite(content: bytes, draw: random.Random) -> bytes:
    """Write a run of other bytes over some of them."""
    start, length = draw.randrange(len(content)), draw.choice([1, 4, 16, 300])
    other = draw.choice([b"\0" * length, b"\xff" * length, draw.randbytes(length)])
    return content[:start] + other + content[start + length :]


def remove(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.choice([1, 2, 16, 300]) :]


def repeat(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start : start + 100] * 2 + content[start + 100 :]


def append(content: bytes, draw: random.Random) -> bytes:
    return content + draw.choice([b"\0" * 100, draw.randbytes(50), content])


def number(content: bytes, draw: random.Random) -> bytes:
    """Write a large or negative number over four or eight bytes: a length, a count or an offset."""
    form, value = draw.choice([("<i", -1), ("<I", 2**32 - 1), ("<I", 2**31 - 1), ("<Q", 2**63), ("<q", -1), ("<I", 0)])
    edge = draw.choice([0, max(0, len(content) - 64), draw.randrange(len(content))])
    start = min(edge + draw.randrange(40), len(content) - 1)
    packed = struct.pack(form, value)
    return content[:start] + packed + content[start + len(packed) :]


def another_kind(content: bytes, draw: random.Random) -> bytes:
    """The bytes of another kind of file under this name."""
    kinds = [b"", b"\0", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600]
    kinds += [
        b"<html><table><tr><td>x</td></tr></table></html>",
        b"%PDF-1.7",
        b"\x1f\x8b",
        b"PAR1",
        b"PAR1" * 3,
        b"\x89PNG\r\n",
    ]
    kinds += [b"\xff\xfe" + "x\n1\n2\n".encode("utf-16-le"), b"BZh91AY&SY", b"{}", b"[" * 100_000, b"x" * 70_000]
    return draw.choice(kinds)


ANY: list[Damage] = [cut, flip, overwrite, remove, repeat, append, number, another_kind]


# Text ---------------------------------------------------------------------------------------------------------------

PIECES = [b"\0", b"\xff", b"caf\xe9", b"\xed\xa0\x80", b'"', b"'", b"\r", b"\n", b"\t", b",", b";", b"[" * 3000, b"{" * 3000]
PIECES += [
    b"1e999",
    b"nan",
    b"-Infinity",
    b"9" * 5000,
    b"\\ud800",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\x1b[31m",
    b"</a>",
    b"&x;",
]


def insert(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + draw.choice(PIECES) + content[start:]


def replace_number(content: bytes, draw: random.Random) -> bytes:
    """Write something else in the place of a number."""
    numbers = [*re.finditer(rb"-?\d+(?:\.\d+)?", content)]
    if not numbers:
        return insert(content, draw)
    match = draw.choice(numbers)
    others = [
        *PIECES,
        b"",
        b"-1",
        b"1.5",
        b"true",
        b"null",
        b'"x"',
        b"[]",
        b"{}",
        b"1_0",
        b"0x10",
        b"1,5",
        b"31.02.2024",
        b"10000000000",
    ]
    return content[: match.start()] + draw.choice(others) + content[match.end() :]


def remove_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    lines.pop(draw.randrange(len(lines)))
    return b"\n".join(lines)


def recode(content: bytes, draw: random.Random) -> bytes:
    return content.decode("utf-8", "replace").encode(draw.choice(["utf-16", "utf-32", "utf-16-le", "utf-7", "cp037"]))


TEXT: list[Damage] = [*ANY, insert, insert, replace_number, replace_number, remove_line, recode]


# Workbooks ----------------------------------------------------------------------------------------------------------


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def in_member(content: bytes, draw: random.Random) -> bytes:
    """Damage one part of a workbook inside a sound archive."""
    members = _members(content)
    name = draw.choice([*members, "xl/worksheets/sheet1.xml", "xl/worksheets/sheet1.xml"])
    part = members[name]
    how = draw.choice([cut, flip, overwrite, remove, repeat, insert, replace_number, another_kind, recode])
    return _zipped(members | {name: how(part, draw) if part else b""})


def without_member(content: bytes, draw: random.Random) -> bytes:
    members = _members(content)
    del members[draw.choice([*members])]
    return _zipped(members)


def swapped_members(content: bytes, draw: random.Random) -> bytes:
    members = _members(content)
    first, second = draw.sample([*members], 2)
    return _zipped(members | {first: members[second], second: members[first]})


VALUES = [
    "abc",
    "1e999",
    "nan",
    "",
    "-1",
    "99999999",
    "1e400",
    "2024-13-45T99:00:00",
    "\u0661",
    " 1 ",
    "#REF!",
    "0x1",
    "1" * 5000,
]
REFERENCES = ["A0", "ZZZZ9", "1A", "A1048577", "A99999999999", "XFE1", "", "A", "7", "a2", "A-1", "$A$2", "A2:B3", "XFD1048576"]
ATTRIBUTES = {"t": ["s", "b", "d", "e", "str", "inlineStr", "n", "zz", ""], "s": ["9999", "-1", "x", ""], "r": REFERENCES}


def cell(content: bytes, draw: random.Random) -> bytes:
    """Change a value, a type, a style or a reference in the sheet."""
    members = _members(content)
    sheet = members["xl/worksheets/sheet1.xml"].decode()
    for _ in range(draw.choice([1, 1, 5])):
        name = draw.choice(["v", "v", *ATTRIBUTES, "row"])
        if name == "v":
            pattern, replacement = r"<v>[^<]*</v>", f"<v>{draw.choice(VALUES)}</v>"
        elif name == "row":
            pattern, replacement = (
                r'<row r="[^"]*"',
                f'<row r="{draw.choice(["0", "-5", "x", "", "3", "1048577", "999999999999"])}"',
            )
        else:
            pattern, replacement = rf' {name}="[^"]*"', f' {name}="{draw.choice(ATTRIBUTES[name])}"'
        matches = [*re.finditer(pattern, sheet)]
        if matches:
            match = draw.choice(matches)
            sheet = sheet[: match.start()] + replacement + sheet[match.end() :]
    return _zipped(members | {"xl/worksheets/sheet1.xml": sheet.encode()})


def dimension(content: bytes, draw: random.Random) -> bytes:
    members = _members(content)
    area = draw.choice(["A1:XFD1048576", "A1:A1", "ZZZZ9:A1", "", "A1:XFD1", "B7", "A1:C999999999999", "x:y"])
    sheet = re.sub(rb'ref="[^"]*"', f'ref="{area}"'.encode(), members["xl/worksheets/sheet1.xml"], count=1)
    return _zipped(members | {"xl/worksheets/sheet1.xml": sheet})


def header_of_member(content: bytes, draw: random.Random) -> bytes:
    """Change a field of an entry in the archive's directory: its method, its flags (encrypted), its sizes, its offset."""
    entries = [match.start() for match in re.finditer(b"PK\x01\x02", content)]
    start, (field, form) = (
        draw.choice(entries),
        draw.choice([(8, "<H"), (10, "<H"), (16, "<I"), (20, "<I"), (24, "<I"), (42, "<I")]),
    )
    value = draw.choice([0, 1, 9, 99, 2**16 - 1, 2**31])
    packed = struct.pack(form, value & (2**16 - 1 if form == "<H" else 2**32 - 1))
    return content[: start + field] + packed + content[start + field + len(packed) :]


def bomb(content: bytes, draw: random.Random) -> bytes:
    """A small file that unpacks to something enormous, or whose rows and cells are counted in millions."""
    members, name = _members(content), "xl/worksheets/sheet1.xml"
    sheet = members[name].decode()
    filler = {
        "spaces": " " * (120 * 2**20),
        "far row": '<row r="999999999"><c r="A999999999"><v>1</v></c></row>',
        "far cells": "".join(f'<row r="{row}"><c r="XFD{row}"><v>1</v></c></row>' for row in range(50, 3_000)),
        "entities": "",
    }
    kind = draw.choice([*filler])
    if kind == "entities":
        entities = "".join(f'<!ENTITY a{at + 1} "{f"&a{at};" * 10}">' for at in range(9))
        declared = f'<!DOCTYPE x [<!ENTITY a0 "xxxxxxxxxx">{entities}]>'
        sheet = f"<?xml version='1.0'?>{declared}" + re.sub(r"^<\?xml.*?\?>", "", sheet).replace("<v>", "<v>&a9;", 1)
        return _zipped(members | {name: sheet.encode()})
    return _zipped(members | {name: sheet.replace("</sheetData>", f"{filler[kind]}</sheetData>").encode()})


WORKBOOK: list[Damage] = [*ANY, *[in_member] * 5, without_member, swapped_members, *[cell] * 4, dimension, header_of_member]


# The sound files ----------------------------------------------------------------------------------------------------


def _values() -> list[float]:
    return [float(np.sin(row / 3) + row % 7 / 10) for row in range(ROWS)]


def workbook() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.append(["t", "x", "note"])
    for row, value in enumerate(_values()):
        sheet.append([datetime(2024, 1, 1) + timedelta(days=row), value, f"a note {row % 3}"])
    book.create_sheet("more").append(["y", 3])
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {"t": [datetime(2024, 1, 1) + timedelta(days=row) for row in range(ROWS)], "x": _values()}
    columns |= {"note": [f"a note {row % 3}" for row in range(ROWS)], "list": [[row] for row in range(ROWS)]}
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    return target.getvalue()


def separated() -> bytes:
    lines = [f"2024-01-{1 + row % 28:02d}T{row // 28:02d}:00,{value},a note {row % 3}" for row, value in enumerate(_values())]
    return "\n".join(["t,x,note", *lines, ""]).encode()


def zipped_text() -> bytes:
    return gzip.compress(separated(), mtime=0)


def vectors() -> bytes:
    return "\n".join(["word,a,b,c", *(f"w{row},{row},0.5,-{row}" for row in range(6)), ""]).encode()


def server_log() -> bytes:
    tokens = [[-0.5, 7, None], [-0.25, 9, None]]
    answer = {"text": "mat", "meta_info": {"prompt_tokens": 2, "output_token_logprobs": tokens}}
    return "".join(json.dumps(answer | {"number": number}) + "\n" for number in range(4)).encode()


def corpus() -> bytes:
    return "".join(json.dumps({"text": f"the cat number {row} sat"}) + "\n" for row in range(8)).encode()


def recipe() -> bytes:
    return b"""task = "translate"
[data]
format = "pairs"
train = ["pairs.txt"]
held_out = [10, 10]
[tokens]
merges = 20
[model]
kind = "Transformer"
width = 16
heads = 2
[training]
updates = 20
seed = 3
"""


SOUND: dict[str, tuple[Callable[[], bytes], list[Damage]]] = {
    "xlsx": (workbook, WORKBOOK),
    "parquet": (parquet, ANY),
    "csv": (separated, TEXT),
    "csv.gz": (zipped_text, ANY),
    "vectors.csv": (vectors, TEXT),
    "log.jsonl": (server_log, TEXT),
    "corpus.jsonl": (corpus, TEXT),
    "toml": (recipe, TEXT),
}


def damaged(kind: str, seeds: range) -> Iterator[tuple[str, bytes]]:
    """A name for each seed, which says what was done, and the damaged bytes."""
    make, damages = SOUND[kind]
    content = make()
    for seed in seeds:
        draw = random.Random(f"{kind} {seed}")
        changes = [draw.choice(damages) for _ in range(draw.choice([1, 1, 1, 2]))]
        changed = content
        for change in changes:
            with suppress(Exception):  # a second damage may need what the first took away
                changed = change(changed, draw) if changed else changed
        yield f"{kind}-{seed}-{'-'.join(change.__name__ for change in changes)}", changed
