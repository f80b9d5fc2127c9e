"""A recipe that trains a tiny translator in a second, and the command `overt` in this process."""

from typer.testing import CliRunner

from overt.cli.main import app

RECIPE = """
task = "translate"
[data]
format = "pairs"
train = ["pairs.txt"]
held_out = [1, 2]
origin = "the tests"
[tokens]
merges = 20
[model]
kind = "Transformer"
width = 16
heads = 2
encoder_layers = 1
decoder_layers = 1
feed_forward = 16
[training]
updates = 4
warmup = 2
tokens_per_batch = 200
evaluate_every = 2
checkpoint_every = 2
seed = 3
"""


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})
