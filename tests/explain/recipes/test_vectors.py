import numpy as np
import pytest

from overt.errors import InputError
from overt.explain.encoded import choose
from overt.explain.recipes.random_projections import projected
from overt.explain.recipes.vectors import read_csv


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_rows_may_have_names_or_not(written):
    table = read_csv(written("cat, 1, 2\ndog,3,4e-1\n\n"))
    assert table.names == ["cat", "dog"]
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 0.4]])
    plain = read_csv(written("1,2\n3,4\n"))
    assert plain.names is None
    assert plain.sequence().encoded.tokens == ["x1", "x2"]


def test_a_first_row_of_headings_is_passed_over(written):
    table = read_csv(written("word,one,two\ncat,1,2\ndog,3,4\n"))
    assert table.names == ["cat", "dog"]
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat,1,2\ndog,3,four\n", "finite numbers in mine.csv, got 'four' in row 2, column 3"),
        ("cat,1,2\n\ndog,,4\n", "got '' in row 3, column 2"),
        ("1,2\n3,nan\n", "got 'nan' in row 2, column 2"),
        ("1,2\n3,inf\n", "got 'inf' in row 2, column 2"),
        ("1,2\n3\n", "rows of equal length in mine.csv, got 1 columns in row 2, 2 before it"),
        ("\n", "which is empty"),
        ("cat\ndog\n", "at least one number in each row, got .* with names only"),
    ],
)
def test_what_is_not_numbers_is_refused_by_its_cell(written, text, message):
    with pytest.raises(InputError, match=message):
        read_csv(written(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="nothing.csv to be a CSV file of numbers as --vectors, got No such file"):
        read_csv(tmp_path / "nothing.csv")


def test_a_text_takes_the_rows_of_its_words(written):
    table = read_csv(written("the,1\ncat,2\nsees,3\n"))
    result = table.sequence("The cat sees the cat")
    assert result.encoded.tokens == ["The", "cat", "sees", "the", "cat"]
    assert result.values[:, 0].tolist() == [1, 2, 3, 1, 2]
    with pytest.raises(InputError, match="a row in mine.csv for every word of the text, got no row for 'dog'"):
        table.sequence("the dog")


def test_a_text_names_rows_without_names(written):
    table = read_csv(written("1\n2\n"))
    assert table.sequence("hello there").encoded.tokens == ["hello", "there"]
    with pytest.raises(InputError, match="one word for each row of a file without names, got 3 words and 2 rows"):
        table.sequence("one two three")


def test_random_projections_are_said_to_be_random_and_their_steps_follow(written):
    vectors = read_csv(written("a,1,2,0\nb,0,1,1\nc,2,2,2\n")).sequence()
    result = projected(vectors, choose(vectors.encoded, "b"), seed=5, loop=True)
    assert result.source == "mine.csv, random projections, seed 5"
    assert any("drawn at random (seed 5)" in note for note in result.notes)
    assert (result.scale_name, result.name) == ("√3", "L0H0")
    keys = np.array([step.key for step in result.steps])
    scores = keys @ np.array(result.query)
    np.testing.assert_allclose([step.score for step in result.steps], scores, atol=1e-6)
    weights = np.exp(scores / 3**0.5) / np.exp(scores / 3**0.5).sum()
    np.testing.assert_allclose(result.rows[0][0], weights, atol=1e-6)
    assert result.loop.difference < 1e-6
    assert projected(vectors, choose(vectors.encoded, "b"), seed=5).output == result.output
