"""`effect`: the change of a model's output by each of many edits, in batches, with progress, resumable."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from overt.attention import check
from overt.drawing.progress import progress
from overt.errors import InputError, KindError
from overt.files import whole
from overt.lens.analysis.editing.context import Edits, OpenEdits, edit
from overt.lens.analysis.editing.measures import Measure, relative_change
from overt.lens.capture.recordable import recordable
from overt.lens.capture.torch_layers.fast_path_switch import fast_path_off
from overt.lens.tokens import Strings

# _AGREES: largest relative difference between an output in a batch and the same output from a run alone, by dtype.
_AGREES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# _REPEATS: largest relative difference between a stored effect and a new measurement, perhaps alone and not in a half-precision batch.
_REPEATS = 0.05
_SAVED_EVERY = 32  # effects between two writes, the most that a killed run loses


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """The effects of edits: `edits` and their `values`, in order; `before` is the model's own output.

    Printing shows a table, the largest effects first. `tensor()` has the values as numbers.

    >>> import overt
    >>> print(Effects((overt.lens.Edits().scale((5, 11), 0.0),), (0.39,), None))
        effect  edit
          0.39  scale 0 of L5H11
    """

    edits: tuple[Edits, ...]
    values: tuple[Any, ...]
    before: Any

    def tensor(self) -> Tensor:
        """The values as float64, one for each edit, to be reshaped as the edits were listed."""
        return torch.tensor([float(value) for value in self.values], dtype=torch.float64)

    def strongest(self, count: int = 10) -> list[tuple[Edits, Any]]:
        """The edits with the largest absolute effects, and these effects."""
        order = sorted(range(len(self.values)), key=lambda index: -abs(float(self.values[index])))
        return [(self.edits[index], self.values[index]) for index in order[:count]]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]

    def __str__(self) -> str:
        lines = [f"{float(value):10.4g}  {edits}" for edits, value in self.strongest(20)]
        more = [f"… and {len(self) - 20} more"] if len(self) > 20 else []
        return "\n".join(["    effect  edit", *lines, *more])

    def __repr__(self) -> str:
        return f"<effects of {len(self)} {'edit' if len(self) == 1 else 'edits'}>"


def effect(
    model: nn.Module,
    run: Callable[[], Any],
    edits: Edits | Sequence[Edits],
    *,
    measure: Measure | None = None,
    batch: int = 1,
    file: str | os.PathLike[str] | None = None,
    tokenizer: Any = None,
    query_tokens: Strings | None = None,
    key_tokens: Strings | None = None,
) -> Effects:
    """Run a model without edits and once with each of some edits, and measure the change of its output.

        effect = measure(output, output with the edits)        by default ‖after − before‖ / ‖before‖

    `run` runs the model and returns its output; `edits` is a list of `Edits`, whose changes are made together. `overt.lens.measures`
    has logit differences, the Kullback–Leibler divergence and the loss. All runs draw the same dropout and run without gradients.

    With `batch` > 1, that many edits run in one pass: the tensor arguments of the model are repeated along their first dimension, and
    the output is cut along its first. `run` then must call the model once and return the output whole. An unedited copy in the first
    pass is compared with a run alone, and a model that mixes sequences is refused.

    A `file` stores effects as they are measured (JSON). A restarted run measures the missing effects, and the largest stored effect
    again. Raises InputError for a file of other edits, or of another model, text or measure, and the errors of `edit`.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> edits = [overt.lens.Edits().scale((0, head), 0.0) for head in range(2)]
    >>> effects = overt.lens.effect(attention, lambda: attention(x, x, x)[0], edits, batch=2)
    >>> len(effects), bool((effects.tensor() > 0).all())
    (2, True)
    """
    listed = _listed(edits)
    if not callable(run):
        raise KindError(
            "run as a function that runs the model", got=type(run).__name__, fix="write lambda: model(**inputs).logits"
        )
    check.whole_number("batch", batch)
    measure, words = (
        measure or relative_change,
        {"tokenizer": tokenizer, "query_tokens": query_tokens, "key_tokens": key_tokens},
    )
    stored = _Stored(None if file is None else Path(file), [str(entry) for entry in listed], len(listed))
    with torch.no_grad():
        with torch.random.fork_rng(), fast_path_off():
            before = run()
        if stored.values:
            largest = max(stored.values, key=lambda index: abs(float(stored.values[index])))
            stored.compare(largest, measure(before, _one(model, run, listed[largest], words)))
        left = [index for index in range(len(listed)) if index not in stored.values]
        groups = [left[first : first + batch] for first in range(0, len(left), batch)]
        for number, group in enumerate(progress(groups, "measuring effects")):
            chosen = [listed[index] for index in group]
            after = (
                [_one(model, run, chosen[0], words)]
                if batch == 1
                else _together(recordable(model), run, chosen, words, before, compare=number == 0)
            )
            stored.add(dict(zip(group, (measure(before, later) for later in after), strict=True)))
    stored.write()
    return Effects(tuple(listed), tuple(stored.values[index] for index in range(len(listed))), before)


def _listed(edits: Any) -> list[Edits]:
    listed = [edits] if isinstance(edits, Edits) else edits
    if (
        not isinstance(listed, Sequence)
        or not listed
        or not all(isinstance(entry, Edits) and entry.changes for entry in listed)
    ):
        fix = "write [overt.lens.Edits().scale((layer, head), 0.0) for layer, head in heads]"
        raise KindError("edits as a list of overt.lens.Edits, each with a change", got=repr(edits)[:80], fix=fix)
    return list(listed)


def _one(model: nn.Module, run: Callable[[], Any], edits: Edits, words: dict[str, Any]) -> Any:
    """The output with these edits, under the same dropout as the run without edits."""
    with torch.random.fork_rng(), edit(model, edits, **words):
        return run()


def _together(
    model: nn.Module, run: Callable[[], Any], edits: list[Edits], words: dict[str, Any], before: Any, compare: bool
) -> list[Any]:
    """The outputs with each edit, from one pass over copies of the input; the first copy is compared if `compare`."""
    copies = len(edits) + compare
    with torch.random.fork_rng(), edit(model, **words) as opened:

        def begin(size: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            _spread(edits, size, int(compare), opened)
            opened.prepare(model, args, kwargs)

        with _repeated(model, copies, begin):
            after = run()
    parts = [tree_map(lambda leaf, number=number: _part(leaf, number, copies), after) for number in range(copies)]
    if compare:
        _refuse_mixed(before, parts[0])
    return parts[int(compare) :]


def _spread(edits: list[Edits], size: int, skipped: int, opened: OpenEdits) -> None:
    """Apply each edit to the entries of its own copy of the input."""
    for number, entry in enumerate(edits, skipped):
        entries = tuple(range(number * size, (number + 1) * size))
        for change in entry.changes:
            opened.add(replace(change, entries=entries))


@contextmanager
def _repeated(model: nn.Module, copies: int, begin: Callable[[int, Any, Any], None]) -> Iterator[None]:
    """Call the model once with its tensors repeated; `begin` gets the batch size before the repetition, and the repeated arguments."""
    begins = called = False

    def repeat(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        nonlocal begins, called
        if begins:
            return None  # a run for the receivers of a path, whose inputs are already repeated
        if called:
            raise InputError(
                "a run that calls the model once, to make several edits in one pass", got="several calls", fix="pass batch=1"
            )
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
        if not tensors:
            raise InputError(
                "a model that is called with tensors, to make several edits in one pass", got="none", fix="pass batch=1"
            )
        size = len(tensors[0])

        def repeated(leaf: Any) -> Any:
            fits = isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == size
            return leaf.repeat(copies, *(1 for _ in leaf.shape[1:])) if fits else leaf

        args, kwargs = tree_map(repeated, args), tree_map(repeated, kwargs)
        begins = called = True
        begin(size, args, kwargs)
        begins = False
        return args, kwargs

    handle = model.register_forward_pre_hook(repeat, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _part(leaf: Any, number: int, copies: int) -> Any:
    """The part of a result that belongs to one copy of the input."""
    if not isinstance(leaf, Tensor):
        return leaf
    if not leaf.ndim or len(leaf) % copies:
        raise InputError(
            "a run that returns tensors with the batch first, to make several edits in one pass",
            got=f"a tensor {tuple(leaf.shape)}",
            fix="return model(**inputs) whole, or pass batch=1",
        )
    return leaf.chunk(copies)[number]


def _refuse_mixed(before: Any, copy: Any) -> None:
    """Raise InputError if the unedited copy in a batch differs from the model's output alone."""
    pairs = zip(tree_leaves(before), tree_leaves(copy), strict=True)
    for first, second in ((a, b) for a, b in pairs if isinstance(a, Tensor) and a.is_floating_point()):
        same = first.shape == second.shape
        far = relative_change(first, second) if same else math.inf
        if not far <= _AGREES[first.dtype]:
            raise InputError(
                "a model whose sequences do not change each other, and a run that returns its output whole",
                got=f"an output that differs by {far:.1e} in a batch"
                if same
                else f"{tuple(second.shape)} for {tuple(first.shape)}",
                fix="pass batch=1",
            )


