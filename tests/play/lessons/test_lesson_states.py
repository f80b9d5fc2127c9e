"""The lesson of hidden states: the page's layers, scores, weights and digits are those of torch's layers inside of Contextual."""

import base64
import json
import re
from importlib import resources

import numpy as np
import pytest
import torch
from live_page import opened_at, shown, table
from torch import nn

from overt.layers import Contextual

TRAINED = json.loads(resources.files("overt").joinpath("play/hidden_states.json").read_text(encoding="utf-8"))
SYMBOLS = TRAINED["symbols"]


class Recall(nn.Module):
    """The trained model of a layer and a score, with float16's parameters."""

    def __init__(self, layer, score, parameters):
        super().__init__()
        width, symbols = TRAINED["width"], len(SYMBOLS)
        inner = {
            "gru": lambda: nn.GRU(symbols, width, batch_first=True),
            "rnn": lambda: nn.RNN(symbols, width, batch_first=True),
            "conv": lambda: nn.Conv1d(symbols, width, 3, padding=1),
            "linear": lambda: nn.Linear(symbols, width),
        }[layer]()
        self.states, self.next, self.layer = Contextual(inner, score), nn.Linear(2 * width, 10), layer
        arrays = {
            name: np.frombuffer(base64.b64decode(each["data"]), "<f2").reshape(each["shape"])
            for name, each in parameters.items()
        }
        self.load_state_dict({name: torch.from_numpy(array.astype(np.float64)) for name, array in arrays.items()})
        self.double()

    @torch.no_grad()
    def read(self, text):
        """Everything that the page computes for each symbol: states, weights, [h, c], and the probabilities of the digits."""
        x = torch.eye(len(SYMBOLS), dtype=torch.float64)[[SYMBOLS.index(each) for each in text]][None]
        output = self.states(x.mT).mT if self.layer == "conv" else self.states(x)
        output = output[0] if isinstance(output, tuple) else output
        states = output[..., : TRAINED["width"]]
        weights = self.states.attention.weights(states)
        return [each[0].numpy() for each in (states, weights, output, self.next(output).softmax(-1))]


@pytest.mark.parametrize("layer", ["gru", "rnn", "conv", "linear"])
@pytest.mark.few_cases(1)
def test_weights_and_digits_are_those_of_torchs_layers(written_little, opened, layer):
    live = opened_at(opened, written_little, "states")
    for score, pairs, at in (("additive", "e5 a2 f9 a", 6), ("dot", "c0 c1 b8 d3 a4 b", 10), ("general", "f7 e1 f", 1)):
        of = {each["score"]: each["parameters"] for each in TRAINED["models"] if each["layer"] == layer}
        parameters = {name: each for name, each in of["general"].items() if name.startswith("states.layer.")} | of[score]
        states, weights, joined, digits = Recall(layer, score, parameters).read(pairs.replace(" ", ""))
        page = shown(live, cell=layer, f=score, pairs=pairs, at=at)
        rows = table(page, ".panel.states > div:first-child")
        computed = page.ask(
            "(({ states, weights, joined, shares }) => [states.map((h) => Array.from(h)), ...[weights, joined, shares].map((each) => Array.from(each))])"
            "(document.querySelector('.panel.states').computed)"
        )
        for shown_here, expected in zip(computed, (states, weights[at], joined[at], digits[at]), strict=True):
            assert np.abs(np.array(shown_here) - expected).max() < 1e-12
        assert [row[0] for row in rows] == list(pairs.replace(" ", ""))
        assert [float(row[3]) for row in rows] == pytest.approx(weights[at].tolist(), abs=6e-4)
        assert page.ask("document.querySelector('[data-digit]').textContent") == str(digits[at].argmax())
        said = page.ask("document.querySelector('.panel.states .large-number span').textContent")
        for digit, share in re.findall(r"(\d) (\d\.\d{3})", said):
            assert float(share) == pytest.approx(digits[at][int(digit)], abs=6e-4)
        assert page.complaints == []


def test_what_is_no_pair_gets_a_sentence(written_little, opened):
    live = opened_at(opened, written_little, "states")
    live.page.ask(
        "void (() => { const field = document.getElementById('pairs'); field.value = 'a1 <b>'; field.dispatchEvent(new Event('input')); })()"
    )
    assert (
        live.page.ask("document.querySelector('.panel.states .wrong').textContent")
        == "Expected letters from a to f and digits, got “<”."
    )
    assert live.page.ask("viewer.store.get().pairs") == "a3 b7 c1 d4 b"
