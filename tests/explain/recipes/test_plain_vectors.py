import os
import subprocess
import sys

import numpy as np
import pytest

from overt.errors import InputError
from overt.explain.encoded import choose, named
from overt.explain.recipes.plain_vectors import attend, attend_one_by_one, plain
from overt.explain.recipes.vectors import Vectors, read_vectors


@pytest.fixture(scope="module")
def sky(minilm):
    vectors = read_vectors(minilm, "Sky is clear today")
    return plain(vectors, choose(vectors.encoded, "sky"), loop=True)


def some(*rows, names=None):
    return Vectors(named(names or [f"x{i}" for i in range(len(rows))]), np.array(rows, dtype=float), "rows")


def test_the_word_vectors_have_their_numbers(sky):
    assert sky.tokens == ["sky", "is", "clear", "today"]
    assert [round(step.score, 2) + 0.0 for step in sky.steps] == [1.89, -0.18, 0.0, 0.02]
    assert [round(step.weight, 2) for step in sky.steps] == [0.70, 0.09, 0.11, 0.11]
    assert sky.rows == [[[step.weight for step in sky.steps]]]


def test_the_output_is_the_weighted_sum(sky):
    np.testing.assert_allclose(np.sum([step.weighted for step in sky.steps], axis=0), sky.output, atol=1e-12)
    assert len(sky.output) == 384


def test_the_loops_equal_the_matrices(sky):
    assert sky.loop.difference < 1e-12
    assert sky.loop.loop > 0


@pytest.mark.parametrize("normalizer", ["softmax", "sum"])
def test_the_three_lines_are_overts_attention(normalizer):
    import torch

    import overt

    x = np.random.default_rng(0).normal(size=(5, 3)) + 1
    kinds = {"softmax": overt.Softmax(), "sum": overt.normalizers.Sum()}
    steps = overt.steps(*[torch.from_numpy(x)] * 3, score=overt.Dot(scale=1.0), normalizer=kinds[normalizer])
    for ours, theirs in zip(attend(x, x, normalizer), (steps.scores, steps.weights, steps.output), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12)
    np.testing.assert_allclose(attend_one_by_one(x.tolist(), x.tolist(), normalizer), steps.output.numpy(), rtol=1e-12)


def test_order_has_no_influence():
    x, order = np.random.default_rng(1).normal(size=(5, 3)), [3, 1, 4, 0, 2]
    np.testing.assert_allclose(attend(x[order], x[order])[2], attend(x, x)[2][order])


def test_another_sentence_can_be_attended_to():
    first, second = some([1.0, 0.0], [0.0, 1.0]), some([2.0, 0.0], [0.0, 0.0], [0.0, 3.0], names=["a", "b", "c"])
    result = plain(first, choose(first.encoded, "x1"), other=second)
    assert result.tokens == ["a", "b", "c"]
    assert [step.score for step in result.steps] == [0.0, 0.0, 3.0]
    assert np.array(result.matrix).shape == (2, 3)


def test_scores_that_sum_to_nothing_cannot_be_divided_by_their_sum():
    vectors = some([1.0], [-1.0])
    with pytest.raises(InputError, match="scores that do not sum to 0, to divide them by their sum, got a sum of 0 for row 1"):
        plain(vectors, choose(vectors.encoded, "x0"), normalizer="sum")
    with pytest.raises(InputError, match="softmax or sum as the normalizer, got 'max'"):
        plain(vectors, choose(vectors.encoded, "x0"), normalizer="max")


def test_torch_is_never_imported():
    code = (
        "import sys; import numpy as np; from overt.explain import encoded; from overt.explain.recipes import plain_vectors, vectors;"
        "x = vectors.Vectors(encoded.named(['a', 'b']), np.eye(2), 'rows');"
        "plain_vectors.plain(x, encoded.choose(x.encoded, 'a'), loop=True);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
