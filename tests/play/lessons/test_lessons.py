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
def changed_model(model, off=(), temperature=1.0, causal=False, divided=True, placed=True, cuts=()):
    """The network with the formula of its attention changed, by overt.attend."""
    network = model.network
    layers = list(network.encoder["layer"].children())
    positions = network.embeddings.position_embeddings.weight

    def attended(number, module, x, mask=None):
        query, key, value = (
            each(x).unflatten(-1, (module.heads, -1)).transpose(1, 2) for each in (module.query, module.key, module.value)
        )
        score = overt.Dot(None if divided else 1.0)
        allowed = torch.ones(module.heads, x.shape[1], x.shape[1], dtype=torch.bool)
        for layer, *pair in cuts:
            allowed[tuple(pair)] &= layer != number
        mask = overt.masks.Dense(allowed) & overt.Causal() if causal else overt.masks.Dense(allowed)
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
def states_of(model, text, **changes):
    ids = torch.tensor([model.encode(text).ids])
    with changed_model(model, **changes) as network:
        return network(ids)[0].double().numpy()


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("panel", ["states", "bottleneck", "joining", "switches", "reweight"])
def test_lessons_keep_to_the_width_and_to_the_rules(written_little, opened, panel, width):
    live = opened_at(opened, written_little, panel, width=width, height=900, dark=width == 400)
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
    outside = "Array.from(viewer.querySelectorAll('[role=tabpanel]:not([hidden]) .card')).filter((card) => card.scrollWidth > card.clientWidth + 1).length"
    assert live.page.ask(outside) == 0
    assert live.page.broken_rules() == []
    assert live.page.complaints == []


@pytest.mark.slow
def test_switching_heads_off_turns_the_sentence_as_in_python(written_little, opened, little):
    live = opened_at(opened, written_little, "switches")
    for text, off, changes in [
        (TIRED, [[2, 3], [1, 1]], {}),
        (RIVER, [[1, head] for head in range(4)], {"temperature": 1.5}),
        (RIVER, [], {"causal": True, "temperature": 0.5}),
        (TIRED, [[0, 0]], {"divided": False}),
    ]:
        if live.page.ask("viewer.store.get().text") != text:
            live.type(text)
        names = ",".join(f"{layer}.{head}" for layer, head in off)
        settings = {"temperature": 1, "causal": False, "divided": True, "head": 2 * 4 + 3, "token": 3}
        page = shown(live, **settings | {"off": names} | changes)
        before, after = states_of(little, text), states_of(little, text, off=off, **changes)
        expected = cosine(before.mean(0), after.mean(0))
        assert float(page.ask("document.querySelector('[data-cosine]').textContent")) == pytest.approx(expected, abs=3e-3)
        weights = {row[0].split(":")[0]: float(row[2]) for row in table(page, ".panel.switches section:not(.second)")}
        assert sum(weights.values()) == pytest.approx(1, abs=0.4)  # the strongest keys, not all
        assert page.complaints == []


def test_a_cut_holds_together_with_a_head_that_is_off_and_a_temperature(written_little, opened, little):
    live = opened_at(opened, written_little, "switches")
    cuts, changes = [(0, 1, 10, 2), (2, 3, 10, 8)], {"temperature": 1.5, "causal": True}
    shown(live, head=2 * 4 + 3, token=10, off="1.1", cut="0.1.10.2,2.3.10.8", **changes)
    live.page.until("viewer.recording.cut?.names.length === 2", 30)
    page = shown(live, off="1.2")
    after = states_of(little, TIRED, off=[[1, 2]], cuts=cuts, **changes)
    plain = states_of(little, TIRED)
    turned = float(page.ask("document.querySelector('[data-cosine]').textContent"))
    assert turned == pytest.approx(cosine(plain.mean(0), after.mean(0)), abs=3e-3)
    rows = {row[0]: row[1:] for row in table(page, ".panel.switches section:not(.second)")}
    assert float(rows["street"][1]) == 0
    assert float(rows["street"][0]) > 0, "the model as it is has no cut"
    assert "the cut arcs are cut here, too" in page.ask("document.querySelector('.panel.switches').textContent")
    live.page.ask("void viewer.store.set({ cut: '0.0.0.0' })")
    live.page.until("document.querySelector('.panel.switches').textContent.includes('Expected a cut that leaves')", 30)
    assert page.complaints == []


def test_the_row_beside_it_is_the_changed_heads(written_little, opened, little):
    live = opened_at(opened, written_little, "switches")
    shown(live, head=2 * 4 + 3, token=10, temperature=2)
    rows = table(live.page, ".panel.switches section:not(.second)")
    captured = []
    layer = list(little.network.encoder["layer"].children())[2].attention.self
    hooks = [each.register_forward_hook(lambda *call: captured.append(call[-1])) for each in (layer.query, layer.key)]
    states_of(little, TIRED, temperature=2.0)
    for hook in hooks:
        hook.remove()
    query, key = (each[0].unflatten(-1, (4, -1))[:, 3] for each in captured)
    weights = (query[10] @ key.T / math.sqrt(12) / 2).softmax(-1)
    expected = sorted(weights.tolist(), reverse=True)
    assert sorted((float(row[2]) for row in rows), reverse=True) == pytest.approx(expected[: len(rows)], abs=2e-3)


