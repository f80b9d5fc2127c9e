"""A Transformer of Multi30k's size beside others of the same weights: training steps, and greedy translation.

    OMP_NUM_THREADS=2 python -m benchmarks.learn.translation [--runs 7] [--seconds 120] [--out docs/results/translation.json]

4 + 4 layers, width 128, feed-forward 256, 4 heads, 10,000 joint words. Training: a batch of about 150 × 25 tokens, forward, backward
and AdamW, beside torch's nn.Transformer as it comes (dropout also of weights and inside the feed-forward) and with dropout where
overt has it. Translation: 512 sentences of 5 to 35 tokens, as overt's Translator takes them (sorted by length, up to 4,096 tokens at
once) and 64 at a time, sorted or as they come, by the same model without caches, by one that keeps the source alone, and by generate()
of Hugging Face's Marian, which is this Transformer with norms behind. Losses and every written token are compared first; if any differ,
nothing is printed. Runs take turns.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import results
from overt.bench.timing import time_alternating, use_threads
from overt.learn.loop.loss import cross_entropy
from overt.models import Transformer, greedy_search
from overt.models.transformer_layers import TransformerMemory

WORDS, WIDTH, HEADS, LAYERS, HIDDEN = 10_000, 128, 4, 4, 256
START, END = 1, 2
DROPOUT, SMOOTHING = 0.3, 0.1
NOTHING_KEPT, SOURCE_KEPT = "nothing kept", "source kept"
MARIAN, MARIAN_SORTED = "generate()", "generate(), sorted"
FROM_TORCH = [
    (r"encoder(.*)self_attn", r"encoder\1attention"),
    (r"encoder(.*)norm1", r"encoder\1around_attention.norm"),
    (r"encoder(.*)norm2", r"encoder\1around_feed_forward.norm"),
    (r"self_attn", "self_attention"),
    (r"multihead_attn", "cross_attention"),
    (r"norm1", "around_self_attention.norm"),
    (r"norm2", "around_cross_attention.norm"),
    (r"norm3", "around_feed_forward.norm"),
    (r"linear1", "feed_forward.widen"),
    (r"linear2", "feed_forward.narrow"),
]
TO_MARIAN = [
    (r"around_(?:self_)?attention\.norm", "self_attn_layer_norm"),
    (r"around_cross_attention\.norm", "encoder_attn_layer_norm"),
    (r"around_feed_forward\.norm", "final_layer_norm"),
    (r"cross_attention\.", "encoder_attn."),
    (r"layers\.(\d+)\.(?:self_)?attention\.", r"layers.\1.self_attn."),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"attn\.output\.", "attn.out_proj."),
    (r"feed_forward\.widen", "fc1"),
    (r"feed_forward\.narrow", "fc2"),
]


def main() -> None:
    """Measure and print both tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--seconds", type=float, default=120.0)
    results.takes_out(options)
    arguments = options.parse_args()
    result, rounds = {}, {}
    use_threads(torch.get_num_threads())
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads, at most {arguments.runs} runs in turns, medians with quartiles")
    for title, unit, (runs, amount), others in (
        ("training", "target tokens/s", training(), ["nn.Transformer"]),
        ("greedy translation", "sentences/s", translation(), [NOTHING_KEPT, SOURCE_KEPT, MARIAN, MARIAN_SORTED]),
    ):
        times = time_alternating(runs, arguments.runs, arguments.seconds)
        print(f"\n{title:40}{'seconds':>24}{unit:>18}", *(f"   times {other}" for other in others), sep="")
        for name, taken in times.items():
            low, high = taken.quartiles
            seconds = f"{taken.median:.3f} ({low:.3f}–{high:.3f})"
            ratios = (f"{times[other].median / taken.median:>{len(other) + 9}.2f}" for other in others)
            print(f"{name:40}{seconds:>24}{amount / taken.median:>18,.0f}", *ratios, sep="")
        rounds[title] = len(next(iter(times.values())).seconds)
        result[title] = {name: amount / taken.median for name, taken in times.items()}
    results.write(arguments.out, threads=torch.get_num_threads(), runs=rounds, a_second=result)


def transformer(kind: type, norm: str, dropout: float = 0.0) -> Any:
    """The model of a table."""
    return kind(WORDS, WORDS, WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, norm=norm, dropout=dropout, tied="all")


