"""Recordings of small random Hugging Face models, beside what the models say themselves: python -m benchmarks.lens.families

For each family and path, over all kinds of padding: whether outputs are equal to the bit with and without recording, in one pass
and while writing text (greedy and beams); the largest difference of any weight from the eager model's `output_attentions`; the
largest difference between recomputed and the model's own attention output, in float32 and in bfloat16 beside its rounding bound;
and how many layers were recorded, of how many. Rows of padding queries that may attend to nothing are left out of the weights'
difference where the path is not "eager" itself.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "lens" / "helpers"))
from families import FAMILIES, LENGTH, Family, attentions, same, written
from overt.lens import record

HEAD = ("family", "path", "equal to the bit", "when writing", "weights", "residual", "bfloat16", "its bound", "layers")


def row(family: Family, path: str) -> tuple[str, ...]:
    """One line of the table."""
    model, half = family.build(path), family.build(path, torch.bfloat16)
    equal, weights, residual, rounded, bound, layers = True, 0.0, 0.0, 0.0, 0.0, set()
    for side in family.sides:
        arguments = family.inputs(side)
        plain = model(**arguments)
        with record(model) as recording:
            equal &= same(model(**arguments), plain)
        weights = max(weights, weight_difference(family, path, recording, arguments))
        residual = max(residual, recording.verify().difference)
        layers.add(f"{sum(name in family.layers for name in recording.layers)}/{len(family.layers)}")
        with record(half) as recording:
            half(**{name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in arguments.items()})
        verified = recording.verify()
        rounded, bound = max((rounded, bound), (verified.difference, verified.bound))
    writing = "yes" if writes_the_same(family, model) else "NO"
    return (
        family.name,
        path,
        "yes" if equal else "NO",
        writing if family.generates else "–",
        f"{weights:.1e}",
        f"{residual:.1e}",
        f"{rounded:.1e}",
        f"{bound:.1e}",
        ", ".join(sorted(layers)),
    )


def weight_difference(family: Family, path: str, recording, arguments) -> float:
    """The largest difference of a weight from those that the eager model returns."""
    expected = attentions(family.build("eager")(**arguments, output_attentions=True))
    largest = 0.0
    for call, each in enumerate(expected):
        mine = torch.stack([recording[call, head].weights() for head in range(each.shape[1])], dim=2)  # (B, Q, H, K)
        difference = (mine - each.transpose(1, 2)).abs()
        idle = family.idle(arguments, LENGTH)
        largest = max(largest, float(difference[~idle].max() if path != "eager" and idle.any() else difference.max()))
    return largest


def writes_the_same(family: Family, model) -> bool:
    """Whether text is the same with and without recording, greedy and by beams."""
    for beams in (1, 3) if family.generates else ():
        plain = written(model, family, num_beams=beams)
        with record(model):
            recorded = written(model, family, num_beams=beams)
        if not (torch.equal(plain.sequences, recorded.sequences) and same(plain.scores, recorded.scores)):
            return False
    return True


def main() -> None:
    """Print the table."""
    with torch.no_grad():
        rows = [HEAD, *(row(family, path) for family in FAMILIES for path in family.paths)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    for line in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
