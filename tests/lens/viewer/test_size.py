import numpy as np
import pytest
import torch

import overt
from packed_models import Attends
from reading_pages import network

TEXT = "The animal did not cross the street because it was too tired. "


def read(minilm, count):
    """MiniLM reading so many tokens."""
    encoded = minilm.encode(TEXT * 40, truncate=True)
    ids = [*encoded.ids[: count - 1], encoded.ids[-1]]
    tokens = [*encoded.tokens[: count - 1], encoded.tokens[-1]]
    with torch.no_grad(), overt.lens.record(minilm.network, key_tokens=tokens) as recording:
        minilm.network(torch.tensor([ids]))
    return recording


@pytest.mark.parametrize(("count", "most"), [pytest.param(128, 4e6, marks=pytest.mark.slow), (512, 12e6)])
@pytest.mark.slow
def test_minilms_heads_all_together_fit(minilm, count, most):
    assert len(read(minilm, count).page()) < most


@pytest.mark.few_cases(1)
def test_minilms_page_is_complete_without_a_network_and_its_weights_are_pythons(minilm, opened):
    recording = read(minilm, 128)
    page = opened(recording)
    page.press("2")
    page.until("document.querySelector('.area .over').dataset.drawn")
    for index in (0, 17, 71):
        row = page.ask(f"Array.from(viewer.recording.heads[{index}].weightsRow(40))")
        layer, head = divmod(index, 12)
        np.testing.assert_allclose(row, recording[layer, head].weights(40)[0, 0], atol=1e-3)
    assert page.ask("viewer.recording.heads.length") == 72
    assert network(page) == []
    assert page.complaints == []


@pytest.mark.slow
def test_one_head_of_32768_tokens_fits_and_its_weights_are_pythons(opened):
    torch.manual_seed(0)
    query, key, value = (1.5 * torch.randn(1, 1, 32_768, 64) for _ in range(3))
    key[0, 0, 20_000] = 3 * query[0, 0, 9_000]
    tokens = [f"token {index}" for index in range(32_768)]
    model = Attends()
    with torch.no_grad(), overt.lens.record(model, key_tokens=tokens) as recording:
        model(query, key, value)
    assert len(recording.page()) < 24e6
    page = opened(recording)
    for row in (0, 9_000, 32_767):
        result = page.ask(f"Array.from(viewer.recording.heads[0].weightsRow({row}))")
        np.testing.assert_allclose(result, recording[0, 0].weights(row)[0, 0], atol=1e-3)
