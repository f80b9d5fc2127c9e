import itertools
import math
import re

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import overt
from overt.errors import InputError
from overt.lens.figures import arcs, entropy_by_layer, heads_grid, one_head, save
from overt.lens.figures.paper import colours
from readable import recorded, sequence, stack

TOKENS = ["[CLS]", "the", "animal", "didn", "$x^2$", "🦊", "[SEP]"]


def named(**options):
    return recorded(stack(**options), sequence(1), key_tokens=TOKENS)


def crossed():
    model = torch.nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    tokens = {"key_tokens": ["the", "cat", "sleeps", "."], "query_tokens": ["le", "chat", "dort"]}
    with torch.no_grad(), overt.lens.record(model, **tokens) as recording:
        model(sequence(1, 4), sequence(1, 3, seed=2))
    return recording["decoder.layers.0.multihead_attn", 1]


FIGURES = {
    "heads": lambda: heads_grid(named()),
    "heads, one call of them longer": lambda: heads_grid(recorded(stack(), sequence(length=300))),
    "head": lambda: one_head(named()[1, 2]),
    "head, long": lambda: one_head(recorded(stack(layers=1), sequence(length=300))[0, 1], size=64),
    "head, one query": lambda: one_head(recorded(stack(layers=1), sequence(length=1))[0, 1]),
    "arcs": lambda: arcs(named()[1, 2]),
    "arcs of a causal model": lambda: arcs(named(causal=True)[1, 2]),
    "arcs between two texts": lambda: arcs(crossed()),
    "entropy": lambda: entropy_by_layer(named(layers=12)),
}
everyone = pytest.mark.parametrize("name", FIGURES)


