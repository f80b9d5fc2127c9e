"""What live pages cost to write, to open and to type on, and how near they come to Python, as benchmarks/play/live_page.py measured it."""

from pictures import result, table

from shown import machine, runs


def speeds() -> str:
    """Sizes and times of each page."""
    measured = result("live-page")
    rows = [
        (name, f"{page['bytes'] / 1e6:.1f} MB", f"{page['seconds']:.1f} s", f"{page['first_picture']:.1f} s", _typed(page))
        for name, page in measured["pages"].items()
    ]
    head = ["page", "size", "written in", "first picture", "while you type"]
    return f"{table(rows, head, 'lrrrl')}\n\n{machine(measured)}, headless Chromium; medians of {runs(measured['runs'])}."


def _typed(page: dict[str, float]) -> str:
    if "token" in page:
        return f"{page['token']:.1f} ms a written token, {page['token_of_a_beam_of_5']:.1f} ms with a beam of 5"
    return f"{page['model_16']:.0f} ms at 16 tokens, {page['model_128']:.0f} ms at 128"


def agreement() -> str:
    """How far weights are from Python's."""
    measured = result("live-page-agreement")
    rows = [
        (name, f"{page['largest']:.1g}", f"{100 * page['same_strongest_link']:.1f} %", _translated(page))
        for name, page in measured["pages"].items()
    ]
    head = [
        f"page, {measured['sentences']} sentences",
        "largest difference of a weight",
        "same strongest link",
        "same translation",
    ]
    return table(rows, head, "lrrr")


def _translated(page: dict[str, float]) -> str:
    return f"{100 * page['same_translation']:.1f} %" if "same_translation" in page else ""
