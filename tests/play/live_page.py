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

    def put(self, *texts):
        """Put each text into the field, as typing and pasting do, with no time between them; returns at once."""
        self.page.ask(
            "void (() => { const field = document.getElementById('sentence');"
            f"for (const text of {json.dumps(texts)}) {{ field.value = text; field.dispatchEvent(new Event('input')); }} }})()"
        )

    def type(self, text, seconds=60):
        """Put a text into the field and wait for its picture."""
        read = self.page.ask("Number(viewer.dataset.read ?? 0)")
        self.put(text)
        self.page.until(f"Number(viewer.dataset.read ?? 0) > {read}", seconds)


def little_model(folder, minilm):
    """A BERT of 3 layers of 4 heads with weights at random and MiniLM's tokenizer: its page is written and opened quickly."""
    import torch
    from safetensors.torch import save_file

    from overt.explain.minilm import MiniLM, load
    from overt.explain.text_model import Packaged

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((minilm.folder / name).read_bytes())
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = {"model_type": "bert", "vocab_size": 30522, "type_vocab_size": 2, "max_position_embeddings": 128}
    config |= sizes | {"hidden_act": "gelu", "layer_norm_eps": 1e-12}
    (folder / "config.json").write_text(json.dumps(config))
    network, drawn = MiniLM(config), torch.Generator().manual_seed(4)
    state = {name: torch.randn(each.shape, generator=drawn) * 0.3 for name, each in network.state_dict().items()}
    for name, each in state.items():
        if name.endswith("LayerNorm.weight"):
            each += 1
    save_file(state, folder / "model.safetensors")
    model = Packaged(folder)
    model.network = load(folder)
    return model


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