def test_shuffled_words_keep_their_vectors_only_without_positions(written_little, opened, little):
    live = opened_at(opened, written_little, "switches")
    for seed in (5, 77):
        page = shown(live, shuffle=seed)
        words = page.ask("document.querySelector('[data-shuffled]').textContent").split()
        assert sorted(words) == sorted(TIRED.lower().split())
        assert words != TIRED.lower().split()
        with_positions, without = table(page, ".second:has([data-shuffled])")
        tokens = [little.encode(word).ids[1:-1] for word in words]
        ids, shuffled = little.encode(TIRED).ids, [101, *(each for word in tokens for each in word), 102]
        assert sorted(ids) == sorted(shuffled)
        for row, placed in ((with_positions, True), (without, False)):
            with changed_model(little, placed=placed) as network, torch.no_grad():
                means = [network(torch.tensor([each]))[0].double().mean(0).numpy() for each in (ids, shuffled)]
            assert float(row[1]) == pytest.approx(cosine(*means), abs=1e-3 if placed else 1e-6)
        assert float(without[2].replace("−", "-")) < 1e-5
        assert float(with_positions[2]) > 0.1
    page = shown(live, shuffle=0)
    assert {row[1] for row in table(page, ".second:has([data-shuffled])")} == {"1.0000000"}


def test_each_heads_part_of_the_joined_vector_is_pythons(written_little, opened, little):
    live = opened_at(opened, written_little, "joining")
    for text, layer, token in ((TIRED, 2, 10), (RIVER, 1, 4)):
        if text != TIRED:
            live.type(text)
        page = shown(live, head=4 * layer + 3, token=token)
        rows = table(page, ".panel.joining > div:first-child > .card:last-child")
        attention = list(little.network.encoder["layer"].children())[layer].attention
        captured = []
        hook = attention.self.register_forward_hook(lambda *call, to=captured: to.append(call[-1]))
        states_of(little, text)
        hook.remove()
        outputs, matrix = captured[0][0, token].unflatten(-1, (4, 12)), attention.output.dense.weight.unflatten(-1, (4, 12))
        parts = torch.cat([torch.einsum("hd,chd->hc", outputs, matrix), attention.output.dense.bias[None]]).double()
        total = parts.sum(0)
        shares = (parts @ total / (total @ total)).tolist()
        assert [float(row[3].replace("−", "-")) for row in rows] == pytest.approx([*shares, 1], abs=3e-3)
        assert [row[0] for row in rows] == [*(f"H{head}" for head in range(4)), "bias", "sum"]
        differs = page.ask("document.querySelector('.panel.joining .card:last-child table + p').textContent").split("by ")[1]
        assert float(differs.rstrip(".").replace("−", "-")) < 1e-5


def drawn(count, seed):
    """The page's normal numbers: sums of twelve uniform ones of a linear congruential generator."""
    numbers = np.empty(12 * count)
    for i in range(len(numbers)):
        seed = (seed * 1664525 + 1013904223) % 2**32
        numbers[i] = seed / 2**32
    return numbers.reshape(count, 12).sum(1) - 6


def test_the_steps_in_the_papers_sizes_are_what_attend_gives(written_little, opened):
    live = opened_at(opened, written_little, "joining")
    for dim, token in ((64, 2), (16, 7)):
        rows = table(shown(live, dim=dim, token=token), ".panel.joining > div:first-child > .card:first-child")
        assert len(rows) == 12
        numbers = drawn(12 * 512 + 2 * 512 * dim, 1)
        x = torch.tensor(numbers[: 12 * 512]).view(12, 512)
        to_query, to_key = torch.tensor(numbers[12 * 512 :]).view(2, 512, dim) / math.sqrt(512)
        key = x @ to_key
        steps = overt.steps((x @ to_query)[token : token + 1], key, key)
        shown_rows = np.array([[float(cell.replace("−", "-")) for cell in row[1:]] for row in rows])
        assert shown_rows[:, 1] == pytest.approx(steps.scores[0].numpy(), abs=6e-3)
        assert shown_rows[:, 0] == pytest.approx(steps.scores[0].numpy() * math.sqrt(dim), abs=6e-3)
        assert shown_rows[:, 2] == pytest.approx(steps.weights[0].numpy(), abs=6e-4)
        undivided = overt.attend(
            (x @ to_query)[token : token + 1], key, torch.eye(12, dtype=torch.float64), score=overt.Dot(1.0)
        )
        assert shown_rows[:, 3] == pytest.approx(undivided[0].numpy(), abs=6e-4)


def strongest_words(model, text, token):
    """Of the word in each head: the other word that it gives most to, and how much."""
    encoded = model.encode(text)
    with overt.lens.record(model.network) as recording, torch.no_grad():
        model.run(encoded)
    rows = [recording[layer, head].weights()[0, token].clone() for layer in range(6) for head in range(12)]
    for row in rows:
        row[[0, token, -1]] = 0
    return [(str(encoded.tokens[int(row.argmax())]), float(row.max())) for row in rows]


@pytest.mark.few_cases(1)
def test_the_word_in_another_sentence_is_read_as_python_reads_it(written, opened, minilm):
    live = opened_at(opened, written, "switches")
    other = "The animal didn't cross the street because it was too wide."
    page = shown(live, head=5 * 12 + 11, token=10)
    here, there = (strongest_words(minilm, text, 10) for text in (TIRED, other))
    half = [sum(word == "animal" and weight >= 0.5 for word, weight in each) for each in (here, there)]
    said = page.ask("document.querySelector('[data-beside]').textContent")
    assert (
        said == f"“it” gives “animal” half of its weight and more in {half[0]} of 72 heads; in the other sentence in {half[1]}."
    )
    assert half[0] == 2
    rows = table(page, ".panel.switches .second:has(#beside)")
    order = sorted(range(72), key=lambda head: -max(here[head][1], there[head][1]))[: len(rows)]
    assert [row[0] for row in rows] == [f"L{head // 12}H{head % 12}" for head in order]
    for head, row in zip(order, rows, strict=True):
        for cell, (word, weight) in ((row[1], here[head]), (row[2], there[head])):
            assert cell.split(":")[0].startswith(word)
            assert float(cell[-5:]) == pytest.approx(weight, abs=2e-3)
