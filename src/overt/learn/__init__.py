"""Learning: from a recipe and its data to a model that translates, tags or classifies."""

from overt.learn.loss import smoothed
from overt.learn.model_folder import load_model, save_model
from overt.learn.settings import Training
from overt.learn.training import Result, train

__all__ = ["Result", "Training", "load_model", "save_model", "smoothed", "train"]
