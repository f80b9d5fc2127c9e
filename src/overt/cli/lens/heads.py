"""`overt heads`: which heads of a model connect the words of labelled pairs."""

from pathlib import Path
from typing import Annotated

import typer

from overt.cli.shared.console import busy, report_console, require_torch
from overt.cli.shared.inputs import model_files
from overt.cli.shared.json_output import write_json
from overt.cli.shared.read_model import read_model
from overt.drawing.letters import writable
from overt.files import check_target, separate


def heads(
    model: Annotated[
        str, typer.Argument(help="A model's folder, a Hugging Face name, or minilm: all-MiniLM-L6-v2 of its package.")
    ],
    pairs: Annotated[
        Path,
        typer.Argument(
            help='A .jsonl file with {"text": …, "query": "it", "key": "animal", "distractors": ["street"]} a line, or a .csv with '
            "these columns; words, not token numbers."
        ),
    ],
    rows: Annotated[int, typer.Option(min=1, help="How many heads are shown.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the halves and of the resampling.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write every number of all heads.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: all heads, and the texts in which they are right or wrong.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a figure for print: .pdf, .svg or .png.")] = None,
) -> None:
    """Find the heads that look from one word of your sentences to another: chosen on one half of the texts, measured on the other."""
    require_torch("overt heads")
    from overt.lens import find_heads
    from overt.lens.analysis.finding.pairs import read_pairs
    from overt.lens.figures.paper import figure_kind

    outputs = {name: path for name, path in {"--json": json, "--html": html, "--plot": plot}.items() if path is not None}
    separate(outputs, {"PAIRS": pairs} | model_files(model))
    for path in outputs.values():
        check_target(path)
    if plot is not None:
        figure_kind(plot)
    read = read_pairs(pairs)
    with busy("reading the model …"):
        loaded = read_model(model)
    result = find_heads(loaded.model, read, tokenizer=loaded.tokenizer, seed=seed)
    console = report_console(*outputs.values())
    console.print(writable(result.text(rows, console.width), console.encoding), markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, "heads", result.to_dict())
    if html is not None:
        result.page(html)
    if plot is not None:
        result.plot(plot, rows)
