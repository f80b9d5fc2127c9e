import contextlib

import pytest
from live_page import Typed, little_model, write


@pytest.fixture
def opened(chromium):
    """Opens a live page."""
    pages = []

    def open_page(path, **how):
        page = chromium.page()
        pages.append(page)
        page.open(path, **how)
        if how.get("script", True):
            page.until("document.querySelector('.typing') !== null", 30)
        return Typed(page)

    yield open_page
    for each in pages:
        with contextlib.suppress(AssertionError):
            each.call("Page.close")


@pytest.fixture(scope="session")
def written(minilm, tmp_path_factory):
    """The page of MiniLM, with weights of 16 bits."""
    return write(minilm, tmp_path_factory.mktemp("play") / "live.html")


@pytest.fixture(scope="session")
def written_small(minilm, tmp_path_factory):
    """The same with weights of 8 bits."""
    return write(minilm, tmp_path_factory.mktemp("play") / "small.html", small=True)


@pytest.fixture(scope="session")
def little(minilm, tmp_path_factory):
    """A small model with MiniLM's tokenizer."""
    return little_model(tmp_path_factory.mktemp("little"), minilm)


@pytest.fixture(scope="session")
def written_little(little, tmp_path_factory):
    """Its page, 5 MB."""
    return write(little, tmp_path_factory.mktemp("play") / "little.html")
