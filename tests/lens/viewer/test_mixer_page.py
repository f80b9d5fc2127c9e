"""Linear token mixers on the page: signed weights by the walk back in the browser, beside attention in one recording."""

import pytest
import torch
from torch import nn

import overt
from reading_pages import tab
from toy_mixer import ToyMixer

SHOWN = "document.body.innerText"
WEIGHTS = "[...document.querySelectorAll('.part bdi')].map((each) => each.getAttribute('aria-label'))"


class Hybrid(nn.Module):
    """A linear mixer, then attention."""

    def __init__(self):
        super().__init__()
        self.mixer, self.attention = ToyMixer(12, 2), nn.MultiheadAttention(12, 2, batch_first=True)

    def forward(self, x):
        mixed = self.mixer(x)
        return mixed + self.attention(mixed, mixed, mixed)[0]


def hybrid(**options):
    torch.manual_seed(0)
    model = Hybrid().eval()
    with torch.no_grad(), overt.lens.record(model, key_tokens=[f"w{i}" for i in range(11)], **options) as recording:
        model(2 * torch.randn(1, 11, 12))
    return recording


def test_the_browser_walks_back_to_the_same_signed_weights(opened):
    recording = hybrid()
    page = opened(recording, "head=0.1&batch=0&token=7&colour=linear")
    weights = recording[0, 1].weights(rows=7)[0, 0].tolist()
    assert min(weights) < 0 < max(weights)
    said = [float(each.rpartition(" ")[2].replace("−", "-")) for each in page.ask(WEIGHTS)]
    assert said == pytest.approx(weights, abs=6e-4)
    negative = page.ask("[...document.querySelectorAll('.part bdi')].map((each) => each.classList.contains('negative'))")
    assert negative == [weight < 0 for weight in weights]
    assert page.complaints == []


@pytest.mark.slow
def test_the_words_are_those_of_signed_weights(opened):
    page = opened(hybrid(), "head=0.1&batch=0&token=7&panel=checks")
    shown = page.ask(SHOWN)
    for name in ("steps", "map", "links"):
        tab(page, name)
        shown += page.ask(SHOWN)
    assert "gated delta rule" in shown
    assert "nothing stands before it" in shown
    assert "need not sum to 1" in shown
    assert "entropy of |W|" in shown
    for word in ("attends to", "probabil", "share of α", "equal weights"):
        assert word not in shown
    assert "attends to" in opened(hybrid(), "head=1.1&batch=0&token=7").ask(SHOWN)


def test_the_steps_are_the_mixers_own(opened):
    recording = hybrid()
    page = opened(recording, "head=0.0&batch=0&token=9&key=4&panel=steps")
    titles = page.ask("[...document.querySelectorAll('.stages button')].map((each) => each.title)")
    assert titles == ["key and value", "decay", "what the row asks for", "weight", "weighted value", "sum"]
    page.ask("void document.querySelectorAll('.stages button')[3].click()")
    row = page.ask(
        "[...document.querySelector('#panel-steps .six tr[data-key=\"4\"]').querySelectorAll('td.number')].map((e) => e.textContent)"
    )
    steps = recording[0, 0].steps(9)
    numbers = [float(each.replace("−", "-")) for each in row[:2]]
    assert numbers == pytest.approx([float(steps.decay[0, 4].mean()), float(steps.weights[0, 4])], abs=6e-4)


def test_colours_diverge_around_zero_and_the_legend_has_both_ends(opened):
    page = opened(hybrid(), "head=0.1&batch=0&token=7&colour=linear")
    assert "around zero" in page.ask("document.querySelector('.legend').getAttribute('aria-label')")
    ticks = page.ask("[...document.querySelectorAll('.legend .tick')].map((each) => each.textContent)")
    assert ticks[0] == f"−{ticks[-1]}"
    assert page.ask("document.querySelector('select[aria-label=colours]')") is None


def test_a_summary_of_a_mixer_has_its_strongest_weights(opened):
    recording = hybrid(keep="summary")
    page = opened(recording, "head=0.1&batch=0&token=7")
    assert page.complaints == []
    top = recording[0, 1].top(7, 1)
    assert page.ask(f"document.querySelectorAll('.part bdi')[{int(top.keys)}].getAttribute('aria-label')").endswith(
        f"weight {float(top.weights):.3f}".replace("-", "−")
    )


@pytest.mark.parametrize("figure", ["heads", "head", "arcs", "entropy"])
def test_figures_of_signed_weights(figure):
    pytest.importorskip("matplotlib")
    options = {"layer": 0, "head": 1} if figure in ("head", "arcs") else {}
    drawn = hybrid().plot(figure=figure, **options)
    if figure == "head":
        low, high = drawn.axes[0].images[0].get_clim()
        assert low == -high < 0


def test_codes_of_signed_weights_keep_sign_and_size():
    from overt.lens.viewer.pyramids import signed_codes

    weights = torch.tensor([-3.0, -1e-3, 0.0, 1e-3, 3.0])
    codes = signed_codes(weights).astype(int)
    assert (codes - 128).tolist() == [-each for each in (codes - 128).tolist()][::-1]
    assert codes.tolist() == sorted(codes)
