"""What heads and layers add to a logit, on every language model that can be made small, and beside what ablating them does.

    HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python -m benchmarks.lens.contributions --out docs/results/contributions.json

matrix: every causal and masked language model of transformers, small, with random weights (matrix/small.py): whether
overt.lens.contributions sums to the logit difference, or by what function the model is refused; where it does, whether the parts of a
score (overt.lens.score_contributions) sum to it too. `--log FILE` keeps each line as it
comes, and a run that is started again with it goes on where it ended.
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
    options.add_argument("--part", choices=["matrix", "agreement"], help="one of the two (default: both)")
    options.add_argument("--log", type=Path, help="keep each line here as it comes, and leave out those that are there already")
    results.takes_out(options)
    requested = options.parse_args()
    measured: dict[str, Any] = {}
    if requested.part != "matrix":
        from benchmarks.lens.contributions_agreement import agreement

        measured["agreement"] = agreement()
    if requested.part != "agreement":
        measured |= matrix(requested.only, requested.log)
    results.write(requested.out, versions=cases.versions(), **measured)


def matrix(only: list[str] | None, log: Path | None) -> dict[str, Any]:
    """Every architecture, each in a process of its own."""
    cases.prepare()
    from benchmarks.matrix.models import hugging_face

    lines_read = (
        [] if log is None or not log.exists() else [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    )
    lines = {(line["name"], line["kind"]): line for line in lines_read}
    for name in only or hugging_face.names():
        for kind in ("causal", "masked"):
            if (name, kind) in lines or (class_name := classes(name)[kind]) is None:
                continue
            line = {"name": name, "kind": kind, "class": class_name} | apart(
                lambda name=name, kind=kind: one(name, kind), SECONDS
            )
            lines[name, kind] = line
            if log is not None:
                with log.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line) + "\n")
            said = line.get("why") or line.get("died") or f"residual {line['residual']:.1e}, bound {line['bound']:.1e}"
            said += f"; a score {line['score']}" if "score" in line else ""
            print(f"{name:28} {kind:7} {line.get('verdict', 'crashed'):9} {said[:200]}", flush=True)
    counts = Counter(line.get("verdict", "crashed") for line in lines.values())
    scores = scores_split(lines.values())
    print(json.dumps(counts), json.dumps({"scores": scores}))
    return {"counts": dict(counts), "scores": scores, "models": list(lines.values())}


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


def score(recording: Any, model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """One score of the last attention that has a choice of keys, split by `score_contributions`; masked keys are passed over."""
    import overt
    from overt.errors import OvertError
    from overt.lens.captured import CapturedCall

    calls = [call for call in recording.nonempty_calls() if isinstance(call.opened(), CapturedCall) and call.keys > 1]
    if not calls:
        return {"verdict": "no attention"}
    head = (recording.number_of(calls[-1]), calls[-1].heads[0])
    row = calls[-1].queries - 1
    key = int(recording[head].weights(rows=[row])[0, 0].argmax())
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
