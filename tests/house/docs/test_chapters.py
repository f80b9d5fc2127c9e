"""What the chapters say of their outputs is so: where a page quotes a model's words, or chooses one of its heads."""

import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

import overt

MAKING = Path(__file__).parents[3] / "docs" / "making"
CHAPTERS = MAKING.parent / "chapters"
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def pictures():
    """The module that the chapters import for their pictures, as they find it."""
    spec = importlib.util.spec_from_file_location("pictures", MAKING / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with matplotlib.rc_context(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pictures", module)
        yield module


def run(chapter, part, **names):
    """Run the block of a chapter that holds `part`: what it printed, its names, and the text behind it up to the next block."""
    text = (CHAPTERS / f"{chapter}.md").read_text(encoding="utf-8")
    [block] = [block for block in BLOCK.finditer(text) if part in block[1]]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(block[1], names)
    return printed.getvalue(), names, text[block.end() :].partition("```")[0].strip()


def test_chapter_3_says_of_the_translators_pronouns_what_they_are():
    printed, names, prose = run("3-six-steps", "was too wide")
    pronouns = [re.findall(r"\b(?:elle|il|c'était)\b", line.lower()) for line in printed.splitlines()]
    assert pronouns == [["il"], ["il"], ["elle"], ["c'était"]], printed
    assert "*Il* and *elle* each agree with a noun, in the second sentence with the wrong one" in prose
    printed, _, prose = run("3-six-steps", "decoder, il", **names)
    largest = {line[:20].strip(): dict(re.findall(r"(\w+) (\d\.\d\d)", line[20:])) for line in printed.splitlines()}
    for layer in range(3):
        cross, written = largest[f"cross, il    layer {layer}"], largest[f"decoder, il  layer {layer}"]
        assert (float(cross["it"]) > 0.7) == (layer < 2)
        assert max(float(cross["animal"]), float(cross["street"])) < 0.1
        assert (float(written["rue"]) > 2 * float(written["al"])) == (layer < 2)
    assert (
        "reads *it* in two layers of three, and neither noun in any; of what is written it reads *rue* more than *animal*"
        in " ".join(prose.split())
    )
    encoder = [largest[f"encoder, it  layer {layer}"] for layer in range(5)]
    assert float(encoder[2]["street"]) > 2 * float(encoder[2]["animal"])
    assert float(encoder[3]["animal"]) > 2 * float(encoder[3]["street"])
    assert "in one layer *it* looks at *street*, and in the next at *animal*" in " ".join(prose.split())


@pytest.fixture(scope="module")
def chosen_heads(pictures):
    """The names of chapter 2's block that chooses heads, and the prose behind it."""
    _, names, prose = run(
        "2-encoder-decoder", "strongest(", heatmap=pictures.heatmap, sheet=pictures.sheet, picture=pictures.picture
    )
    return names, prose


def test_the_head_that_chapter_2_shows_between_two_languages_is_nearly_an_alignment(chosen_heads):
    names, prose = chosen_heads
    largest = names["chosen"]["between"][0].argmax(-1).tolist()
    right = [i for i, j in names["pairs"] if largest[i] == j]
    assert len(names["pairs"]) >= 4, "words of the sentence that the page's dictionary has"
    assert 2 * len(right) > len(names["pairs"])
    assert "most French\nwords have their largest weight on the English word that they come from" in prose


def test_what_chapter_2_says_of_the_pronoun_before_the_verb_is_so(chosen_heads):
    names, prose = chosen_heads
    verb = names["writes"].index("voir")
    largest = names["chosen"]["between"][0].argmax(-1).tolist()
    assert [names["reads"][largest[step]] for step in (verb - 1, 0)] == ["you", "</s>"]
    others = [names["reads"][int(head[0].argmax())] for layer in names["weights"]["cross"] for head in layer[0]]
    assert others.count("I") > 1
    assert "*vous*,\nbefore *voir*, reads *you*, which English has at the end. But *Je* reads the end of the sentence" in prose
    assert "and other heads read *I*" in prose


def test_the_row_that_chapter_1_quotes_has_the_softmax_of_its_dot_products():
    words, h = (
        ["she", "saw", "the", "river", "bank"],
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),
    )
    steps = overt.steps(h, h, h, score=overt.Dot(scale=1.0))
    printed, *_ = run("1-hidden-states", "A long state gets much", words=words, steps=steps)
    of_saw = np.exp([0, 1, 0, 2, 1]) / np.exp([0, 1, 0, 2, 1]).sum()
    assert f"*river* {of_saw[3]:.2f} and itself, in the same direction, {of_saw[1]:.2f}" in printed


def exercises(chapter):
    """The names that the exercises of a chapter define, and what they print."""
    blocks = BLOCK.findall(chapter.read_text(encoding="utf-8").partition("## Exercises\n")[2])
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in blocks:
            exec(block, names)
    return names, printed.getvalue()


CHAPTER_FILES = [pytest.param(chapter, id=chapter.stem) for chapter in sorted(CHAPTERS.glob("*.md"))]


@pytest.mark.parametrize("chapter", CHAPTER_FILES)
def test_a_chapter_ends_in_three_exercises_whose_answers_pass(chapter):
    _, printed = exercises(chapter)
    assert printed == "right\n" * 3


@pytest.mark.parametrize("chapter", CHAPTER_FILES)
def test_an_exercise_names_each_usual_mistake(chapter):
    names, _ = exercises(chapter)
    compare = names["check"]
    for name in [name for name in names if name.startswith("check_")]:
        mistakes = {}
        names["check"] = lambda answer, right, wrong, *inputs: mistakes.update(wrong)
        names[name](None)
        names["check"] = compare
        assert len(mistakes) >= 2
        for hint, mistake in mistakes.items():
            with pytest.raises(AssertionError, match=f"^{re.escape(f'Not yet: {hint}')}$"):
                names[name](mistake)


@pytest.mark.parametrize("chapter", CHAPTER_FILES)
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.full((2, 3), np.nan), "NaN; a row without keys has no softmax, as under an inverted mask"),
        (np.ones(3), "expected shape (2, 3), got (3,)"),
        (np.zeros((2, 3)), "the shape is right, the numbers are not"),
    ],
)
def test_an_answer_with_no_named_mistake_gets_a_reason(chapter, answer, message):
    check = exercises(chapter)[0]["check"]
    with pytest.raises(AssertionError, match=f"^{re.escape(f'Not yet: {message}')}$"):
        check(lambda: answer, lambda: np.ones((2, 3)), {})


