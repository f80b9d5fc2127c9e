"""A task small enough for tests of the loop: say which word comes after which."""

import torch
from torch import nn

WORDS = 12


class Model(nn.Module):
    """An embedding, a layer, dropout, and an output that shares the embedding's matrix."""

    def __init__(self, width: int = 8, dropout: float = 0.0):
        super().__init__()
        self.config = {"width": width, "dropout": dropout}
        self.embedding = nn.Embedding(WORDS, width)
        self.hidden = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, WORDS)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.dropout(self.hidden(self.embedding(tokens))))


class Counting:
    """Sequences of different lengths that count up from a random word; a batch is padded with word 0, which is not scored."""

    measure = "accuracy"

    def __init__(self, sequences: int = 40, rows: int = 6):
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(3, 9, (sequences,), generator=generator)
        starts = torch.randint(1, WORDS, (sequences,), generator=generator)
        self.sequences = [
            [1 + (int(start) + step) % (WORDS - 1) for step in range(int(length))]
            for start, length in zip(starts, lengths, strict=True)
        ]
        self.rows = rows

    def batches(self, epoch):
        order = torch.randperm(len(self.sequences), generator=torch.Generator().manual_seed(epoch)).tolist()
        return [order[start : start + self.rows] for start in range(0, len(order), self.rows)]

    def batch(self, indices):
        longest = max(len(self.sequences[index]) for index in indices)
        return torch.tensor([self.sequences[index] + [0] * (longest - len(self.sequences[index])) for index in indices])

    def loss(self, model, batch):
        read, written = batch[:, :-1], batch[:, 1:]
        real = written != 0
        return nn.functional.cross_entropy(model(read)[real], written[real], reduction="sum"), int(real.sum())

    def evaluate(self, model):
        batch = self.batch(list(range(len(self.sequences))))
        real = batch[:, 1:] != 0
        result = model(batch[:, :-1]).argmax(-1)
        return {"accuracy": (result == batch[:, 1:])[real].float().mean().item()}
