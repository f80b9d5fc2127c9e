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
