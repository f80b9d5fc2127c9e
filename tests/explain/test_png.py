import itertools
import re
import sys

import matplotlib
import pytest
from PIL import Image

import explanations
from overt.drawing.canvas import Sheet, lowered, plain_settings, shade
from overt.errors import InputError, MissingExtra, install_command
from overt.explain.explanation import stages
from overt.explain.picture.gif import PARTS
from overt.explain.picture.png import gif, picture, png

pytestmark = pytest.mark.filterwarnings("error")


def drawn(*message):
    with plain_settings(matplotlib):
        return picture(message)


def words(sheet):
    return [text.get_text() for text in sheet.axes.texts]


def boxes(sheet):
    """Where each text stands, in pixels, shrunk by a pixel so that neighbours may touch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(sheet.figure).get_renderer()
    return [
        (text.get_text(), text.get_window_extent(renderer).padded(-1)) for text in sheet.axes.texts if text.get_text().strip()
    ]


def overlapping(sheet):
    pairs = itertools.combinations(boxes(sheet), 2)
    return [(one, other) for (one, first), (other, second) in pairs if first.overlaps(second)]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_no_text_of_the_picture_overlaps_another(name):
    assert overlapping(drawn(explanations.EVERY_RECIPE[name]())) == []


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
@pytest.mark.few_cases(2)
def test_no_text_of_the_picture_leaves_it(name):
    sheet = drawn(explanations.EVERY_RECIPE[name]())
    outside = [text for text, box in boxes(sheet) if box.x0 < 0 or box.y0 < 0 or box.x1 > 1920 or box.y1 > 1080]
    assert outside == []


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
@pytest.mark.few_cases(2)
def test_the_picture_is_a_whole_png(name, tmp_path):
    png([explanations.EVERY_RECIPE[name]()], tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as image:
        image.load()
        assert (image.format, image.size) == ("PNG", (1920, 1080))
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


@pytest.mark.slow
def test_two_explanations_stand_one_above_the_other(tmp_path):
    png([explanations.qkv(), explanations.qkv(seed=1)], tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as image:
        assert image.size == (1920, 2160)


def test_the_picture_holds_the_numbers_of_the_steps():
    explanation = explanations.qkv()
    message = words(drawn(explanation))
    row = max(explanation.steps, key=lambda row: row.weight)
    for value in (f"{row.score:.2f}", f"{row.scaled:.2f}", f"{row.weight:.3f}"):
        assert value.replace("-", "−") in message
    assert "the other 7 tokens" in message
    assert "6  output = Σ α·v" in message
    for link in explanation.links:
        assert f"L{link.layer}H{link.head}" in message


def test_the_columns_are_labelled_by_their_steps():
    message = words(drawn(explanations.qkv()))
    assert {"2  q·k", "3  ÷ √32", "4  softmax α", "5  α·v"} <= set(message)
    message = words(drawn(explanations.hidden()))
    assert {"1  hⱼ", "2  f(h₁, hⱼ)", "3  softmax a₁ⱼ", "4  a₁ⱼ hⱼ", "5  c₁ = Σ a₁ⱼ hⱼ", "6  [h₁, c₁]   16 numbers"} <= set(
        message
    )


def test_dollars_are_never_read_as_mathematics():
    assert "$x^$" in words(drawn(explanations.nasty()))


def test_letters_that_the_font_lacks_become_boxes_and_that_is_said():
    sheet = drawn(explanations.nasty())
    assert not {"🦊", "漢字かな"} & set(words(sheet))
    assert any("□ a letter that the font lacks" in text for text in words(sheet))


def test_what_was_cropped_is_said():
    assert any("… cropped to fit" in text for text in words(drawn(explanations.nasty())))
    assert not any("cropped" in text for text in words(drawn(explanations.qkv(loop=None))))


def test_the_users_own_settings_do_not_change_the_picture(tmp_path):
    png([explanations.plain()], tmp_path / "one.png")
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red", "text.usetex": True, "savefig.dpi": 10}):
        png([explanations.plain()], tmp_path / "two.png")
        assert matplotlib.rcParams["font.size"] == 40
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.slow
def test_pyplot_is_never_loaded(tmp_path):
    import subprocess

    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\nimport explanations\nfrom overt.explain.picture.png import png\n"
        "assert 'matplotlib' not in sys.modules\npng([explanations.plain()], sys.argv[1])\nassert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.png"), *sys.path], check=True)


slow = pytest.mark.slow


# Another of "qkv" is written by the command's own slow tests.
@pytest.mark.parametrize(
    "name", ["plain, by the sum", *(pytest.param(name, marks=slow) for name in ("qkv", "hidden", "nasty"))]
)
@pytest.mark.slow
def test_the_animation_shows_every_step_long_enough_to_be_read(name, tmp_path):
    explanation = explanations.EVERY_RECIPE[name]()
    gif(explanation, tmp_path / "out.gif")
    with Image.open(tmp_path / "out.gif") as image:
        durations = []
        for index in range(image.n_frames):
            image.seek(index)
            durations.append(image.info["duration"])
        assert image.size == (1024, 576)
        assert image.info["loop"] == 0
    assert sum(time >= 2500 for time in durations) == len(stages(explanation))
    # Pillow joins a frame to the one before if they are alike: here none is.
    assert len(durations) == sum(1 if stage.key == "join" else PARTS for stage in stages(explanation))


@pytest.mark.parametrize("missing", ["matplotlib", "PIL"])
@pytest.mark.parametrize(
    "write", [lambda path: png([explanations.plain()], path), lambda path: gif(explanations.plain(), path)]
)
def test_without_the_extra_the_error_says_what_to_install(write, missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"which is not installed\. Fix: run: {re.escape(install_command('plot'))}"):
        write(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_of_nothing_is_an_error(tmp_path):
    with pytest.raises(InputError, match="at least one explanation, got none"):
        png([], tmp_path / "out.png")


def test_a_picture_that_fails_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(Sheet, "strip", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        png([explanations.plain()], tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == []


def test_a_text_is_cropped_to_its_room_and_no_further():
    sheet = Sheet(400, 100, dpi=100)
    message = sheet.fitted("electroencephalography", 100, 12)
    assert message.endswith("…")
    assert sheet.measure(message, 12) <= 100 < sheet.measure(message, 12) + sheet.measure("mm", 12)
    assert sheet.fitted("short", 100, 12) == "short"


def test_indices_become_small_letters_and_other_underscores_stay():
    assert lowered("c_1 = Σ a_1j h_j") == "c₁ = Σ a₁ⱼ hⱼ"
    assert lowered("snake_case") == "snake_case"


def test_colours_grow_darker_with_the_weight_and_letters_stay_readable():
    light = lambda rgb: 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]  # noqa: E731
    for sign in (1, -1):
        greys = [light(shade(sign * share / 10)[0]) for share in range(11)]
        assert all(one > other for one, other in itertools.pairwise(greys))
    assert shade(1.0)[1] == "#ffffff"
    assert shade(0.0)[1] != "#ffffff"
