"""A survey as one safetensors file: sums as integers, samples as arrays, texts and facts as JSON."""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from overt.files import whole
from overt.lens.analysis.surveys.jackknife import GROUPS
from overt.lens.analysis.surveys.measures import ROWS
from overt.lens.analysis.surveys.samples import TOP, Links
from overt.lens.analysis.surveys.totals import Facts, SurveyedHead, SurveyTotals
from overt.reading import reading

Stored = TypeVar("Stored", bound=SurveyTotals)
_FORMAT = "overt survey 2"
_LINKS = ("weights", "queries", "keys")


def write(survey: SurveyTotals, path: str | os.PathLike[str]) -> None:
    """Write a survey as a whole file or not at all."""
    samples = survey.samples
    drawn = [*samples.drawn]
    arrays = {
        "sums high": survey.sums.high,
        "sums low": survey.sums.low,
        "counts high": survey.counts.high,
        "counts low": survey.counts.low,
        "profile high": survey.profile.high,
        "profile low": survey.profile.low,
        "pairs": survey.pairs,
        "lost": survey.lost,
        "top": samples.top,
        "drawn": np.array(drawn, np.int64),
    }
    for name, top, kind in zip(_LINKS, samples.top_links, (np.float32, np.int32, np.int32), strict=True):
        arrays[f"top {name}"] = top
        rows = [getattr(samples.drawn[index], name) for index in drawn]
        arrays[f"drawn {name}"] = np.array(rows, kind).reshape(len(drawn), samples.heads)
    facts = survey.facts._replace(corpus=0)._asdict() | {"corpus": f"{survey.facts.corpus:x}"}
    about = {"facts": facts, "heads": survey.heads, "missing": survey.missing, "rows": ROWS}
    about |= {"texts": [[index, text.encode("utf-8", "surrogatepass").hex()] for index, text in samples.texts.items()]}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata={"format": _FORMAT})
    with whole(path) as temporary:
        temporary.write_bytes(data)


def read(path: str | os.PathLike[str], kind: type[Stored]) -> Stored:
    """Read a survey that `write` wrote. Raises InputError for another or a damaged file."""
    with reading(path, "a survey's file", "pass a file that survey.save, or file= of overt.lens.survey, wrote"):
        Path(path).open("rb").close()  # Python's error names the reason, safetensors' error does not
        with safe_open(path, framework="numpy") as file:
            if (file.metadata() or {}).get("format") != _FORMAT:
                raise ValueError("a file of another kind")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _survey(arrays, kind)


def _survey(arrays: dict[str, np.ndarray], kind: type[Stored]) -> Stored:
    about: dict[str, Any] = json.loads(arrays["about"].tobytes())
    facts = about["facts"]
    facts |= {"corpus": int(facts["corpus"], 16), "chunks": tuple(map(tuple, facts["chunks"]))}
    if tuple(about["rows"]) != ROWS:
        raise ValueError("measures of another version of overt")
    heads = [SurveyedHead(str(layer), int(number), int(head)) for layer, number, head in about["heads"]]
    survey = kind(Facts(**facts), heads, [(str(name), str(why)) for name, why in about["missing"]])
    shape = (GROUPS, len(ROWS), len(heads))
    for sums, name in ((survey.sums, "sums"), (survey.counts, "counts")):
        sums.high, sums.low = (_checked(arrays[f"{name} {part}"], shape, np.int64) for part in ("high", "low"))
    shape = survey.pairs.shape
    survey.profile.high, survey.profile.low = (_checked(arrays[f"profile {part}"], shape, np.int64) for part in ("high", "low"))
    survey.pairs = _checked(arrays["pairs"], shape, np.int64)
    survey.lost = _checked(arrays["lost"], (len(heads),), np.int64)
    samples, drawn = survey.samples, arrays["drawn"].tolist()
    kinds = dict(zip(_LINKS, (np.float32, np.int32, np.int32), strict=True))
    samples.top = _checked(arrays["top"], (len(heads), TOP), np.int64)
    samples.top_links = Links(*(_checked(arrays[f"top {name}"], (len(heads), TOP), dtype) for name, dtype in kinds.items()))
    rows = [_checked(arrays[f"drawn {name}"], (len(drawn), len(heads)), dtype) for name, dtype in kinds.items()]
    samples.drawn = {index: Links(*(entry[row] for entry in rows)) for row, index in enumerate(drawn)}
    samples.texts = {int(index): bytes.fromhex(text).decode("utf-8", "surrogatepass") for index, text in about["texts"]}
    return survey


def _checked(array: np.ndarray, shape: tuple[int, ...], kind: type) -> np.ndarray:
    if array.shape != shape or array.dtype != kind:
        raise ValueError("arrays of another shape than its heads")
    return array.copy()
