"""The dtypes of the table in docs/reference/conventions.md: each of its rows on every path."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import overt
from overt.errors import KindError
from overt.layers import MultiHeadAttention, SelfAttention

PAGE = (Path(__file__).parents[3] / "docs/reference/conventions.md").read_text()
TABLE = PAGE.split("| query, key and value | under autocast |")[1].split("\n\n")[0].splitlines()[2:]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE]
X = torch.randn(2, 3, 20, 8, generator=torch.Generator().manual_seed(0))


class Row:
    """A row of the table, with inputs of its dtype."""

    def __init__(self, inputs, autocast, scores, received, half, output):
        self.x = X.to(getattr(torch, inputs))
        self.autocast = None if autocast == "off" else getattr(torch, autocast)
        self.scores, self.received, self.half, self.output = (getattr(torch, name) for name in (scores, received, half, output))

    def __enter__(self):
        self.mode = torch.autocast("cpu", self.autocast) if self.autocast else nullcontext()
        self.mode.__enter__()
        return self

    def __exit__(self, *error):
        self.mode.__exit__(*error)


rows = pytest.mark.parametrize(
    "row", [Row(*cells) for cells in ROWS], ids=[f"{cells[0]}, autocast {cells[1]}" for cells in ROWS]
)


class Nearness:
    """A score of one's own, which notes what it gets. torch has no cdist in half precision on the CPU, and autocast would round @."""

    def __init__(self):
        self.noted = set()

    def __call__(self, query, key):
        assert not torch.is_autocast_enabled("cpu")
        self.noted.add(query.dtype)
        return (query @ key.mT) - torch.cdist(query.double(), key.double()).to(query.dtype)


class HalfNearness(Nearness):
    takes_half = True


def test_there_is_a_row_for_each_dtype_and_autocast():
    assert {(cells[0], cells[1]) for cells in ROWS} >= {(name, "off") for name in ("float64", "float32", "float16", "bfloat16")}
    assert {cells[1] for cells in ROWS} == {"off", "bfloat16", "float16"}


@rows
@pytest.mark.parametrize("kind", [Nearness, HalfNearness])
@pytest.mark.few_cases(8)
def test_a_score_of_ones_own_gets_what_the_table_says(row, kind):
    received = row.half if kind is HalfNearness else row.received
    for transform in (lambda f: f, torch.func.vmap, lambda f: torch.compile(f, backend="eager", dynamic=False)):
        score = kind()
        with row:
            output = transform(lambda x, score=score: overt.attend(x, x, x, score=score, mask="causal"))(row.x)
        assert output.dtype == row.output
        assert score.noted == {received}
    score, x = kind(), row.x.clone().requires_grad_()
    with row:
        steps = overt.steps(x, x, x, score=score)
        summary = overt.summarize(x, x, value=x, score=score)
        overt.attend(x, x, x, score=score).sum().backward()  # its blocks are computed again in the backward pass
        torch.func.grad(lambda x: overt.attend(x, x, x, score=score).sum())(row.x)
    assert score.noted == {received}
    assert [each.dtype for each in steps] == [row.scores] * 3 + [row.output]
    assert (summary.entropy.dtype, summary.lse.dtype, summary.top_weights.dtype, summary.output.dtype) == (
        *[row.scores] * 3,
        row.output,
    )
    assert x.grad.dtype == row.x.dtype


@rows
@pytest.mark.parametrize(
    "score", [None, overt.Dot(softcap=3.0), overt.Cosine(), overt.Gaussian(2.0), overt.Additive(torch.ones(8))]
)
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_the_librarys_scores_have_the_dtypes_of_the_table(row, score, normalizer):
    made = {"score": score, "normalizer": normalizer, "mask": "causal"}
    with row:
        output, steps = overt.attend(row.x, row.x, row.x, **made), overt.steps(row.x, row.x, row.x, **made)
        summary = overt.summarize(row.x, row.x, value=row.x, **made)
    assert [each.dtype for each in (output, *steps)] == [row.output, *[row.scores] * 3, row.output]
    assert (summary.entropy.dtype, summary.output.dtype) == (row.scores, row.output)


@rows
@pytest.mark.parametrize("path", ["native", "torch", "blocked"])
def test_sums_are_in_float32_on_every_path(row, path):
    with row, overt.use_path(path):
        ones = torch.ones(1, 1, 4096, 8).to(row.x.dtype)
        output = overt.attend(ones[:, :, :4], ones, ones)  # 4,096 weights of 2⁻¹², of which half precision would lose the sum
    assert output.dtype == row.output
    torch.testing.assert_close(output.double(), torch.ones_like(output, dtype=torch.float64), rtol=1e-4, atol=1e-4)


@rows
def test_layers_and_recordings_keep_the_table(row):
    score = Nearness()
    layer = SelfAttention(8, score=score).to(row.x.dtype)
    heads = MultiHeadAttention(8, 2, score=score).to(row.x.dtype)
    for model in (layer, heads):
        with row, overt.lens.record(model) as recording:
            output = model(row.x[:, 0])
        assert not recording.missing
        assert recording[0, 0].weights().dtype == row.scores
        assert recording.verify().holds
        assert output.dtype == row.output
    assert score.noted == {row.received}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_module_in_half_precision_says_so_by_its_parameters(dtype):
    class Learned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(8, 8)

        def forward(self, query, key):
            noted.add(query.dtype)
            return self.map(query) @ key.mT

    for module, received in ((Learned(), torch.float32), (Learned().to(dtype), dtype)):
        noted: set[torch.dtype] = set()
        overt.attend(X.to(dtype), X.to(dtype), X.to(dtype), score=module).sum().backward()
        assert noted == {received}
        assert module.map.weight.grad is not None


def test_a_score_that_holds_half_precision_without_saying_so_is_a_sentence():
    x, weight = X.half(), torch.eye(8).half()

    def bilinear(query, key):
        return query @ weight @ key.mT

    for call in (overt.attend, overt.steps):
        with pytest.raises(KindError, match=r"compute in torch.float32, .*weight.to\(query.dtype\), or set takes_half = True"):
            call(x, x, x, score=bilinear)
    bilinear.takes_half = True
    expected = overt.attend(x, x, x, score=overt.Dot(scale=1.0))
    torch.testing.assert_close(overt.attend(x, x, x, score=bilinear), expected, rtol=1e-2, atol=1e-2)


def test_a_class_derived_from_score_may_say_so_too():
    class Plain(overt.scores.Score):
        takes_half = True

        def __call__(self, query, key):
            assert query.dtype == torch.float16
            return query @ key.mT

    assert overt.attend(X.half(), X.half(), X.half(), score=Plain()).dtype == torch.float16