def texts(figure):
    """Each text and where it stands in pixels, shrunk by one so that neighbours may touch."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    return [
        (each.get_text(), each.get_window_extent(renderer).padded(-1))
        for each in figure.axes[0].texts
        if each.get_text().strip()
    ]


def images(figure):
    return [np.asarray(image.get_array()) for image in figure.axes[0].images]


def words(figure):
    return [text for text, _ in texts(figure)]


@everyone
def test_no_text_of_a_figure_overlaps_another_or_leaves_it(name):
    figure = FIGURES[name]()
    result, (width, height) = texts(figure), figure.get_size_inches() * figure.dpi
    assert [(a, b) for (a, one), (b, other) in itertools.combinations(result, 2) if one.overlaps(other)] == []
    assert [text for text, box in result if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height] == []


@everyone
@pytest.mark.few_cases(1)
def test_fonts_are_embedded_in_the_pdf_as_truetype(name, tmp_path):
    save(FIGURES[name](), tmp_path / "a.pdf")
    result = (tmp_path / "a.pdf").read_bytes()
    assert result.startswith(b"%PDF")
    assert result.count(b"/FontFile2") == len(re.findall(rb"/Type /FontDescriptor", result)) > 0
    assert b"/Type3" not in result


@everyone
@pytest.mark.few_cases(2)
def test_letters_of_an_svg_are_outlines(name, tmp_path):
    save(FIGURES[name](), tmp_path / "a.svg")
    result = (tmp_path / "a.svg").read_text()
    assert "<text" not in result
    assert "<path" in result


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for kind in ("pdf", "svg", "png"):
        first, second = (tmp_path / f"{index}.{kind}" for index in range(2))
        save(heads_grid(named()), first)
        save(heads_grid(named()), second)
        assert first.read_bytes() == second.read_bytes()


def test_a_readers_own_settings_do_not_matter(tmp_path):
    save(one_head(named()[1, 2]), tmp_path / "plain.png")
    with matplotlib.rc_context(
        {"font.family": "monospace", "axes.facecolor": "black", "savefig.dpi": 20, "image.origin": "lower"}
    ):
        save(one_head(named()[1, 2]), tmp_path / "own.png")
        assert matplotlib.rcParams["axes.facecolor"] == "black"
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "own.png").read_bytes()


def test_the_grid_has_a_map_of_every_head():
    recording = named()
    result = images(heads_grid(recording))
    assert len(result) == 12
    for head, drawn in zip(recording.heads(), result, strict=True):
        np.testing.assert_allclose(drawn, head.weights()[0].sqrt(), rtol=1e-5, atol=1e-6)


def test_a_head_is_drawn_as_its_weights_with_its_tokens():
    head = named()[1, 2]
    figure = one_head(head)
    np.testing.assert_allclose(images(figure)[0], head.weights()[0], rtol=1e-5, atol=1e-7)
    assert [word for word in words(figure) if word in TOKENS] == [*TOKENS[:5], TOKENS[6], *TOKENS[:5], TOKENS[6]]
    assert f"{float(head.weights().max()):.2f}" in words(figure)


def test_arcs_have_a_limit_and_say_how_many_of_all_links_they_are():
    head = named()[1, 2]
    total = int((head.weights()[0].fill_diagonal_(0) != 0).sum())
    assert any(word.startswith(f"5 strongest of {total} links") for word in words(arcs(head, links=5)))
    assert any(word.startswith(f"all {total} links") for word in words(arcs(head, links=100)))
    with pytest.raises(InputError, match=r"Expected at most 100 links.*got links=101.*Fix: draw the strongest, links=100, or"):
        arcs(head, links=101)


def test_a_long_head_says_what_a_cell_is():
    figure = FIGURES["head, long"]()
    assert images(figure)[0].shape == (64, 64)
    assert "cells are means of 4.69 × 4.69 weights" in words(figure)


def test_darker_means_more_all_the_way():
    shown = colours()(np.linspace(0, 1, 64))[:, :3]
    lights = shown @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(lights) < 0)
    assert lights[0] == 1


def test_another_sequence_of_the_batch_is_drawn():
    recording = recorded(stack(), sequence(2))
    np.testing.assert_allclose(
        images(one_head(recording[0, 0], sequence=1))[0], recording[0, 0].weights()[1], rtol=1e-5, atol=1e-7
    )
    with pytest.raises(InputError, match="a recorded sequence, 0 to 1, got sequence=2"):
        one_head(recording[0, 0], sequence=2)


def curves(figure):
    """The ends of each curve, left to right, and whether it rises over its ends."""
    result = [patch.get_path().vertices for patch in figure.axes[0].patches]
    return [
        (round(float(path[0][0])), round(float(path[-1][0])), bool(path[1][1] < path[0][1]))
        for path in result
        if len(path) == 4
    ]


def test_the_strongest_links_are_the_arcs():
    head = named()[1, 2]
    weights = head.weights()[0].clone().fill_diagonal_(0)
    expected = {(int(index) // 7, int(index) % 7) for index in weights.flatten().topk(5).indices}
    figure = arcs(head, links=5)
    middles = {text: round(float((box.x0 + box.x1) / 2 / figure.dpi * 100)) for text, box in texts(figure)}
    positions = [middles[token if token != "🦊" else "□"] for token in TOKENS]
    result = {
        (min(range(7), key=lambda t: abs(positions[t] - a)), min(range(7), key=lambda t: abs(positions[t] - b)))
        for a, b, _ in curves(figure)
    }
    assert result == expected
    assert all(rises == (a > b) for a, b, rises in curves(figure))


def test_a_causal_model_has_no_arc_below_the_line():
    assert all(rises for *_, rises in curves(FIGURES["arcs of a causal model"]()))


def test_links_between_two_texts_run_up_from_the_one_that_asks():
    figure = FIGURES["arcs between two texts"]()
    assert len(curves(figure)) == 12
    heights = {text: box.y0 for text, box in texts(figure)}
    assert min(heights["the"], heights["sleeps"]) > max(heights["le"], heights["dort"])


def test_arcs_over_more_tokens_than_fit_are_refused():
    recording = recorded(stack(layers=1), sequence(1, 200), key_tokens=[f"word{index}" for index in range(200)])
    with pytest.raises(InputError, match=r"on 6.75 inches, got 200 tokens. Fix: choose some of them: first=0, stop=30"):
        arcs(recording[0, 0])
    assert "word40" in words(arcs(recording[0, 0], first=30, stop=50))


def test_arcs_without_tokens_are_refused():
    with pytest.raises(InputError, match="a recording with tokens, to draw arcs, got one without them"):
        arcs(recorded(stack(), sequence())[0, 0])


def dots(figure):
    return [line.get_ydata() for line in figure.axes[0].lines if line.get_marker() == "o"]


def test_a_point_of_the_entropies_stands_at_its_height():
    recording = named()
    drawn = dots(entropy_by_layer(recording))
    wanted = [[float(recording[layer, head].entropy().mean()) for head in range(4)] for layer in range(3)]
    slope, offset = np.polyfit(np.ravel(wanted), np.ravel(drawn), 1)
    assert slope < 0
    np.testing.assert_allclose(np.ravel(drawn), slope * np.ravel(wanted) + offset, atol=1e-3)


@pytest.mark.parametrize(("causal", "most"), [(False, math.log(7)), (True, sum(math.log(i) for i in range(1, 8)) / 7)])
def test_the_dashed_line_is_that_of_equal_weights(causal, most):
    model = stack(causal=causal)
    for layer in model:
        layer.project.weight.data.zero_()
        layer.project.bias.data.zero_()
    figure = entropy_by_layer(recorded(model, sequence()))
    dashed = [line.get_ydata()[0] for line in figure.axes[0].lines if line.is_dashed()]
    np.testing.assert_allclose(dashed, [float(each[0]) for each in dots(figure)], atol=1e-3)
    assert float(recorded(model, sequence())[0, 0].entropy().mean()) == pytest.approx(most, abs=1e-5)


def test_summaries_are_drawn_too():
    recording = recorded(stack(), sequence(), keep="summary")
    assert len(images(heads_grid(recording))) == 12
    figure = entropy_by_layer(recording)
    assert len(dots(figure)) == 3
    assert not re.search("equal weights", " ".join(words(figure)))


def test_a_recording_plots_by_name(tmp_path):
    recording = named()
    for figure, options in {
        "heads": {},
        "entropy": {},
        "head": {"layer": 1, "head": 2},
        "arcs": {"layer": 1, "head": 2, "links": 3},
    }.items():
        drawn = recording.plot(tmp_path / f"{figure}.svg", figure, **options)
        assert drawn.get_figwidth() in (6.75, 3.35)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arcs.svg", "entropy.svg", "head.svg", "heads.svg"]


def test_an_option_that_the_figure_does_not_have_is_refused_with_those_that_it_has():
    with pytest.raises(InputError, match="options of the figure 'heads': size, sequence, padding, got layer=1, head=2"):
        named().plot(None, "heads", layer=1, head=2)
    with pytest.raises(InputError, match="the figure 'map': layer, head, size, sequence, padding, got query='it'"):
        named().plot(None, "map", layer=0, head=0, query="it")


def test_heads_are_named_as_everywhere():
    for draw, names in ((heads_grid, {"L0", "L1", "H0", "H3"}), (entropy_by_layer, {"L0", "L1"})):
        assert names <= {text.get_text() for axes in draw(named()).axes for text in axes.texts}


def test_another_figure_or_ending_is_refused(tmp_path):
    recording = named()
    with pytest.raises(InputError, match="one of the figures heads, entropy, map, head, arcs, got figure='pie'"):
        recording.plot(figure="pie")
    with pytest.raises(InputError, match="one head for the figure 'head', got no options. Fix: name it: layer=5, head=11"):
        recording.plot(figure="head")
    with pytest.raises(InputError, match="a path that ends in .pdf, .svg or .png"):
        recording.plot(tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [64, 100])
def test_figures_of_a_summary_have_the_cells_of_the_summary(size):
    summary = recorded(stack(), sequence(1, 600), keep="summary", map_size=size)
    for figure, options in (("heads", {}), ("head", {"layer": 1, "head": 2})):
        maps = {image.get_array().shape[:2] for axis in summary.plot(None, figure, **options).axes for image in axis.images}
        assert (size, size) in maps
        assert maps <= {(size, size), (1, 64)}  # the scale
    with pytest.raises(
        InputError, match=f"got 256 cells, which cut some of them. Fix: pass size={size}, or record with map_size"
    ):
        summary.plot(None, "head", layer=1, head=2, size=256)
