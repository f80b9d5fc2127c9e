"""One model in every way: alone, recorded under each of its own paths, and on overt's backend; and what is to be said of each."""

import copy
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import overt
from benchmarks.matrix import edits, linear
from benchmarks.matrix.judge import Judge, judged, listed, near
from benchmarks.matrix.linear import LinearJudge

# The verdicts, the best first.
VERDICTS = ("exact", "whole", "missing", "refused", "wrong", "crashed")
# A run by its name: on a path it gives its outputs, and which queries (B, Q) are no padding.
Run = tuple[str, Callable[[str], tuple[dict[str, Tensor], Tensor | None]]]
OUTPUT, GRADIENT = 1e-5, 1e-4


@dataclass
class Verdict:
    """What is said of one way: the verdict, why, what was measured, and why an edit of it is not exact."""

    verdict: str
    why: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    edit_reason: str = ""

    def plain(self) -> dict[str, Any]:
        """As it is written."""
        numbers = {name: float(f"{value:.2g}") if isinstance(value, float) else value for name, value in self.numbers.items()}
        numbers = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        reasons = {name: text for name, text in (("why", self.why), ("edit why", self.edit_reason)) if text}
        return {"verdict": self.verdict} | reasons | numbers


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict that stands for several runs: the worst of them, one that has something to say before others, with the numbers of all."""
    verdict = max(verdicts, key=lambda each: (VERDICTS.index(each.verdict), bool(each.why)))
    numbers: dict[str, Any] = {}
    for each in verdicts:
        for name, value in each.numbers.items():
            numbers[name] = max(numbers.get(name, value), value) if isinstance(value, float) else numbers.get(name, 0) + value
    return Verdict(verdict.verdict, verdict.why, numbers, next((each.edit_reason for each in verdicts if each.edit_reason), ""))


def error_line(error: BaseException, limit: int = 240) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:limit]}"


def of_recording(
    model: nn.Module, run: Callable[[nn.Module], dict[str, Tensor]], what: str = "", mixing: Callable[[], list[str]] = list
) -> Verdict:
    """Run a model alone, under the judge and recorded, and hold the recording against what the judge saw.

    `mixing` names the modules that mix tokens: each must have attention in it that was seen, or be listed as missing.
    """
    alone = run(model)
    with Judge(model) as judge:
        watched = run(model)
    if changed := difference_in_bits(alone, watched):
        random = difference_in_bits(alone, run(model))
        raise RuntimeError(f"the model draws {random} at random" if random else f"the judge changes {changed}")
    with LinearJudge(model).watching() as mixers:
        watched = run(model)
    if changed := difference_in_bits(alone, watched):
        raise RuntimeError(f"the judge of linear mixers changes {changed}")
    try:
        with overt.lens.record(model) as recording:
            output = run(model)
    except Exception as error:  # a recorder never breaks the model: whatever it raises is the verdict
        return Verdict("crashed", f"recording{what} raises {error_line(error)}")
    changed = difference_in_bits(alone, output)
    if changed:
        return Verdict("wrong", f"recording{what} changes {changed}")
    try:
        recorded = [(recording.layers[position], weights_of(recording, position)) for position in range(len(recording))]
    except Exception as error:  # weights that cannot be looked at are a fault of the recording too
        return Verdict("crashed", f"looking at the weights{what} raises {error_line(error)}")
    missing = [(str(name), str(reason)) for name, reason, *_ in recording.missing]
    verdict = _bounded(recording, recorded, missing, judge, mixers, mixing, what)
    return _with_edits(verdict, model, run) if verdict.verdict in ("exact", "whole") else verdict


def _with_edits(verdict: Verdict, model: nn.Module, run: Callable[[nn.Module], dict[str, Tensor]]) -> Verdict:
    """The verdict with how many edits of the recorded calls were tried, and how many are exact."""
    tried, exact, why = edits.judged_edits(model, run, relative, OUTPUT)
    return replace(verdict, numbers=verdict.numbers | {"edits": tried, "edited": exact}, edit_reason=why)


def _bounded(
    recording: Any,
    recorded: list[tuple[str, Tensor]],
    missing: list[tuple[str, str]],
    judge: Judge,
    mixers: LinearJudge,
    mixing: Callable[[], list[str]],
    what: str,
) -> Verdict:
    """A recording held against what the two judges saw."""
    is_linear = [hasattr(call, "recurrence") for call in recording.calls]
    result = judged(judge.events, [each for each, other in zip(recorded, is_linear, strict=True) if not other], missing)
    left, wrong = linear.judged(mixers.events, [each for each, other in zip(recorded, is_linear, strict=True) if other])
    numbers = {"attended": result.events, "recorded": len(recorded) - sum(is_linear), "matched": result.matched}
    if mixers.events:
        numbers |= {"linear": len(mixers.events), "linear recorded": len(mixers.events) - len(left)}
    if result.wrong or wrong:
        return Verdict("wrong", (result.wrong or wrong) + what, numbers)
    if result.unseen:
        return Verdict(
            "wrong",
            f"silent miss{what}: {len(result.unseen)} of {result.events} calls, in {', '.join(result.unseen[:3])}",
            numbers,
        )
    unlisted = [each.module for each in left if not listed(each.module, missing)]
    if unlisted:
        return Verdict("wrong", f"silent miss{what}: linear mixers in {', '.join(unlisted[:3])}", numbers)
    mixed = [event.module for event in (*judge.events, *mixers.events)]
    other = [name for name in mixing() if not any(near(name, each) for each in mixed) and not listed(name, missing)]
    if other:
        return Verdict(
            "wrong",
            f"silent{what}: tokens are mixed by {', '.join(other[:3])}, {len(other)} modules in all, not listed",
            numbers,
        )
    why = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in missing[:4]))
    if left or any(not beside_attention(reason) for _, reason in missing):
        return Verdict("missing", why, numbers)
    mixes = bool(result.events or mixers.events)
    if missing:
        return Verdict("whole" if mixes else "missing", why, numbers)
    return Verdict("exact", "" if mixes else "no attention in it", numbers)


OTHER_MIXING = re.compile(
    r"^\w+ mixes tokens by ((a convolution over [\d ×]+ positions|pooling over [\d ×]+ positions|a matrix of parameters over tokens"
    r"|a Fourier transform over tokens|an LSTM|a GRU|an RNN|a recurrence from step to step|tokens added to their shifted neighbours"
    r"|an index that (brings them to others|puts them into another order))"
    r"(, | and |:))+ no attention weights are recorded$"
)


def beside_attention(reason: str) -> bool:
    """Whether a line of `missing` is about a layer that mixes tokens neither by attention nor by a linear recurrence."""
    return OTHER_MIXING.match(reason) is not None


def weights_of(recording: Any, position: int) -> Tensor:
    """The weights of all heads of a recorded call, (B, H, Q, K)."""
    captured = recording.calls[position]
    return torch.stack([recording[position, head].weights() for head in captured.heads], dim=1)


def difference_in_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> str:
    """Which output differs, and by how much; nothing where all are equal to the bit, NaN where the other is NaN."""
    for name, tensor in first.items():
        other = second.get(name)
        if other is None or other.shape != tensor.shape:
            return f"what {name} is"
        if not torch.equal(tensor.nan_to_num(nan=7e7), other.nan_to_num(nan=7e7)):
            return f"{name} by {float((tensor - other).abs().nan_to_num().max()):.1e}"
    return ""


def relative(expected: Tensor, output: Tensor | None, padding: Tensor | None = None) -> float:
    """The largest difference relative to the largest number; rows of padding (B, Q) are left out; inf for another shape."""
    if output is None or output.shape != expected.shape:
        return math.inf
    if (
        padding is not None and expected.ndim > 2 and expected.shape[1] == padding.shape[1] + 1
    ):  # a summary before or behind the tokens
        before, behind = (torch.nn.functional.pad(padding, side, value=True) for side in ((1, 0), (0, 1)))
        padding = before & behind
    if padding is not None and expected.shape[:2] == padding.shape:
        expected, output = expected[padding], output[padding]
    finite = expected.isfinite()
    if not torch.equal(finite, output.isfinite()):
        return math.inf
    expected, output = expected[finite].double(), output[finite].double()
    return float((expected - output).abs().max() / expected.abs().max().clamp(min=1e-6)) if expected.numel() else 0.0


# Where the model's own two paths are further apart than rounding and depth can take them, they mean different things.
DEPTH = 1e-3


@dataclass(frozen=True)
class Off:
    """How far an output is off, how far it may be, and how far the model's own two paths are apart."""

    name: str
    off: float
    allowed: float
    between_paths: float
    disagreement: str = ""


