"""A live page as its tests write it, open it and type on it."""

import json

TIRED = "The animal didn't cross the street because it was too tired."


class Typed:
    """A live page in the browser, on which sentences are typed."""

    def __init__(self, page):
        self.page = page

    @property
    def said(self):
        return self.page.ask("document.querySelector('.typing .state').textContent")

    def until_said(self, start, seconds=60):
        self.page.until(f"document.querySelector('.typing .state')?.textContent.startsWith({json.dumps(start)})", seconds)

    def ready(self):
        self.page.until("Number(viewer.dataset.read ?? 0) > 0", 60)
        return self

    def put(self, text):
        """Put a text into the field, as typing and pasting do; returns at once."""
        self.page.ask(
            "void (() => { const field = document.getElementById('sentence');"
            f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
        )

    def type(self, text, seconds=60):
        """Put a text into the field and wait for its picture."""
        read = self.page.ask("Number(viewer.dataset.read ?? 0)")
        self.put(text)
        self.page.until(f"Number(viewer.dataset.read ?? 0) > {read}", seconds)


def write(minilm, path, **options):
    from overt.explain.recipes.qkv import qkv
    from overt.play.encoders import BertEncoder
    from overt.play.page import write

    write(qkv(minilm, TIRED, "it"), BertEncoder(minilm.folder), path, **options)
    return path


def shown(live, **settings):
    """Set the settings and wait until the lesson has drawn them; the page."""
    live.page.ask(f"void viewer.store.set({json.dumps(settings)})")
    live.page.until("viewer.querySelector('[aria-busy]') === null", 30)
    return live.page


def table(page, inside):
    """The rows of the tables there, as texts."""
    rows = f"Array.from(document.querySelectorAll({json.dumps(inside + ' tbody tr')}), (row) => Array.from(row.cells, (cell) => cell.textContent))"
    return page.ask(rows)


def opened_at(opened, page, panel, **how):
    """Open a page, or a link to one, at this panel, and wait until it is drawn."""
    live = opened(page if "://" in str(page) else f"{page.absolute().as_uri()}#panel={panel}", **how).ready()
    shown(live)
    return live
