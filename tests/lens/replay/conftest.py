"""A small language model, and an answer of it as ids, words and log probabilities."""

import pytest
import torch

from overt.learn.data.tokenizer import Tokenizer
from overt.models import LanguageModel
from server_logs import ANSWER, PROMPT, log_probabilities
from small_surveys import WORDS


@pytest.fixture(scope="module")
def model_and_tokenizer():
    tokenizer = Tokenizer.learn([" ".join(WORDS), PROMPT] * 4, merges=80)
    torch.manual_seed(0)
    model = LanguageModel(tokenizer.words, width=16, heads=2, layers=2, feed_forward=32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model.eval(), tokenizer


@pytest.fixture(scope="module")
def tokens(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(ANSWER)
    words = [tokenizer.pieces.id_to_token(number).replace("▁", " ") for number in ids]
    return prompt, ids, words, log_probabilities(model, prompt, ids), ANSWER
