"""What heads and layers add to a logit, on every language model that can be made small, and beside what ablating them does.

    HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python -m benchmarks.lens.contributions --out docs/results/contributions.json

matrix: every causal and masked language model of transformers, small, with random weights (matrix/small.py): whether
overt.lens.contributions sums to the logit difference, or by what function the model is refused; where it does, whether the parts of a
score (overt.lens.score_contributions) sum to it too. `--log FILE` keeps each line as it
comes, and a run that is started again with it goes on where it ended.
scores: all other models of transformers, of pictures, of sound, encoder–decoders: whether the parts of scores of the first, the middle and
the last attention sum to them.
agreement: how the sizes of the heads' contributions rank beside the effect of ablating them, against weights, norms and gradients
(contributions_agreement.py).
"""

import argparse
import copy
import json
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks import results
from benchmarks.matrix import cases
from benchmarks.matrix.isolation import apart

SECONDS = 120
PAIR = 7, 11  # the tokens whose logits are compared


def main() -> None:
    """Run what is asked for, and write what came of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", metavar="NAME", help="these architectures")
    options.add_argument("--part", choices=["matrix", "agreement", "scores"], help="one of them (default: the first two)")
    options.add_argument("--log", type=Path, help="keep each line here as it comes, and leave out those that are there already")
    results.takes_out(options)
    requested = options.parse_args()
    measured: dict[str, Any] = {}
    if requested.part in (None, "agreement"):
        from benchmarks.lens.contributions_agreement import agreement

        measured["agreement"] = agreement()
    if requested.part in (None, "matrix"):
        measured |= matrix(requested.only, requested.log)
    if requested.part == "scores":
        measured |= others(requested.only, requested.log)
    results.write(requested.out, versions=cases.versions(), **measured)


def matrix(only: list[str] | None, log: Path | None) -> dict[str, Any]:
    """Every architecture, each in a process of its own."""
    cases.prepare()
    from benchmarks.matrix.models import hugging_face

    lines = logged(log)
    for name in only or hugging_face.names():
        for kind in ("causal", "masked"):
            if (name, kind) in lines or (class_name := classes(name)[kind]) is None:
                continue
            line = {"name": name, "kind": kind, "class": class_name} | apart(
                lambda name=name, kind=kind: one(name, kind), SECONDS
            )
            lines[name, kind] = logged_line(line, log)
            said = line.get("why") or line.get("died") or f"residual {line['residual']:.1e}, bound {line['bound']:.1e}"
            said += f"; a score {line['score']}" if "score" in line else ""
            print(f"{name:28} {kind:7} {line.get('verdict', 'crashed'):9} {said[:200]}", flush=True)
    counts = Counter(line.get("verdict", "crashed") for line in lines.values())
    scores = scores_split(lines.values())
    print(json.dumps(counts), json.dumps({"scores": scores}))
    return {"counts": dict(counts), "scores": scores, "models": list(lines.values())}


def others(only: list[str] | None, log: Path | None) -> dict[str, Any]:
    """Scores of every model type that has neither a causal nor a masked language model."""
    cases.prepare()
    from benchmarks.matrix.models import hugging_face

    lines = logged(log)
    for name in only or [name for name in hugging_face.names() if not any(classes(name).values())]:
        if (name, "other") in lines:
            continue
        line = {"name": name, "kind": "other"} | apart(lambda name=name: scores_of(name), SECONDS)
        lines[name, "other"] = logged_line(line, log)
        print(f"{name:28} {line.get('verdict', 'crashed'):12} {(line.get('why') or line.get('died') or '')[:200]}", flush=True)
    counts = Counter(line.get("verdict", "crashed") for line in lines.values())
    print(json.dumps(counts))
    return {"counts": dict(counts), "models": list(lines.values())}


def scores_of(name: str) -> dict[str, Any]:
    """A score of the first, the middle and the last attention of a model: its verdict is the worst."""
    import torch

    import overt
    from benchmarks.matrix.models import hugging_face
    from overt.errors import OvertError

    try:
        start = hugging_face.built(name)
        inputs = {key: value[:1] if isinstance(value, torch.Tensor) else value for key, value in start.inputs.items()}
        model = start.model("eager")
        hugging_face.outputs(model, inputs)
    except Exception as error:  # whatever a class of someone else's raises
        return {"verdict": "not built", "why": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    facts = {"class": type(model).__name__, "inputs": start.what}
    try:
        torch.manual_seed(1)  # some draw which patches or keys they take
        with torch.no_grad(), overt.lens.record(model) as recording:
            model(**copy.deepcopy(inputs))
        count = len(attention_calls(recording))
    except OvertError as error:
        return facts | {"verdict": "no attention", "why": str(error)[:300]}
    scores = [score(recording, model, inputs, index) for index in sorted({0, count // 2, count - 1})]
    worst = max(scores, key=lambda one: ("no attention", "holds", "refused", "differs").index(one["verdict"]))
    return facts | {"verdict": worst["verdict"], "why": worst.get("why", ""), "scores": scores}


def logged(log: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines that an earlier run kept."""
    text = "" if log is None or not log.exists() else log.read_text(encoding="utf-8")
    return {(line["name"], line["kind"]): line for line in map(json.loads, text.splitlines())}


