"""`overt explain`: how one word attends, step by step, with its numbers."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.cli.shared.inputs import model_files, named_file, named_input, read_text
from overt.cli.shared.json_output import write_json
from overt.errors import InputError, install_command
from overt.explain.encoded import choose
from overt.explain.explanation import Explanation
from overt.explain.recipes import vectors as sources
from overt.explain.terminal import render as terminal
from overt.files import separate, whole

_RECIPES = ("qkv", "hidden", "plain")
# _BELONGS: the recipes that each option affects; elsewhere the option is refused, since it would have no effect.
_BELONGS = {
    "layer": ("qkv",),
    "head": ("qkv",),
    "layer_type": ("hidden",),
    "score": ("hidden",),
    "normalizer": ("hidden", "plain"),
    "seed": ("hidden", "qkv"),
    "why": ("qkv",),
    "h0": ("hidden",),
}
_FALLBACK = (
    "all-MiniLM-L6-v2 is not installed, so overt's own translator, a smaller model, is used; "
    f"to install it: {install_command('text')}."
)


@dataclass(frozen=True)
class Request:
    """The options of the command line."""

    text: str | None
    word: str | None
    recipe: str
    other: str | None
    compare: str | None
    model: str | None
    vectors: Path | None
    layer: int | None
    head: int | None
    layer_type: str | None
    score: str | None
    normalizer: str | None
    seed: int | None
    h0: str | None
    loop: bool
    truncate: bool
    why: str | None = None

    @cached_property
    def reader(self) -> Any:
        """The model that reads the text, loaded once."""
        return reading_model(self.model)


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The sentence, or a file of it; with --vectors, the words that name the rows.")
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="The word to explain: it, or it:2 for the second one. (default: the last word)")
    ] = None,
    recipe: Annotated[str, typer.Option(help="qkv, hidden or plain.")] = "qkv",
    other: Annotated[str | None, typer.Option("--with", help="Attend to this sentence instead.")] = None,
    compare: Annotated[str | None, typer.Option(help="Show the same head of this sentence next to the first.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="minilm, a Hugging Face name or folder, or a run's of overt train. (default: minilm, all-MiniLM-L6-v2)"
        ),
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="A CSV file of your own numbers, one vector a row.")] = None,
    layer: Annotated[int | None, typer.Option(help="qkv: the layer shown, from 0. (default: the last)")] = None,
    head: Annotated[int | None, typer.Option(help="qkv: the head shown, from 0. (default: its strongest link)")] = None,
    layer_type: Annotated[str | None, typer.Option(help="hidden: gru, lstm, rnn, conv or linear. (default: gru)")] = None,
    score: Annotated[str | None, typer.Option(help="hidden: additive, dot, general or cosine. (default: additive)")] = None,
    normalizer: Annotated[str | None, typer.Option(help="hidden, plain: softmax or sum. (default: softmax)")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of untrained weights. (default: 0)")] = None,
    h0: Annotated[str | None, typer.Option("--h0", help="hidden: the first state: 8 numbers, 0.1,0,… (default: zeros)")] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Also compute it as plain loops, and time both forms.")] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Read only the beginning of the text, as much as the model takes.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page that works offline.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    gif: Annotated[Path | None, typer.Option(help="Write the steps as an animation.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every number.")] = None,
    why: Annotated[
        str | None,
        typer.Option(help="qkv: also split the score with this word into the parts of query and key: --why animal."),
    ] = None,
    as_text: Annotated[bool, typer.Option("--text", help="TEXT is the text itself, even if a file has that name.")] = False,
) -> None:
    """Explain how a word attends: every step of it, with its numbers, in a trained model, a recurrent layer or plain vectors."""
    outputs = {kind: path for kind, path in {"html": html, "png": png, "gif": gif, "json": json}.items() if path is not None}
    texts = [written for written in (text, other, compare) if written is not None]
    read = [path for written in texts for path in named_input(written, as_text).values()]
    inputs = {f"the text {path}": path for path in read} | {"--vectors": vectors} | model_files(model)
    separate({_flag(kind): path for kind, path in outputs.items()}, inputs)
    text, other, compare = (None if written is None else _text(written, as_text) for written in (text, other, compare))
    request = Request(
        text,
        word,
        recipe,
        other,
        compare,
        model,
        vectors,
        layer,
        head,
        layer_type,
        score,
        normalizer,
        seed,
        h0,
        loop,
        truncate,
        why,
    )
    _check(request, gif)
    console = report_console(*outputs.values())
    with ExitStack() as files:
        # A read-only file is refused before the work; all files appear together after it.
        paths = {kind: files.enter_context(whole(path)) for kind, path in outputs.items()}
        with busy("reading the text …"):
            results = explanations(request)
        terminal.render(results, console)
        _print_why(results[0], request, console)
        with busy("writing …"):
            note = write(results, paths)
    if note:
        say(console, note, style="dim", lead="· ")
    if outputs:
        say(console, "→ " + ", ".join(map(str, outputs.values())))


def _print_why(explained: Explanation, request: Request, console: Any) -> None:
    """Print the sources of the query and key of the displayed head, if --why names the key."""
    if request.why is None or explained.recorded is None:
        return
    from overt.lens import score_contributions
    from overt.lens.text.named import position_named

    shown, (layer, head) = explained.recorded(), explained.shown
    key = position_named("key", request.why, [explained.tokens], len(explained.tokens))
    result = score_contributions(
        shown.recording, request.reader.network, head=shown.heads[layer][head], query=explained.word, key=key
    )
    console.print("\n" + result.table(width=console.width), markup=False, soft_wrap=True)


def _text(text: str, as_text: bool) -> str:
    """The text of an argument: itself, or the contents of the file that it names."""
    if named_file(text, as_text) is None:
        return text
    require_torch("this recipe")
    return "\n".join(read_text(text, as_text))


def explanations(request: Request) -> list[Explanation]:
    """The recipe's explanations of the text: one, or two to compare."""
    if request.recipe == "qkv" and request.vectors is None:
        return _trained(request)
    recipe, read = _recipe(request), _reader(request)
    vectors = [read(request.text)] + ([read(request.compare)] if request.compare else [])
    other = read(request.other) if request.other else None
    return [recipe(vector, choose(vector.encoded, request.word), other=other, loop=request.loop) for vector in vectors]