def test_a_mask_that_hides_each_state_from_itself_is_called_inverted():
    names, _ = exercises(CHAPTERS / "1-hidden-states.md")
    future = ~np.tril(np.ones((5, 5), dtype=bool))
    with np.errstate(invalid="ignore"), pytest.raises(AssertionError, match="inverted mask"):
        names["check_causal"](lambda h: names["softmax"](np.where(future, h @ h.T, -np.inf)))


def test_the_teachers_page_counts_the_exercises():
    count = sum(
        len(re.findall(r"^\*\*\d\. ", chapter.values[0].read_text(encoding="utf-8"), re.MULTILINE)) for chapter in CHAPTER_FILES
    )
    assert (count, "eighteen exercises" in (CHAPTERS.parent / "teaching.md").read_text(encoding="utf-8")) == (18, True)


@pytest.mark.parametrize("chapter", CHAPTER_FILES)
def test_checks_and_answers_are_hidden_until_they_are_opened(chapter):
    text = chapter.read_text(encoding="utf-8").partition("## Exercises\n")[2]
    hidden = re.findall(r'<details markdown="1"><summary>(\w+)</summary>\n(.*?)</details>', text, flags=re.DOTALL)
    assert [name for name, _ in hidden] == ["Check", "Answer"] * 3
    opened = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "check_" not in opened


@pytest.mark.parametrize(
    "chapter", [chapter for chapter in CHAPTER_FILES if "from pictures import" in chapter.values[0].read_text()]
)
def test_the_first_block_that_draws_finds_its_pictures_in_a_clone(chapter):
    first = next(block for block in BLOCK.findall(chapter.read_text(encoding="utf-8")) if "from pictures import" in block)
    assert first.startswith('import sys\n\nsys.path.append("docs/making")')


@pytest.mark.slow
def test_chapter_6_says_of_its_heads_what_they_do():
    chapter = "6-why-a-head-looks-there"
    _, names, _ = run(chapter, "sentences = []")
    printed, names, prose = run(chapter, "find_heads", **names)
    best, second = (names["found"].heads[0], next(head for head in names["found"].heads if head.name == "L3H1"))
    assert best.name == "L3H5"
    assert round(best.accuracy, 2) == 0.76  # "three sentences of four"
    assert best.p_value < 0.01
    assert max(names["found"].baselines.values()) <= 0.5
    assert 30 < second.mass / best.mass < 50  # "forty times"
    assert second.accuracy < best.accuracy
    _, names, _ = run(chapter, "score_contributions", **names)
    assert names["why"].holds
    heads = [part for part in names["why"].query.strongest() if part.kind == "head"]
    assert (heads[0].call, heads[0].head) == (2, 1)
    printed, names, prose = run(chapter, "L3H5 is right in", **names)
    without = names["without"]
    assert "L3H5 is right in 0.80" in printed
    assert min(without, key=without.get) == "L2H1"
    assert round(without["L2H1"], 2) == 0.73
    assert "falls from 0.80 to 0.73, further than without any other head of layer 2" in " ".join(prose.split())
    printed, names, prose = run(chapter, "def nearer", **names)
    shares = [float(share) for share in re.findall(r"0\.\d+", printed)]
    assert shares[0] == 0.515
    assert "in 0.515 of the sentences" in " ".join(prose.split())
    assert all(abs(share - 0.5) < 0.07 for share in shares)  # "a coin toss"
