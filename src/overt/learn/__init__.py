"""Learning: from a recipe and its data to a model that translates, tags or classifies."""

from overt.learn.loss import cross_entropy
from overt.learn.model_folder import load_model, save_model
from overt.learn.settings import Training
from overt.learn.tokenizer import Tokenizer
from overt.learn.training import Result, train
from overt.learn.translator import Translation, Translator

__all__ = ["Result", "Tokenizer", "Training", "Translation", "Translator", "cross_entropy", "load_model", "save_model", "train"]