def write(explained: list[Explanation], paths: dict[str, Path]) -> str:
    """Write the file of each kind (html, png, gif, json); returns a note on what the page lacks."""
    notes = []
    writers: dict[str, Callable[[Path], Any]] = {
        "html": lambda path: notes.append(_page(explained, path)),
        "png": lambda path: _plot().png(explained, path),
        "gif": lambda path: _plot().gif(explained[0], path),
        "json": lambda path: write_json(path, "explain", {"explanations": [one.to_dict() for one in explained]}),
    }
    for kind, path in paths.items():
        writers[kind](path)
    return "".join(notes)


def _trained(request: Request) -> list[Explanation]:
    require_torch("this recipe")
    from overt.explain.recipes import qkv

    model = request.reader
    options = {"layer": request.layer, "head": request.head, "truncate": request.truncate, "loop": request.loop}
    assert request.text is not None
    if request.compare is not None:
        return qkv.compare(model, request.text, request.compare, request.word, **options)
    return [qkv.qkv(model, request.text, request.word, other=request.other, **options)]


def _recipe(request: Request) -> Callable[..., Explanation]:
    """The recipe, with its own options filled in."""
    normalizer, seed = request.normalizer or "softmax", request.seed or 0
    if request.recipe == "plain":
        from overt.explain.recipes.plain_vectors import plain

        return lambda *inputs, **options: plain(*inputs, normalizer=normalizer, **options)
    require_torch("this recipe")
    if request.recipe == "qkv":
        from overt.explain.recipes.random_projections import projected

        return lambda *inputs, **options: projected(*inputs, seed=seed, **options)
    from overt.explain.recipes.hidden_states import hidden

    chosen: dict[str, Any] = {
        "layer": request.layer_type or "gru",
        "score": request.score or "additive",
        "normalizer": normalizer,
        "seed": seed,
    }
    chosen["initial"] = None if request.h0 is None else _numbers(request.h0)
    return lambda *inputs, **options: hidden(*inputs, **chosen, **options)


