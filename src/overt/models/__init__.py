"""Models: complete networks built from the layers, each in one file.

`Transformer` and the recurrent `Seq2Seq` translate, `LanguageModel` continues a prompt, `TransformerEncoder` encodes a text; `Tagger`
classifies each word and `Classifier` a whole text. `greedy_search`, `beam_search` and `sample` generate text
with a translator or a language model, word by word, with caches. `from_config` builds a model from plain data.
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