class Torch(nn.Module):
    """nn.Transformer between the embedding and the output that `Transformer` has."""

    def __init__(self, like: Transformer, everywhere: bool):
        super().__init__()
        self.table = nn.Parameter(like.output.weight.detach().clone())
        self.indices = like.decoder.embedding.positions.vectors(torch.arange(64)).float()  # type: ignore[union-attr]
        self.inner = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, DROPOUT, batch_first=True, norm_first=True)
        for layer in () if everywhere else (*self.inner.encoder.layers, *self.inner.decoder.layers):
            layer.dropout.p = 0.0
            for attention in layer.modules():
                if isinstance(attention, nn.MultiheadAttention):
                    attention.dropout = 0.0

    def embedded(self, tokens: Tensor) -> Tensor:
        """Words with their places."""
        x = functional.embedding(tokens, self.table) * WIDTH**0.5 + self.indices[: tokens.shape[1]]
        return functional.dropout(x, DROPOUT, self.training)

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        """The scores of all words."""
        padding, beyond = (
            torch.arange(tokens.shape[1]) >= lengths[:, None]
            for tokens, lengths in ((source, source_lengths), (target, target_lengths))
        )
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.inner(
            self.embedded(source),
            self.embedded(target),
            tgt_mask=later,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=beyond,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(states, self.table)


def renamed(state: dict[str, Tensor], names: list[tuple[str, str]]) -> dict[str, Tensor]:
    """The weights of the layers under another library's names."""
    result = {}
    for name, weight in state.items():
        if "embedding" not in name and name != "output.weight":
            for one, other in names:
                name = re.sub(one, other, name)
            result[name] = weight
    return result


def training() -> tuple[dict[str, Callable[[], object]], int]:
    """A step of each contender, and the target tokens in it."""
    source, target, labels = torch.randint(4, WORDS, (3, 150, 25))
    source_lengths, target_lengths = torch.randint(21, 26, (2, 150))
    real = torch.arange(25) < target_lengths[:, None]
    labels = labels.masked_fill(~real, 0)
    lengths = {"source_lengths": source_lengths, "target_lengths": target_lengths}

    def theirs(model: nn.Module) -> Tensor:
        scores = model(source, target, **lengths)
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=SMOOTHING)

    def plain(model: Transformer) -> Tensor:
        scores = model.output(model.states(source, target, **lengths)[real])
        return functional.cross_entropy(scores, labels[real], label_smoothing=SMOOTHING)

    def ours(model: Transformer) -> Tensor:
        return cross_entropy(model.states(source, target, **lengths)[real], model.output, labels[real], SMOOTHING) / real.sum()

    model = transformer(Transformer, "pre", DROPOUT)
    everywhere, as_here = Torch(model, everywhere=True), Torch(model, everywhere=False)
    as_here.load_state_dict(everywhere.state_dict())
    model.load_state_dict(renamed(everywhere.inner.state_dict(), FROM_TORCH), strict=False)
    contenders: dict[str, tuple[nn.Module, Callable]] = {
        "nn.Transformer": (everywhere, theirs),
        "nn.Transformer, dropout as overt": (as_here, theirs),
        "overt, loss as theirs": (model, plain),
        "overt": (model, ours),
    }
    agree({name: [loss(model.eval())] for name, (model, loss) in contenders.items()})
    return {name: step(model.train(), loss) for name, (model, loss) in contenders.items()}, int(real.sum())


def step(model: nn.Module, loss: Callable) -> Callable[[], object]:
    """Forward, backward and AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def run() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    return run


def agree(losses: dict[str, list[Tensor]]) -> None:
    """End here unless every loss is the first one's."""
    (first, [wanted]), *others = losses.items()
    for name, [result] in others:
        if not torch.allclose(result, wanted, rtol=1e-5):
            sys.exit(f"{name}: the loss is {result.item()}, that of {first} {wanted.item()}")


def translation() -> tuple[dict[str, Callable[[], object]], int]:
    """Greedy translation of all sentences by each contender, and how many there are."""
    model = transformer(Ending, "post").eval()
    marian = marian_of(model)
    lengths = torch.normal(14.0, 4.0, (512,)).round().long().clamp(5, 35)
    ends = (lengths * torch.normal(1.0, 0.15, (512,))).round().long().clamp(3)
    sentences = [torch.randint(4, WORDS, (int(length),)) for length in lengths]
    by_length = lengths.argsort(descending=True)
    as_they_come, by_64, large = torch.arange(512).split(64), by_length.split(64), filled(by_length, lengths)
    ways: dict[str, tuple[Callable, nn.Module, Sequence[Tensor]]] = {
        NOTHING_KEPT: (nothing_stored, model, by_64),
        SOURCE_KEPT: (source_stored, model, by_64),
        MARIAN: (generated, marian, as_they_come),
        MARIAN_SORTED: (generated, marian, by_64),
        "generate(), batches as overt's": (generated, marian, large),
        "overt, 64 as they come": (cached, model, as_they_come),
        "overt, 64 sorted": (cached, model, by_64),
        "overt": (cached, model, large),
    }

    def run(way: Callable, requested: nn.Module, batches: Sequence[Tensor]) -> list[list[int]]:
        result: dict[int, list[int]] = {}
        for indices in batches:
            source = nn.utils.rnn.pad_sequence([sentences[position] for position in indices], batch_first=True)
            result |= zip(indices.tolist(), way(requested, source, lengths[indices], ends[indices]), strict=True)
        return [result[position] for position in range(len(sentences))]

    runs = {name: lambda arguments=arguments: run(*arguments) for name, arguments in ways.items()}
    wanted = runs["overt"]()
    for name, ours in runs.items():
        different = sum(one != other for one, other in zip(ours(), wanted, strict=True))
        if different:
            sys.exit(f"{name}: {different} of {len(wanted)} texts are not overt's")
    return runs, len(wanted)