def compare(eager: dict[str, Tensor], sdpa: dict[str, Tensor], output: dict[str, Tensor], padding: Tensor | None) -> Off:
    """The output that is furthest beyond what it may be off.

    It may be off by the table's tolerance, or by twice what "sdpa" is off because of the model's depth. Where the model's own paths mean
    different things (a summary read off a query that is padding, rows that "eager" fills with NaN), it is compared with both and must
    agree with one of them; `disagreement` says by how much the two differ, and with which one it agrees.
    """
    worst_of_all, disagreements = Off("", 0.0, OUTPUT, 0.0), dict[float, str]()
    for name, tensor in eager.items():
        limit = GRADIENT if name == "gradients" else OUTPUT
        between_paths = relative(tensor, sdpa[name], padding) if name in sdpa else 0.0
        off = relative(tensor, output.get(name), padding)
        if between_paths > DEPTH:
            other = relative(sdpa[name], output.get(name), padding)
            apart = f"differ by {between_paths:.1e}" if math.isfinite(between_paths) else "are not finite at the same places"
            path, off = ("eager", off) if off <= other else ("sdpa", other)
            disagreements[between_paths] = f'the model\'s own "eager" and "sdpa" {apart} in {name}; overt agrees with "{path}"'
        else:
            limit = max(limit, 2 * between_paths)
        if off / limit >= worst_of_all.off / worst_of_all.allowed:
            worst_of_all = Off(name, off, limit, between_paths)
    return replace(worst_of_all, disagreement=disagreements[max(disagreements)] if disagreements else "")