class _Stored:
    """Effects by the numbers of their edits, stored in a file, or only in memory without a path."""

    def __init__(self, path: Path | None, names: list[str], count: int):
        self.path, self.names, self.values = path, names, dict[int, Any]()
        self.fingerprint = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        self.unsaved = 0
        if path is None or not path.exists():
            return
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            effects = {int(number): value for number, value in read["effects"].items()}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError("a file of effects", got=f"{path}, which is none", fix="name another file") from error
        if read.get("edits") != self.fingerprint:
            raise InputError(
                f"the effects of these {count} edits", got=f"{path}, of others", fix="name another file, or remove it"
            )
        self.values = effects

    def compare(self, index: int, measured: Any) -> None:
        """Raise InputError if a stored effect differs from a new measurement."""
        before, now = float(self.values[index]), float(measured)
        if not math.isclose(before, now, rel_tol=_REPEATS, abs_tol=1e-6):
            got = f"{self.path}, where {self.names[index]} has {before:.4g}, and {now:.4g} here"
            fix = "name another file, or remove it"
            raise InputError("a file of effects of this model, this run and this measure", got=got, fix=fix)

    def add(self, values: dict[int, Any]) -> None:
        """Add effects, and write the file if _SAVED_EVERY of them are new."""
        self.values |= values
        self.unsaved += len(values)
        if self.unsaved >= _SAVED_EVERY:
            self.write()

    def write(self) -> None:
        """Write all effects, as a whole file or not at all. Raises KindError for effects that are not numbers."""
        if self.path is None or not self.unsaved:
            return
        try:
            numbers = {str(number): float(value) for number, value in sorted(self.values.items())}
        except (TypeError, ValueError) as error:
            fix = "return one number from measure, or leave file out"
            raise KindError("effects that are numbers, to store them", got="others", fix=fix) from error
        with whole(self.path) as temporary:
            temporary.write_text(json.dumps({"edits": self.fingerprint, "effects": numbers}), encoding="utf-8")
        self.unsaved = 0
