"""The live page's lessons: what they show is what Python computes, for settings and sentences of the test's own."""

import contextlib
import math

import numpy as np
import pytest
import torch
from live_page import TIRED, opened_at, shown, table

import overt

RIVER = "When the river rose, nobody in the old town slept well."


@contextlib.contextmanager
def changed_model(minilm, off=(), temperature=1.0, causal=False, divided=True, placed=True):
    """The network with the formula of its attention changed, by overt.attend."""
    network = minilm.network
    layers = list(network.encoder["layer"].children())
    positions = network.embeddings.position_embeddings.weight

    def attended(number, module, x, mask=None):
        query, key, value = (
            each(x).unflatten(-1, (module.heads, -1)).transpose(1, 2) for each in (module.query, module.key, module.value)
        )
        score = overt.Dot(None if divided else 1.0)
        mask = overt.Causal() if causal else None
        output = overt.attend(query, key, value, score=score, mask=mask, normalizer=overt.Softmax(temperature))
        for layer, head in off:
            if layer == number:
                output[:, head] = 0
        return output.transpose(1, 2).flatten(2)

    before = positions.data.clone()
    if not placed:
        positions.data[:] = before[0]
    for number, layer in enumerate(layers):
        layer.attention.self.forward = lambda *call, n=number, m=layer.attention.self: attended(n, m, *call)
    try:
        yield network
    finally:
        positions.data[:] = before
        for layer in layers:
            del layer.attention.self.forward


@torch.no_grad()
def states_of(minilm, text, order=None, **changes):
    ids = torch.tensor([minilm.encode(text).ids])
    with changed_model(minilm, **changes) as network:
        return network(ids if order is None else ids[:, order])[0].double().numpy()


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("panel", ["switches", "reweight"])
def test_lessons_keep_to_the_width_and_to_the_rules(written_small, opened, panel, width):
    live = opened_at(opened, written_small, panel, width=width, height=900, dark=width == 400)
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
    outside = "Array.from(viewer.querySelectorAll('[role=tabpanel]:not([hidden]) .card')).filter((card) => card.scrollWidth > card.clientWidth + 1).length"
    assert live.page.ask(outside) == 0
    assert live.page.broken_rules() == []
    assert live.page.complaints == []


def test_switching_heads_off_turns_the_sentence_as_in_python(written, opened, minilm):
    live = opened_at(opened, written, "switches")
    for text, off, changes in [
        (TIRED, [[5, 11], [3, 1]], {}),
        (RIVER, [[2, head] for head in range(12)], {"temperature": 1.5}),
        (RIVER, [], {"causal": True, "temperature": 0.5}),
        (TIRED, [[0, 0]], {"divided": False}),
    ]:
        if live.page.ask("viewer.store.get().text") != text:
            live.type(text)
        names = ",".join(f"{layer}.{head}" for layer, head in off)
        settings = {"temperature": 1, "causal": False, "divided": True, "head": 5 * 12 + 11, "token": 3}
        page = shown(live, **settings | {"off": names} | changes)
        before, after = states_of(minilm, text), states_of(minilm, text, off=off, **changes)
        expected = cosine(before.mean(0), after.mean(0))
        assert float(page.ask("document.querySelector('[data-cosine]').textContent")) == pytest.approx(expected, abs=3e-3)
        weights = {row[0].split(":")[0]: float(row[2]) for row in table(page, ".panel.switches section:not(.second)")}
        assert sum(weights.values()) == pytest.approx(1, abs=0.4)  # the strongest keys, not all
        assert page.complaints == []


def test_the_row_beside_it_is_the_changed_heads(written, opened, minilm):
    live = opened_at(opened, written, "switches")
    shown(live, head=5 * 12 + 11, token=10, temperature=2)
    rows = table(live.page, ".panel.switches section:not(.second)")
    captured = []
    layer = list(minilm.network.encoder["layer"].children())[5].attention.self
    hooks = [each.register_forward_hook(lambda *call: captured.append(call[-1])) for each in (layer.query, layer.key)]
    states_of(minilm, TIRED, temperature=2.0)
    for hook in hooks:
        hook.remove()
    query, key = (each[0].unflatten(-1, (12, -1))[:, 11] for each in captured)
    weights = (query[10] @ key.T / math.sqrt(32) / 2).softmax(-1)
    expected = sorted(weights.tolist(), reverse=True)
    assert sorted((float(row[2]) for row in rows), reverse=True) == pytest.approx(expected[: len(rows)], abs=2e-3)
    assert rows[0][0] == "animal"


def test_shuffled_words_keep_their_vectors_only_without_positions(written, opened, minilm):
    live = opened_at(opened, written, "switches")
    for seed in (5, 77):
        page = shown(live, shuffle=seed)
        words = page.ask("document.querySelector('[data-shuffled]').textContent").split()
        assert sorted(words) == sorted(TIRED.lower().split())
        assert words != TIRED.lower().split()
        with_positions, without = table(page, ".second")
        tokens = [minilm.encode(word).ids[1:-1] for word in words]
        ids, shuffled = minilm.encode(TIRED).ids, [101, *(each for word in tokens for each in word), 102]
        assert sorted(ids) == sorted(shuffled)
        for row, placed in ((with_positions, True), (without, False)):
            with changed_model(minilm, placed=placed) as network, torch.no_grad():
                means = [network(torch.tensor([each]))[0].double().mean(0).numpy() for each in (ids, shuffled)]
            assert float(row[1]) == pytest.approx(cosine(*means), abs=1e-3 if placed else 1e-6)
        assert float(without[2].replace("−", "-")) < 1e-5
        assert float(with_positions[2]) > 0.1
    page = shown(live, shuffle=0)
    assert {row[1] for row in table(page, ".second")} == {"1.0000000"}
