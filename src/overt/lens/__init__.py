"""The lens: the attention of any model, every number recomputed and compared with the model's own.

`record` records a model while it runs, and `load` reads a saved recording; `rollout`, `norm_weights`, `contributions`, `alignment`,
`compare` and `ablate` analyse it; `edit` changes the attention of a model that runs, and `effect` measures what that does; `probe`
finds a model's induction heads, `survey` measures every head over a corpus, and `replay` runs a server's answer again. A name is
loaded at its first use, so importing `overt.lens` needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overt.lens import linear
    from overt.lens.analysis.ablation import ablate, without_heads
    from overt.lens.analysis.comparison import compare
    from overt.lens.analysis.contributions.attribute import contributions
    from overt.lens.analysis.editing import measures
    from overt.lens.analysis.editing.context import Edits, edit
    from overt.lens.analysis.editing.effects import Effects, effect
    from overt.lens.analysis.finding.find import find_heads
    from overt.lens.analysis.norms import norm_weights
    from overt.lens.analysis.probing import Probe, ProbedHead, probe
    from overt.lens.analysis.replay.logs import Log, read_log
    from overt.lens.analysis.replay.result import Replay
    from overt.lens.analysis.replay.running import replay
    from overt.lens.analysis.rollout import mean_attention, rollout
    from overt.lens.analysis.scores.attribute import score_contributions
    from overt.lens.analysis.scores.composition import composition
    from overt.lens.analysis.surveys.comparing import SurveyDifferences
    from overt.lens.analysis.surveys.running import survey
    from overt.lens.analysis.surveys.survey import Survey, load_survey
    from overt.lens.analysis.word_alignment import alignment
    from overt.lens.head import Head
    from overt.lens.patches import overlay_patches
    from overt.lens.recording import Recording, record
    from overt.lens.statistics.roles import PatternScore, Role
    from overt.lens.storage.read import load

_HOMES = {
    "overt.lens.head": ["Head"],
    "overt.lens.linear": ["linear"],
    "overt.lens.patches": ["overlay_patches"],
    "overt.lens.analysis.ablation": ["ablate", "without_heads"],
    "overt.lens.analysis.editing.context": ["Edits", "edit"],
    "overt.lens.analysis.editing.effects": ["Effects", "effect"],
    "overt.lens.analysis.editing.measures": ["measures"],
    "overt.lens.analysis.word_alignment": ["alignment"],
    "overt.lens.analysis.comparison": ["compare"],
    "overt.lens.analysis.contributions.attribute": ["contributions"],
    "overt.lens.analysis.finding.find": ["find_heads"],
    "overt.lens.analysis.norms": ["norm_weights"],
    "overt.lens.analysis.probing": ["Probe", "ProbedHead", "probe"],
    "overt.lens.analysis.replay.logs": ["Log", "read_log"],
    "overt.lens.analysis.replay.result": ["Replay"],
    "overt.lens.analysis.replay.running": ["replay"],
    "overt.lens.analysis.rollout": ["mean_attention", "rollout"],
    "overt.lens.analysis.scores.attribute": ["score_contributions"],
    "overt.lens.analysis.scores.composition": ["composition"],
    "overt.lens.analysis.surveys.comparing": ["SurveyDifferences"],
    "overt.lens.analysis.surveys.running": ["survey"],
    "overt.lens.analysis.surveys.survey": ["Survey", "load_survey"],
    "overt.lens.recording": ["Recording", "record"],
    "overt.lens.statistics.roles": ["PatternScore", "Role"],
    "overt.lens.storage.read": ["load"],
}
_MODULES = {"linear", "measures"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Edits",
    "Effects",
    "Head",
    "Log",
    "PatternScore",
    "Probe",
    "ProbedHead",
    "Recording",
    "Replay",
    "Role",
    "Survey",
    "SurveyDifferences",
    "ablate",
    "alignment",
    "compare",
    "composition",
    "contributions",
    "edit",
    "effect",
    "find_heads",
    "linear",
    "load",
    "load_survey",
    "mean_attention",
    "measures",
    "norm_weights",
    "overlay_patches",
    "probe",
    "read_log",
    "record",
    "replay",
    "rollout",
    "score_contributions",
    "survey",
    "without_heads",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'overt.lens' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOME_OF[name])
        value = module if name in _MODULES else getattr(module, name)
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "jaxtyping"}:
            raise
        from overt.errors import MissingExtra

        raise MissingExtra(f"overt.lens.{name}", needs=error.name, extra="torch") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
