"""docs/how-to/drop-keys.md keeps the keys that H2O and SnapKV keep, by sums of weights that are computed here all at once."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[3] / "docs/how-to/drop-keys.md"


@pytest.fixture(scope="module")
def page():
    names = {}
    for code in re.findall(r'```python exec="1"[^\n]*\n(.*?)```', PAGE.read_text(), flags=re.DOTALL):
        exec(code, names)
    return names


def weights(query, key):
    scores = (query @ key.mT / query.shape[-1] ** 0.5).double()
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key.shape[-2] - query.shape[-2])
    return torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)


def test_heavy_hitters_have_the_largest_sums_of_weights(page):
    sums = weights(page["query"], page["key"]).sum(-2)[0]
    retained = page["heavy_hitters"](page["summary"].received, budget=40, recent=10)[0]
    for head in range(4):
        ordered = sorted(range(490), key=lambda j, head=head: -float(sums[head, j]))[:30]
        assert retained[head].tolist() == [*sorted(ordered), *range(490, 500)]


def test_the_observation_window_is_the_end_of_the_prompt(page):
    query, key = page["query"], page["key"]
    sums = weights(query[..., -16:, :], key).sum(-2)[0, :, :-16]
    retained = page["observed"](query, key, budget=40, window=16, kernel=3)[0]
    for head in range(4):
        pooled = [float(sums[head, max(j - 1, 0) : j + 2].max()) for j in range(484)]
        least = min(pooled[j] for j in retained[head, :24].tolist())
        others = [number for j, number in enumerate(pooled) if j not in set(retained[head].tolist())]
        assert least >= max(others) - 1e-6
        assert retained[head, 24:].tolist() == list(range(484, 500))