def logged_line(line: dict[str, Any], log: Path | None) -> dict[str, Any]:
    """The line, which is kept for a run that goes on."""
    if log is not None:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
    return line


def classes(name: str) -> dict[str, str | None]:
    """The causal and the masked language model of an architecture, by their classes' names; none where it is the same class twice."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name)
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(name)
    first = {"causal": causal, "masked": None if masked == causal else masked}
    return {kind: each[0] if isinstance(each, list | tuple) else each for kind, each in first.items()}


def one(name: str, kind: str) -> dict[str, Any]:
    """The contributions of one architecture: its residual and bound, or why it was refused."""
    import torch

    import overt
    from benchmarks.matrix.models.hugging_face import NotBuilt
    from overt.errors import OvertError

    try:
        model, inputs = built(name, kind)
    except NotBuilt as error:
        return {"verdict": "not built", "why": str(error)}
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**copy.deepcopy(inputs))
    try:
        result = overt.lens.contributions(recording, model, PAIR, position=-1, inputs=inputs)
    except OvertError as error:
        return {"verdict": "refused", "why": str(error)}
    by_kind = Counter(part.kind for part in result.parts)
    return {
        "verdict": "holds" if result.holds else "differs",
        "difference": result.logit_difference,
        "residual": result.residual,
        "bound": result.bound,
        "parts": dict(by_kind),
        "frozen": list(result.frozen),
        "notes": list(result.notes),
        "score": score(recording, model, inputs),
    }


def attention_calls(recording: Any) -> list[Any]:
    """The calls of attention that have a choice of keys."""
    from overt.lens.captured import CapturedCall

    return [call for call in recording.nonempty_calls() if isinstance(call.opened(), CapturedCall) and call.keys > 1]


def score(recording: Any, model: Any, inputs: dict[str, Any], index: int = -1) -> dict[str, Any]:
    """One score of an attention that has a choice of keys, by default the last, split by `score_contributions`, at the largest weight."""
    import torch

    import overt
    from overt.errors import OvertError

    calls = attention_calls(recording)
    if not calls:
        return {"verdict": "no attention"}
    call = calls[index]
    head = recording.number_of(call), call.heads[0]
    weights = recording[head].weights()[0]  # (Q, K)
    rows = weights.any(-1).nonzero()
    if not rows.numel():
        return {"verdict": "no attention", "why": "every query is masked"}
    row = int(rows.max())  # the last query that is not padding
    key = int(weights[row].argmax())
    torch.manual_seed(1)
    try:
        why = overt.lens.score_contributions(recording, model, head=head, query=row, key=key, inputs=inputs)
    except OvertError as error:
        return {"verdict": "refused", "why": str(error)}
    return {"verdict": "holds" if why.holds else "differs", "score": why.score, "residual": why.residual, "bound": why.bound}


def scores_split(lines: Any) -> dict[str, int]:
    """Of the architectures whose contributions hold and that attend: in how many a score's parts sum to it too."""
    verdicts = Counter(line["score"]["verdict"] for line in lines if line.get("verdict") == "holds" and "score" in line)
    return {"covered": sum(verdicts.values()) - verdicts["no attention"], **verdicts}


def built(name: str, kind: str) -> tuple[Any, dict[str, Any]]:
    """The model, small, and the inputs of one text. Raises NotBuilt."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from benchmarks.matrix.models import hugging_face
    from benchmarks.matrix.models.small import small

    reasons = []
    for narrow in (True, False):
        try:
            config = small(CONFIG_MAPPING[name](), narrow)
            if kind == "causal" and hasattr(config, "is_decoder") and not getattr(config, "is_encoder_decoder", False):
                config.is_decoder = True
            start = hugging_face.fed(getattr(transformers, classes(name)[kind]), config)
            inputs = {key: value[:1] if isinstance(value, torch.Tensor) else value for key, value in start.inputs.items()}
            model = start.model("eager")
            hugging_face.outputs(model, inputs)
            return model, inputs
        except Exception as error:  # whatever a class of someone else's raises
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    raise hugging_face.NotBuilt(reasons[0])


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