@dataclass
class Calls:
    """How many calls of attention overt computed."""

    count: int = 0

    def __enter__(self):
        overt.attention.mechanism.observers.set((*overt.attention.mechanism.observers.get(), self._one))
        return self

    def __exit__(self, *error):
        overt.attention.mechanism.observers.set(
            tuple(each for each in overt.attention.mechanism.observers.get() if each != self._one)
        )

    def _one(self, *_: Any) -> None:
        self.count += 1


def of_backend(runs: list[Run], attends: bool) -> Verdict:
    """Each run, by name, on "eager", "sdpa" and overt's backend, the outputs compared; `attends`: whether attention was seen in it."""
    path, verdicts, said = overt.integrations.huggingface(), [], ""
    for what, run in runs:
        expected, padding = run("eager")
        try:
            fused = run("sdpa")[0]
        except Exception:  # a path that the model does not have: nothing to loosen the tolerance by
            fused = {}
        verdicts.append(_backend_run(what, lambda run=run: run(path)[0], expected, fused, padding, attends, said))
        said = verdicts[-1].why if verdicts[-1].verdict == "missing" else ""  # a model that is not served is told of once
        if verdicts[-1].verdict in ("refused", "crashed"):
            break
    return worst(verdicts)


def _backend_run(
    what: str,
    run: Callable[[], dict[str, Tensor]],
    eager: dict[str, Tensor],
    sdpa: dict[str, Tensor],
    padding: Tensor | None,
    attends: bool,
    said: str = "",
) -> Verdict:
    with warnings.catch_warnings(record=True) as warned, Calls() as calls:
        warnings.simplefilter("always")
        try:
            output = run()
        except overt.errors.OvertError as error:
            return Verdict("refused", error_line(error))
        except Exception as error:  # whatever else reaches the caller is a crash
            return Verdict("crashed", f"{what}: {error_line(error)}")
    off = compare(eager, sdpa, output, padding)
    said = said or next((" ".join(str(each.message).split()) for each in warned if "overt" in str(each.message)), "")
    numbers = {"off": off.off, "own paths": off.between_paths, "calls": calls.count}
    if not off.off <= off.allowed:
        return Verdict("wrong", f"{what}: {off.name} off by {off.off:.1e}, its own paths by {off.between_paths:.1e}", numbers)
    if attends and not calls.count and not said:
        return Verdict("wrong", f"{what}: it never called overt, and nothing said so", numbers)
    if said:
        return Verdict("missing", said, numbers)
    disagreement = f"{what}: {off.disagreement}" if off.disagreement else ""
    return Verdict("exact", disagreement if attends else "no attention in it", numbers)


def of_replaced(
    build: Callable[[], nn.Module], run: Callable[[nn.Module], dict[str, Tensor]], real: Tensor | None = None
) -> Verdict:
    """torch's own layers replaced by overt's: the outputs beside torch's, of the `real` queries (B, Q) where some are padding."""
    expected = run(build())
    return _backend_run("a pass", lambda: run(overt.layers.replace_multihead_attention(build())), expected, {}, real, True)


def generated(model: nn.Module, inputs: dict[str, Any], cache: str | None, tokens: int = 4) -> dict[str, Tensor]:
    """The scores of greedily written tokens, and the tokens, as numbers to compare."""
    torch.manual_seed(1)
    options = {"cache_implementation": cache} if cache else {}
    written = model.generate(
        **inputs,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return {"tokens": written.sequences.double(), "scores": torch.stack(written.scores).float()}


def gradients(model: nn.Module, run: Callable[[nn.Module], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The gradient of every parameter after one step of training towards nothing in particular."""
    model = copy.deepcopy(model).train()
    with torch.enable_grad():
        outputs = run(model)
        loss = sum(
            (each * torch.linspace(-1, 1, each.numel()).view_as(each)).mean() for each in outputs.values() if each.requires_grad
        )
        loss.backward()  # type: ignore[union-attr]
    named = [(name, each.grad) for name, each in sorted(model.named_parameters()) if each.grad is not None]
    return {"gradients": torch.cat([each.flatten() for _, each in named])}
