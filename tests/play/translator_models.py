"""Small translators with weights at random, which are those that a page's whole numbers stand for: what differs then is rounding in float32."""

import torch

from overt.learn.data.tokenizer import Tokenizer
from overt.learn.run.model_folder import save_model
from overt.learn.translator import Translator
from overt.models import from_config
from overt.play.weights import restored

TEXTS = [
    "the old man was tired and the black cat is sleeping on my bed",
    "le vieil homme était fatigué, et le chat noir dort sur mon lit",
    "where did you buy these shoes? où as-tu acheté ces chaussures ?",
] * 3


def saved(folder, kind, *, small=False, seed=0, tokenizer=None, **options):
    """A folder with a model of random weights."""
    torch.manual_seed(seed)
    tokenizer = tokenizer or Tokenizer.learn(TEXTS, merges=60)
    words = {"source_words": tokenizer.words, "target_words": tokenizer.words}
    model = from_config({"kind": kind, **words, "width": 24, **options})
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(parameter, std=0.25)
        if parameter.ndim == 2:
            parameter.data = torch.from_numpy(restored(parameter.detach().numpy(), small))
    save_model(model.eval(), folder, tokenizer)
    return folder


def model_alone(translator):
    """The same translator without what keeps text that is not prose out of the model: the page has only the model."""
    return Translator(translator.model, translator.tokenizer, processing=False)
