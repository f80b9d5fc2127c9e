"""Statistics of every head of a model over a corpus."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from overt.errors import InputError, needed_by
from overt.lens.analysis.surveys.comparing import SurveyDifferences, differences
from overt.lens.analysis.surveys.measures import NAMES, PATTERNS
from overt.lens.analysis.surveys.page import page
from overt.lens.analysis.surveys.storing import read, write
from overt.lens.analysis.surveys.totals import SurveyTotals, joined
from overt.lens.head import head_name


@dataclass(eq=False, repr=False)
class Survey(SurveyTotals):
    """Statistics of every head over a corpus, and each head's strongest texts; `overt.lens.survey` makes it.

    `heads` are the heads in order, `facts` describes the texts and the model, `missing` the attention that could not be measured. Printing
    shows a short report. `Survey.merged([...])` of surveys of parts of a corpus is the survey of the whole, to the bit.
    """

    def table(self) -> Any:
        """A pandas DataFrame with a row for each head: name, layer, number, head, role, and each measure with ends `… low` and `… high`.

        A pattern also has its `… chance`, see `chance`. Raises MissingExtra without pandas.
        """
        with needed_by("Survey.table", "smooth"):
            import pandas
        columns: dict[str, Any] = {
            "name": [head_name(head.number, head.head) for head in self.heads],
            "layer": [head.layer for head in self.heads],
            "number": [head.number for head in self.heads],
            "head": [head.head for head in self.heads],
            "role": [role.role for role in self.roles()],
        }
        for name in NAMES:
            columns[name], columns[f"{name} low"], columns[f"{name} high"] = self.measure(name)
            if name in PATTERNS:
                columns[f"{name} chance"] = self.chance(name)
        return pandas.DataFrame(columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the survey to one safetensors file, as a whole or not at all; `overt.lens.load_survey` reads it."""
        write(self, path)

    def page(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        beside: "Survey | None" = None,
        model: nn.Module | None = None,
        tokenizer: Any = None,
        title: str | None = None,
    ) -> str:
        """Write the survey as one offline HTML page, and return its path; without a path the page itself.

        The other survey is of another corpus or another model; the differences of all heads are tested. With the `model` and its
        `tokenizer`, the examples have their exact rows of weights, recomputed. Raises InputError for a survey without heads.
        """
        return page(self, path, beside=beside, model=model, tokenizer=tokenizer, title=title)

    def compare(self, other: "Survey") -> SurveyDifferences:
        """The differences of heads in the other survey, by measure, tested for all heads together; see `overt.lens.SurveyDifferences`."""
        return differences(self, other)

    @classmethod
    def merged(cls, surveys: Sequence["Survey"]) -> "Survey":
        """The survey of several parts of one corpus, the same to the bit for any parts in any order.

        Raises InputError for surveys of different models or settings, and for parts that overlap.
        """
        parts = [survey for survey in surveys if survey.heads] or [*surveys][:1]
        if not parts:
            raise InputError("surveys to merge, at least one", got="none")
        result = cls(parts[0].facts._replace(texts=0, tokens=0, empty=0, cut=0, corpus=0, chunks=()))
        result.start(parts[0].heads)
        for part in parts:
            result.merge(part)
        for survey in surveys:
            if not survey.heads:
                result.facts = joined(result.facts, survey.facts)
        return result


def load_survey(path: str | os.PathLike[str]) -> Survey:
    """Read a survey that `Survey.save` wrote. Raises InputError for another or a damaged file.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "nothing.survey"
    >>> _ = path.write_text("no survey")
    >>> try:
    ...     load_survey(path)
    ... except InputError as error:
    ...     print(error.fix)
    pass a file that survey.save, or file= of overt.lens.survey, wrote
    """
    return read(path, Survey)
