"""Models: whole networks made of the layers, each readable in one file.

`Transformer` and the recurrent `Seq2Seq` translate, `LanguageModel` goes on from a prompt, `TransformerEncoder` reads; `Tagger` says
something of each word and `Classifier` of a whole text. `greedy_search`, `beam_search` and `sample` write
with a translator or a language model, a word at a time, with caches. `from_config` makes a model of plain data.
"""

from overt.models.building import from_config
from overt.models.classifier import Classifier
from overt.models.decoding import Hypothesis, beam_search, greedy_search, sample
from overt.models.language_model import LanguageModel
from overt.models.seq2seq import Seq2Seq
from overt.models.tagger import Tagger
from overt.models.transformer import Transformer
from overt.models.transformer_encoder import TransformerEncoder

__all__ = [
    "Classifier",
    "Hypothesis",
    "LanguageModel",
    "Seq2Seq",
    "Tagger",
    "Transformer",
    "TransformerEncoder",
    "beam_search",
    "from_config",
    "greedy_search",
    "sample",
]
