"""A small translator that has learnt ten sentences by heart, for the tests of everything that translates."""

from functools import cache

import torch

from overt.learn.data.tokenizer import END, START, Tokenizer
from overt.learn.translator import Translator, pad_rows
from overt.models import Transformer

ENGLISH = [
    "I am happy to see you.", "Tom is my friend.", "Where is the station?", "I don't know.", "She speaks French.",
    "The cat is sleeping.", "We are tired.", "Do you understand me?", "He is not here.", "They went home.",
]  # fmt: skip
FRENCH = [
    "Je suis heureux de vous voir.", "Tom est mon ami.", "Où est la gare ?", "Je ne sais pas.", "Elle parle français.",
    "Le chat dort.", "Nous sommes fatigués.", "Me comprends-tu ?", "Il n'est pas là.", "Ils sont rentrés chez eux.",
]  # fmt: skip


@cache
def by_heart() -> Translator:
    """The translator, trained in about a second; not to be changed."""
    tokenizer = Tokenizer.learn(ENGLISH, FRENCH, merges=100)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"width": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "feed_forward": 64}
        model = Transformer(tokenizer.words, tokenizer.words, **sizes, dropout=0.0, tied="all")
        source, lengths = pad_rows([[*ids, END] for ids in tokenizer.encode_all(ENGLISH)], torch.device("cpu"))
        target, _ = pad_rows([[START, *ids, END] for ids in tokenizer.encode_all(FRENCH, target=True)], torch.device("cpu"))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            scores = model(source, target[:, :-1], source_lengths=lengths)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Translator(model.eval().requires_grad_(False), tokenizer, "ten sentences")
