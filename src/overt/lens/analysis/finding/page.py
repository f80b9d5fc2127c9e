"""Heads that connect labelled pairs on one offline page: numbers with intervals and baselines, and each head's held-out texts."""

import os
from collections.abc import Sequence
from typing import Any

from overt.drawing.html import data_page, escape_text, table
from overt.drawing.numbers import number, visible
from overt.lens.analysis.finding.pairs import ReadPair

_WEB = "lens/analysis/finding/web"
_HEADS, _TEXTS = 256, 300  # _HEADS: most heads whose texts are on the page; _TEXTS: most texts of each
_LONGEST = 240  # most characters of a text between two marked words
_SOURCES = (  # name, meaning and source of each measure
    (
        "right",
        "share of held-out pairs whose key gets more weight than every competitor; equal weights count ½",
        "Clark et al. 2019, section 4.1",
        "https://aclanthology.org/W19-4828/",
    ),
    (
        "[95 %]",
        "middle 95 % of it over held-out texts drawn again with replacement",
        "Efron 1979",
        "https://doi.org/10.1214/aos/1176344552",
    ),
    ("chosen", "the same share on the other half of the texts, by which heads are sorted and chosen", "", ""),
    ("mass", "mean weight on the key", "", ""),
    ("AUC", "mean share of competitors with less weight than the key", "", ""),
    (
        "p",
        "how often random signs give any head so large a lead over the best baseline: adjusted for all heads",
        "Westfall and Young 1993, single-step max-T",
        "",
    ),
)
_KNOWN = (  # published findings about such heads
    (
        "Some heads of BERT follow one relation of syntax or coreference.",
        "Clark et al. 2019",
        "https://aclanthology.org/W19-4828/",
    ),
    (
        "No head parses whole sentences much better than a trivial baseline.",
        "Htut et al. 2019",
        "https://arxiv.org/abs/1911.12246",
    ),
    (
        "Other weights can give the same output, so a weight alone is not a cause.",
        "Jain and Wallace 2019",
        "https://aclanthology.org/N19-1357/",
    ),
    (
        "Whether weights explain an output depends on what counts as an explanation, and can be tested.",
        "Wiegreffe and Pinter 2019",
        "https://aclanthology.org/D19-1002/",
    ),
)


def page(
    result: dict[str, Any],
    held_out: Sequence[ReadPair],
    answer: str,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> str:
    """Make the page of a result, from `RankedHeads.to_dict`, its held-out pairs and the answer in one sentence."""
    title = f"Heads of {result['model']} on {sum(result['pairs'].values()):,} labelled pairs" if title is None else title
    heads, texts = result["heads"], held_out[:_TEXTS]
    cut = [f"The texts of {_HEADS} heads are on this page."] if len(heads) > _HEADS and texts else []
    cut += [f"{_TEXTS} of {len(held_out):,} held-out texts are on this page."] if len(held_out) > _TEXTS else []
    data = {
        "title": visible(title),
        "answer": visible(answer),
        "notes": [visible(note) for note in (*result["notes"], *cut)],
        "heads": [head | {"layer": visible(head["layer"])} for head in heads],
        "baselines": result["baselines"],
        "texts": [
            {
                "pieces": [[_shortened(text), part] for text, part in pair.pieces],
                "right": pair.right[:_HEADS],
                "mass": [float(f"{mass:.4g}") for mass in pair.mass[:_HEADS]],
            }
            for pair in texts
        ],
        "sources": _SOURCES,
        "known": _KNOWN,
        "next": _calls(heads[0]["head"]),
    }
    still = _still(result, title, answer)
    return data_page("heads", _WEB, path, title=title, data=data, still=still, smaller="pass shorter texts")


def _shortened(text: str) -> str:
    """A text, without its middle if it is longer than _LONGEST."""
    half = _LONGEST // 2
    return visible(text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}")


def _calls(head: tuple[int, int]) -> list[list[str]]:
    """Further questions about a head, each with the call that answers it."""
    return [
        ["What does the output lose without it?", f"lens.effect(model, run, lens.Edits().scale({head}, 0.0))"],
        ["Why does it look there?", f"lens.score_contributions(recording, model, head={head}, query=…, key=…)"],
    ]


def _still(result: dict[str, Any], title: str, answer: str) -> str:
    """The page without scripts: all heads and the baselines, as tables."""
    rows = [
        (
            head["name"],
            number(head["accuracy"]),
            f"[{', '.join(map(number, head['interval']))}]",
            *(number(head[name]) for name in ("chosen", "mass", "area")),
            number(head["p_value"], 3),
        )
        for head in result["heads"]
    ]
    heads = table(("head", "right", "[95 %]", "chosen", "mass", "AUC", "p"), rows)
    others = table((), [(name, number(value)) for name, value in result["baselines"].items()])
    notes = "".join(f"<p class='quiet'>{escape_text(note)}</p>" for note in result["notes"])
    return f"<h1>{escape_text(title)}</h1><p>{escape_text(answer)}</p>{notes}{heads}<h2>Without this attention</h2>{others}"
