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


@pytest.fixture(scope="session")
def as_stored(little):
    """The small model with the weights as the page holds them: what differs then is rounding in float32."""
    import torch

    from overt.explain.minilm import MiniLM
    from overt.play.encoders import BertEncoder
    from overt.play.weights import restored

    encoder = BertEncoder(little.folder)
    model = MiniLM(encoder.config)
    state = {
        name: torch.from_numpy(restored(array, False) if array.ndim == 2 else array)
        for name, array in encoder.state.items()
        if name in model.state_dict()
    }
    # A token's and the first text's position are one table in the page.
    both = encoder.state["embeddings.position_embeddings.weight"] + encoder.state["embeddings.token_type_embeddings.weight"][0]
    state["embeddings.position_embeddings.weight"] = torch.from_numpy(restored(both, False))
    state["embeddings.token_type_embeddings.weight"] = torch.zeros_like(state["embeddings.token_type_embeddings.weight"])
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)
