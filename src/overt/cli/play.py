"""`overt play`: a page in which a model reads what is typed, offline, in one HTML file."""

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from overt.cli.explain import reading_model
from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.cli.shared.inputs import model_files
from overt.errors import InputError, MissingExtra
from overt.explain.encoded import require_words
from overt.files import separate

SENTENCE, WORD = "The animal didn't cross the street because it was too tired.", "it"
SOURCE = "I think that the black cat is sleeping on my bed."  # the initial sentence of a translator's page
PAGE = Path("overt-play.html")


def play(
    model: Annotated[
        str | None,
        typer.Argument(
            help="minilm (all-MiniLM-L6-v2), translator, a folder with a BERT encoder of Hugging Face, or a translator of "
            "overt train. (default: minilm)"
        ),
    ] = None,
    named: Annotated[str | None, typer.Option("--model", help="The same as the argument.")] = None,
    text: Annotated[str | None, typer.Option(help="The sentence that the page begins with.")] = None,
    word: Annotated[
        str | None, typer.Option(help="The word that is chosen in it. (default: one with a strong link to another word)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"The page to write. (default: {PAGE}, which is opened)")] = None,
    small: Annotated[bool, typer.Option("--small", help="Weights of 8 bits instead of 16: half the size, less exact.")] = False,
    beside: Annotated[
        bool,
        typer.Option(
            "--beside",
            help="Write the model into files next to the page, for a website: the page has at most 400 KB for a sentence, and "
            "overt-attention.js shows it in other pages.",
        ),
    ] = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Run the model in Python behind the page: any Hugging Face model, any run of overt train."
        ),
    ] = False,
    open_page: Annotated[bool | None, typer.Option("--open/--no-open", help="Open the page in the browser.")] = None,
) -> None:
    """Write a page in which a model runs: edit the sentence, and tokens, heads, steps and maps follow. It works offline."""
    if model is not None and named is not None and model != named:
        raise InputError("one model", got=f"{model} and --model {named}", fix="leave out one of them")
    if serve and (small or beside or out is not None):
        refused = "--small" if small else "--beside" if beside else "--out"
        raise InputError("--serve, which writes nothing", got=refused, fix="leave out one of them")
    if text is not None:
        require_words(text)
    require_torch("overt play")
    name = model or named or "minilm"
    if serve:
        _serve(name, (text or SENTENCE, word if text or word else WORD), open_page is not False)
        return
    target = PAGE if out is None else out
    separate({"--out": target}, model_files(name))
    console = report_console(target)
    page = _write(name, text, word, target, small=small, beside=beside, one_head=beside)
    say(console, f"→ {target}, {page.size / 10**6:.1f} MB")
    say(console, page.rounding, style="dim", lead="· ")
    if open_page or (open_page is None and out is None):
        webbrowser.open(target.resolve().as_uri())


def _write(name: str, text: str | None, word: str | None, target: Path, **options: bool) -> Any:
    with busy("reading the sentence …"):
        explanation, model = _translator(name, text, word) or _encoder(name, text, word)
    with busy("writing the model into the page …"):
        from overt.play.page import write

        return write(explanation, model, target, **options)


def _serve(name: str, begin: tuple[str, str | None], open_page: bool) -> None:
    """Serve the page until the command is interrupted."""
    with busy("reading the sentence …"):
        reader = _served(name)
        from overt.explain.recipes.qkv import qkv
        from overt.play.serve import PageServer

        server = PageServer(reader, qkv(reader, *begin, page=True))
    console = report_console()
    say(console, f"{reader.name} reads what you type, on this machine only, until Ctrl+C:")
    console.print(server.address, soft_wrap=True)
    if open_page:
        webbrowser.open(server.address)
    server.serve_until_interrupted()


def _encoder(name: str, text: str | None, word: str | None) -> tuple[Any, Any]:
    """An encoder's explanation of the sentence, and the model in the page's form."""
    from overt.explain import text_model
    from overt.explain.recipes.qkv import qkv
    from overt.play.encoders import BertEncoder

    folder = text_model.packaged_folder() if name in text_model.NAMES else _folder(name)
    if folder is None:
        raise MissingExtra("all-MiniLM-L6-v2", needs=text_model.PACKAGE, extra="text")
    reader = text_model.find(name)
    return qkv(reader, text or SENTENCE, word if text or word else WORD, page=True), BertEncoder(folder)


def _translator(name: str, text: str | None, word: str | None) -> tuple[Any, Any] | None:
    """A translator's explanation of the sentence, and the model in the page's form; None for other models."""
    from overt.learn.translator import Translator, bundled_folder, find_model_folder

    folder = bundled_folder() if name == "translator" else find_model_folder(name)
    if folder is None and name != "translator":
        return None
    from overt.cli.shared.translator_as_text_model import explained
    from overt.play.translators import PageTranslator, require_transformer

    if folder is not None:
        require_transformer(folder, name)
    translator = Translator.bundled() if name == "translator" else Translator.load(name)
    source = text or SOURCE
    [translation] = translator.translate([source], beam=1)
    explanation = explained(translator, source, translation, word)
    assert folder is not None  # Translator.bundled refuses an installation without it
    return explanation, PageTranslator.with_lesson(folder)


def _served(name: str) -> Any:
    """The model that reads texts in Python: any model that `overt explain` accepts."""
    from overt.explain import text_model

    if name != "translator":
        return reading_model(None if name in text_model.NAMES else name)
    from overt.cli.shared.translator_as_text_model import TranslatorTextModel
    from overt.learn.translator import Translator

    return TranslatorTextModel(Translator.bundled())


def _folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise InputError(
            "minilm or a model's folder",
            got=name,
            fix="pass the folder that save_pretrained wrote, or run a model of the hub in Python: --serve",
        )
    return folder
