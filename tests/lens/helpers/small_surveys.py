"""A small language model and texts for surveys, and each measure once more as plain loops."""

import math
import random

import torch

import overt
from overt.learn.data.tokenizer import Tokenizer
from overt.lens import record
from overt.models import LanguageModel

WORDS = [
    "the",
    "cat",
    "dog",
    "bird",
    "sat",
    "ran",
    "on",
    "under",
    "a",
    "mat",
    "tree",
    ",",
    ".",
    "and",
    "then",
    "saw",
    "another",
    "one",
]


def texts(count, seed=0, longest=14):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, longest))) for _ in range(count)]


def small_model(seed=0):
    tokenizer = Tokenizer.learn([" ".join(WORDS), "<doc> </doc>"] * 4, merges=60)
    torch.manual_seed(seed)
    model = LanguageModel(tokenizer.words, width=16, heads=2, layers=2, feed_forward=32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # sharper weights than a fresh model's
    return model.eval(), tokenizer


def by_loops(model, tokenizer, text, layer, head):
    """Sums and counts of some measures of one head in one text, from its whole map of weights."""
    ids = tokenizer.encode(text)
    with torch.no_grad(), record(model) as recording:
        model(torch.tensor([ids]))
    weights = recording[layer, head].weights()[0].double()
    sums, counts = {}, {}

    def count(name, value):
        sums[name], counts[name] = sums.get(name, 0.0) + value, counts.get(name, 0) + 1

    for i in range(1, len(ids)):  # the first query sees only itself
        row = [float(weights[i, j]) for j in range(i + 1)]
        count("entropy", -sum(w * math.log(w) for w in row if w > 0))
        count("uniform", -sum(w * math.log(w) for w in row if w > 0) / math.log(i + 1))
        count("largest", max(row))
        count("distance", sum(w * (i - j) for j, w in enumerate(row)))
        count("previous token", row[i - 1])
        count("first token", row[0])
        count("same token", sum(w for j, w in enumerate(row) if ids[j] == ids[i]))
        copies = [j for j in range(i) if ids[j] == ids[i]]
        if copies:
            count("duplicate token", sum(row[j] for j in copies))
        if after := [j + 1 for j in copies if j + 1 != i]:
            count("induction", sum(row[j] for j in after))
        count("output norm", float(recording[layer, head].output[0, i].double().norm()))
    received = [sum(float(weights[i, j]) for i in range(1, len(ids))) / (len(ids) - 1) for j in range(len(ids))]
    count("received", max(received))
    return sums, counts


def chance_by_distance(model, tokenizer, texts, layer, head, name):
    """What a head gives "induction" or "duplicate token" at the pattern's distances in pairs that are none of it, from whole maps."""
    inside, outside, queries = [], {}, 0
    for text in texts:
        ids = tokenizer.encode(text)
        with torch.no_grad(), record(model) as recording:
            model(torch.tensor([ids]))
        weights = recording[layer, head].weights()[0].double()
        for i in range(1, len(ids)):
            copies = [j for j in range(i) if ids[j] == ids[i]]
            pattern = copies if name == "duplicate token" else [j + 1 for j in copies if j + 1 != i]
            queries += bool(pattern)
            for j in range(i + 1):
                if j in pattern:
                    inside.append((j - i, float(weights[i, j])))
                else:
                    outside.setdefault(j - i, []).append(float(weights[i, j]))
    total = 0.0
    for distance, _ in inside:
        level = outside.get(distance) or [weight for other, weight in inside if other == distance]
        total += sum(level) / len(level)
    return total / queries


class TwoHeads(torch.nn.Module):
    """Head 0 looks back by `back` tokens, head 1 to what followed the query's token before."""

    def __init__(self, words, longest, back):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, words)
        self.embedding.weight.data = torch.eye(words)
        self.longest, self.back = longest, back

    def forward(self, ids):
        words = self.embedding(ids)
        positions = torch.eye(self.longest)[: ids.shape[1]].expand(len(ids), -1, -1)
        before = torch.nn.functional.pad(words, (0, 0, 1, 0))[:, :-1]
        shifted = torch.nn.functional.pad(positions, (0, 0, self.back, 0))[:, : ids.shape[1]]
        width = max(words.shape[-1], self.longest)
        query, key = (
            torch.stack([torch.nn.functional.pad(each, (0, width - each.shape[-1])) for each in pair], dim=1)
            for pair in ((shifted, words), (positions, before))
        )
        return overt.attend(query, key, key, score=overt.Dot(scale=30.0), mask=overt.Causal())