def filled(order: Tensor, lengths: Tensor, tokens: int = 4096) -> list[Tensor]:
    """Batches as `Translator` makes them: in this order, the longest first, each of at most so many tokens, padding counted."""
    batches = []
    while len(order):
        size = tokens // int(lengths[order[0]])
        batches.append(order[:size])
        order = order[size:]
    return batches


class Ending(Transformer):
    """A Transformer whose texts have as many words as `ends` says of each sentence: with random weights none would ever end."""

    ends: Tensor

    def step(self, tokens: Tensor, memory: TransformerMemory) -> Tensor:
        """The scores of the model, and the end where it is due."""
        written = len(memory.caches[0])
        return ended(super().step(tokens, memory), self.ends[memory.sentences] <= written)


def ended(scores: Tensor, due: Tensor) -> Tensor:
    """Scores (R, V) that leave only the end in the rows where it is due, and all words but the end in the others."""
    scores[:, END] = torch.where(due, 1e9, -1e9)
    return scores


def cached(model: Ending, source: Tensor, lengths: Tensor, ends: Tensor) -> list[list[int]]:
    """Overt's own search."""
    model.ends = ends
    return [text.tokens for text in greedy_search(model, source, source_lengths=lengths, start=START, end=END)]


@torch.no_grad()
def nothing_stored(model: Ending, source: Tensor, lengths: Tensor, ends: Tensor) -> list[list[int]]:
    """For each word the whole model reads the source and all words before it; texts that have ended leave."""

    def scores(rows: Tensor, target: Tensor) -> Tensor:
        return model(source[rows], target, source_lengths=lengths[rows])[:, -1]

    return written(scores, ends)


@torch.no_grad()
def source_stored(model: Ending, source: Tensor, lengths: Tensor, ends: Tensor) -> list[list[int]]:
    """The source is read once, for each word the decoder reads all words before it, and the last place alone is scored."""
    states = model.encoder(source, lengths=lengths)

    def scores(rows: Tensor, target: Tensor) -> Tensor:
        return model.output(model.decoder(target, model.decoder.prepare(states[rows], lengths[rows]))[:, -1])

    return written(scores, ends)


def written(scores: Callable[[Tensor, Tensor], Tensor], ends: Tensor) -> list[list[int]]:
    """The likeliest words by the scores of what follows (rows, words so far), until each text has ended."""
    texts: list[list[int]] = [[] for _ in ends]
    rows, target = torch.arange(len(ends)), torch.full((len(ends), 1), START)
    while len(rows):
        words = ended(scores(rows, target), ends[rows] < target.shape[1]).argmax(-1)
        for row, word in zip(rows.tolist(), words.tolist(), strict=True):
            texts[row] += [word] if word != END else []
        going = words != END
        rows, target = rows[going], torch.cat((target, words[:, None]), dim=1)[going]
    return texts


def generated(marian: nn.Module, source: Tensor, lengths: Tensor, ends: Tensor) -> list[list[int]]:
    """What Hugging Face's generate() writes."""
    result = marian.generate(  # type: ignore[operator]
        source,
        attention_mask=(torch.arange(source.shape[1]) < lengths[:, None]).long(),
        num_beams=1,
        do_sample=False,
        max_new_tokens=int(ends.max()) + 1,
        logits_processor=[lambda written, scores: ended(scores, ends < written.shape[1])],
    )
    return [text[: text.index(END)] for text in result[:, 1:].tolist()]


def marian_of(model: Transformer) -> nn.Module:
    """Hugging Face's Marian with the weights of a Transformer with norms behind."""
    from transformers import MarianConfig, MarianMTModel

    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
             (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", HIDDEN))}  # fmt: skip
    config = MarianConfig(
        vocab_size=WORDS, d_model=WIDTH, activation_function="relu", scale_embedding=True, max_position_embeddings=128,
        pad_token_id=0, decoder_start_token_id=START, bos_token_id=START, eos_token_id=END, forced_eos_token_id=None, **sizes,
    )  # fmt: skip
    marian = MarianMTModel(config).eval()
    indices = model.decoder.embedding.positions.vectors(torch.arange(128)).float()  # type: ignore[union-attr]
    state = {f"model.{name}": weight for name, weight in renamed(model.state_dict(), TO_MARIAN).items()}
    state |= {f"model.{side}.embed_positions.weight": indices for side in ("encoder", "decoder")}
    state["model.shared.weight"] = model.output.weight.detach()
    _, unknown = marian.load_state_dict(state, strict=False)
    if unknown:
        sys.exit(f"Marian has no {', '.join(unknown)}")
    marian.tie_weights()
    return marian


if __name__ == "__main__":
    main()
