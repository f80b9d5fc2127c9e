"""The files that make up a model on disk, which no output may replace."""

from pathlib import Path

from overt.files import PathLike

_PATTERNS = (
    "*config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.safetensors*",
    "*.bin",
    "*.model",
)


def model_files(*models: PathLike | None) -> dict[str, PathLike]:
    """The files of models that are folders, by the names that `files.separate` gives them in an error; nothing of others."""
    found: dict[str, PathLike] = {}
    for model in models:
        for folder in [Path(model), Path(model, "model")] if model is not None else []:
            try:
                paths = [path for pattern in _PATTERNS for path in folder.glob(pattern)]
            except (OSError, ValueError):
                continue
            found |= {f"{path.name} of the model in {folder}": path for path in paths}
    return found