def _reader(request: Request) -> Callable[[str | None], sources.Vectors]:
    """The function from a sentence to its vectors: rows of the user's file, or the model's word vectors."""
    if request.vectors is not None:
        return sources.read_csv(request.vectors).sequence
    model = request.reader
    return lambda text: sources.read_vectors(model, text or "", request.truncate)


def reading_model(name: str | None = None) -> Any:
    """The model that reads the text: the named one, or all-MiniLM-L6-v2, or, if that is not installed, overt's own translator."""
    from overt.explain import text_model

    if (name is None or name in text_model.NAMES) and text_model.packaged_folder() is not None:
        return text_model.find()
    require_torch("this recipe")
    from overt.learn.translator import Translator, bundled_folder, find_model_folder

    if name is not None and find_model_folder(name) is not None:
        from overt.cli.shared.translator_as_text_model import TranslatorTextModel

        return TranslatorTextModel(Translator.load(name))
    if name is None and bundled_folder() is not None:
        from overt.cli.shared.translator_as_text_model import TranslatorTextModel

        return TranslatorTextModel(Translator.bundled(), _FALLBACK)
    return text_model.find(name)


def _check(request: Request, gif: Path | None) -> None:
    """Refuse options that cannot take effect."""
    if request.recipe not in _RECIPES:
        raise InputError(
            f"one of {', '.join(_RECIPES)} as --recipe", got=f"--recipe {request.recipe}", fix="choose one of them"
        )
    if request.text is None and request.vectors is None:
        raise InputError("a text to explain", fix='pass one: overt explain "The cat sat."')
    if request.vectors is not None and request.model is not None:
        raise InputError("vectors from a file or from a model", got="--vectors and --model", fix="leave out one of them")
    if request.other is not None and request.compare is not None:
        raise InputError(
            "--with, which joins two sentences, or --compare, which shows them separately",
            got="both",
            fix="leave out one of them",
        )
    if request.why is not None and (request.other, request.compare, request.vectors) != (None, None, None):
        got = "--with, --compare or --vectors as well"
        raise InputError("one sentence that a model reads, for --why", got=got, fix="leave out one of them")
    if gif is not None and request.compare is not None:
        raise InputError("one sentence for --gif", got="--compare as well", fix="use --html or --png for both")
    for name, recipes in _BELONGS.items():
        passed = getattr(request, name) is not None
        if passed and request.recipe not in recipes:
            raise InputError(
                f"--recipe {' or '.join(recipes)} with {_flag(name)}",
                got=f"--recipe {request.recipe}",
                fix="leave it out",
            )
        if passed and request.recipe == "qkv" and (name == "seed") == (request.vectors is None):
            other = "a trained model, in which nothing is random" if name == "seed" else "--vectors, which have one head"
            raise InputError(f"a recipe that uses {_flag(name)}", got=other, fix="leave it out")


def _numbers(text: str) -> list[float]:
    """The numbers of --h0."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError("numbers separated by commas as --h0", got=text, fix="write --h0 0.1,0,-0.2,…") from None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _page(explained: list[Explanation], path: Path) -> str:
    require_torch("a page")
    from overt.explain import html

    return html.write(explained, path)[1]


def _plot() -> Any:
    from overt.explain.picture import png

    return png
