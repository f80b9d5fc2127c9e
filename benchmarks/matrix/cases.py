"""All models of the matrix, and what loads their libraries once."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

LIBRARIES = ("torch", "transformers", "timm", "x-transformers", "flash-linear-attention", "torch-geometric", "numpy")


@dataclass(frozen=True)
class Case:
    """A model of the matrix: its name, the library that it is of, and what judges it, giving its line of the results."""

    name: str
    library: str
    run: Callable[[], dict[str, Any]]


def prepare() -> None:
    """Load in the parent what every child needs, so that each begins in a moment."""
    warnings.filterwarnings("ignore")
    import torch
    import transformers
    from transformers import generation, masking_utils, modeling_layers, modeling_rope_utils, modeling_utils  # noqa: F401
    from transformers.generation import candidate_generator, utils  # noqa: F401

    import overt
    from benchmarks.matrix import judge  # noqa: F401
    from benchmarks.matrix.models import hugging_face  # noqa: F401
    from benchmarks.matrix.models.without_torchvision import import_timm, tell_transformers

    if import_timm():
        tell_transformers()
    _ = overt.lens.record, overt.integrations.huggingface, transformers.LlamaForCausalLM
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()


def chosen(only: list[str] | None) -> list[Case]:
    """All cases, or those of these names or libraries."""
    every = all_cases()
    if only is None:
        return every
    unknown = set(only) - {case.name for case in every} - {case.library for case in every}
    if unknown:
        raise SystemExit(f"no model or library is called {', '.join(sorted(unknown))}")
    return [case for case in every if case.name in only or case.library in only]


def all_cases() -> list[Case]:
    """Every model of every library that is installed, in a fixed order."""
    from benchmarks.matrix.models import (
        flash_linear,
        hugging_face,
        timm_models,
        torch_geometric_models,
        torch_models,
        x_transformers_models,
    )

    libraries: dict[str, Any] = {
        "torch": (torch_models, list(torch_models.CASES)),
        "transformers": (hugging_face, hugging_face.names()),
    }
    if find_spec("timm") is not None:
        libraries["timm"] = timm_models, timm_models.names()
    if find_spec("x_transformers") is not None:
        libraries["x-transformers"] = x_transformers_models, x_transformers_models.names()
    if find_spec("fla") is not None:
        libraries["flash-linear-attention"] = flash_linear, flash_linear.names()
    if find_spec("torch_geometric") is not None:
        libraries["torch-geometric"] = torch_geometric_models, torch_geometric_models.names()
    cases = []
    for library, (module, names) in libraries.items():
        prefix = "" if library == "transformers" else f"{library}/"
        cases += [Case(f"{prefix}{name}", library, _judging(module.run_all, name)) for name in names]
    return cases


def _judging(run_all: Callable[[str], dict[str, Any]], name: str) -> Callable[[], dict[str, Any]]:
    from benchmarks.matrix.models.hugging_face import NotBuilt

    def run() -> dict[str, Any]:
        try:
            return run_all(name)
        except NotBuilt as error:
            return {"not built": str(error)}

    return run


def versions() -> dict[str, str | None]:
    """Of the libraries that the models come from."""
    result: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            result[name] = None
    return result
