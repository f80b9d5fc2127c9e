"""Train the small layers of the live page's first lesson: recall, from pairs of a letter and a digit.

A layer learns with the score that learns soonest, h_i · W h_j; then it stays as it is, and the other scores learn on its states.

python docs/making/lesson_layers.py     # writes src/overt/play/hidden_states.json; two minutes on one core
"""

import base64
import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from overt.files import whole
from overt.layers import Contextual

SYMBOLS = "abcdef0123456789"
LETTERS, WIDTH, PAIRS, BATCH, STEPS, TESTS = 6, 16, (2, 5), 64, 1500, 2000
LAYERS = {"gru": "GRU", "rnn": "plain RNN", "conv": "1-D convolution", "linear": "linear layer"}
SCORES = ("general", "additive", "dot")  # the first one trains the layer
OUT = Path(__file__).parents[2] / "src/overt/play/hidden_states.json"


class Recall(nn.Module):
    """A layer, the context of its states or none, and a linear map of [h_i, c_i] to the ten digits."""

    def __init__(self, layer: str, score: str | None):
        super().__init__()
        kinds = {"gru": nn.GRU, "rnn": nn.RNN}
        if layer in kinds:
            inner: nn.Module = kinds[layer](len(SYMBOLS), WIDTH, batch_first=True)
        else:
            inner = nn.Conv1d(len(SYMBOLS), WIDTH, 3, padding=1) if layer == "conv" else nn.Linear(len(SYMBOLS), WIDTH)
        self.order = layer == "conv"
        self.states = inner if score is None else Contextual(inner, score)  # type: ignore[arg-type]
        self.next = nn.Linear(WIDTH if score is None else 2 * WIDTH, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the ten digits (B, n, 10) at each symbol of sequences (B, n)."""
        x = nn.functional.one_hot(ids, len(SYMBOLS)).float()
        states = self.states(x.mT if self.order else x)
        states = states[0] if isinstance(states, tuple) else states
        return self.next(states.mT if self.order else states)


def examples(count: int, pairs: int) -> tuple[Tensor, Tensor]:
    """Sequences of so many pairs and one of their letters (B, n), and the digit that belongs to each symbol, its letter's (B, n)."""
    letters = torch.rand(count, LETTERS).argsort(-1)[:, :pairs]
    digits = torch.randint(0, 10, (count, pairs))
    wanted = torch.randint(0, pairs, (count, 1))
    body = torch.stack([letters, digits + LETTERS], -1).flatten(1)
    return torch.cat([body, letters.gather(1, wanted)], 1), torch.cat(
        [digits.repeat_interleave(2, 1), digits.gather(1, wanted)], 1
    )


def trained(layer: str, score: str | None, states_of: Recall | None = None) -> tuple[Recall, float]:
    """A model trained from seed 0, and how often it is right at the end of sequences of five pairs that it has not seen.

    With the states of another model, which stay as they are, only what stands behind them is trained.
    """
    torch.manual_seed(0)
    model = Recall(layer, score)
    if states_of is not None and isinstance(model.states, Contextual) and isinstance(states_of.states, Contextual):
        model.states.layer = states_of.states.layer.requires_grad_(False)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    for _ in range(STEPS):
        ids, digits = examples(BATCH, int(torch.randint(PAIRS[0], PAIRS[1] + 1, ())))
        optimizer.zero_grad()
        letters = ids < LETTERS
        nn.functional.cross_entropy(model(ids)[letters], digits[letters]).backward()
        optimizer.step()
        schedule.step()
    ids, digits = examples(TESTS, PAIRS[1])
    with torch.no_grad():
        return model, float((model(ids)[:, -1].argmax(-1) == digits[:, -1]).float().mean())


def packed(model: Recall, layer: bool) -> dict[str, dict[str, object]]:
    """The parameters as little-endian float16 in base64, which the page reads; those of the layer itself only if `layer`."""
    return {
        name: {"shape": list(each.shape), "data": base64.b64encode(each.detach().numpy().astype("<f2").tobytes()).decode()}
        for name, each in model.state_dict().items()
        if layer or not name.startswith("states.layer.")
    }


def main() -> None:
    """Train all of them and write the file."""
    models, alone = [], {}
    for layer in LAYERS:
        alone[layer] = trained(layer, None)[1]
        first = None
        for score in SCORES:
            model, accuracy = trained(layer, score, first)
            parameters = packed(model, layer=first is None)
            first = first or model
            models.append({"layer": layer, "score": score, "accuracy": accuracy, "parameters": parameters})
            print(layer, score, f"{accuracy:.3f}", "without context", f"{alone[layer]:.3f}", file=sys.stderr)
    with whole(OUT) as path:
        text = json.dumps(
            {"symbols": SYMBOLS, "width": WIDTH, "pairs": PAIRS[1], "tests": TESTS, "alone": alone, "models": models}
        )
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
