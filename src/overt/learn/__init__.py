"""Training: from a recipe and its data to a model that translates, tags, classifies or continues text."""

from overt.learn.config.settings import Training
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.loop.loss import cross_entropy
from overt.learn.loop.training import TrainingResult, train
from overt.learn.run.model_folder import load_model, save_model
from overt.learn.translator import Translation, Translator

__all__ = [
    "Tokenizer",
    "Training",
    "TrainingResult",
    "Translation",
    "Translator",
    "cross_entropy",
    "load_model",
    "save_model",
    "train",
]
