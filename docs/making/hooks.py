"""What mkdocs is told beside its configuration: pages in one directory, with one seed; links that leave the site; recordings beside it."""

import json
import logging
import os
import random
import re
import shutil
import sys
import warnings
from pathlib import Path

import llms
import matplotlib
import torch
from folded import folded
from glossary import GLOSSARY, linked
from links import faults

ROOT = Path(__file__).parents[2]
LOG = logging.getLogger("mkdocs.overt")
RECORDINGS = ROOT / "build" / "recordings"
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((\.\./[^)\s]+)\)")


def on_config(config):
    """Let blocks find pictures.py and benchmarks, and the commands of the Python that builds the site."""
    sys.path += [str(Path(__file__).parent), str(ROOT)]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shutil.rmtree(RECORDINGS, ignore_errors=True)
    return config


def on_page_markdown(markdown, page, config, files):
    """Every page starts in the repository's root, with the same random numbers and settings, whatever the page before did."""
    os.chdir(ROOT)
    random.seed(0)
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    warnings.resetwarnings()
    matplotlib.rcdefaults()
    markdown = with_notebook(markdown, page.file.src_uri, os.environ.get("GITHUB_REPOSITORY"))
    markdown = linked(markdown, page.file.src_uri, GLOSSARY.read_text(encoding="utf-8"))
    return LINK.sub(lambda link: inside(link, page, Path(config.docs_dir)), markdown)


def on_page_content(html, page, config, files):
    """Formulas are typeset; in the gallery, code is folded."""
    from formulas import typeset  # its library is not among those of the tests, which read these hooks too

    return typeset(folded(html) if page.file.src_uri == "gallery.md" else html)


def with_notebook(markdown: str, source: str, repository: str | None) -> str:
    """A chapter with a button under its heading that opens its notebook, where the site is built for a repository on GitHub."""
    heading, line, rest = markdown.partition("\n")
    if not repository or not source.startswith("chapters/") or not heading.startswith("# "):
        return markdown
    name = f"{repository}/blob/main/notebooks/{Path(source).stem}.ipynb"
    colab, github = f"https://colab.research.google.com/github/{name}", f"https://github.com/{name}"
    return f"{heading}{line}\n[Open in Colab]({colab}){{ .md-button }} [See the notebook]({github}){{ .md-button }}\n{rest}"


def inside(link: re.Match, page, docs: Path) -> str:
    """A link to a file of the repository that is no page of the site becomes the file's name."""
    text, target = link.groups()
    index = (docs / page.file.src_uri).parent / target.partition("#")[0]
    file = Path(os.path.normpath(index))
    if file.is_relative_to(docs):
        return link[0]
    if not file.exists():
        return link[0]  # mkdocs warns of it
    return f"{text} (`{file.relative_to(ROOT)}`)"


def on_post_build(config):
    """Add recordings, the search's worker as text (assets/iframe-worker.js says why), llms.txt and llms-full.txt; warn of dead links."""
    site = Path(config.site_dir)
    if RECORDINGS.is_dir():
        shutil.copytree(RECORDINGS, site / RECORDINGS.name, dirs_exist_ok=True)
    [worker] = site.glob("assets/javascripts/workers/search.*.js")
    text = re.sub(r"//# sourceMappingURL=.*", "", worker.read_text(encoding="utf-8"))
    (site / "assets" / "worker-text.js").write_text(f"window.searchWorker = {json.dumps(text)}\n", encoding="utf-8")
    nav, docs = config.nav, Path(config.docs_dir)
    (site / "llms.txt").write_text(llms.index(config.site_name, config.site_description, nav, docs), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms.full(nav, docs), encoding="utf-8")
    for fault in faults(site):
        LOG.warning(fault)
