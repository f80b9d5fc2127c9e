"""What recording the rows of an answer adds to the pass that a replay runs anyway.

    OMP_NUM_THREADS=1 python -m benchmarks.lens.replay [--out docs/results/replay.json]

A Llama of 4 layers of 8 heads, 256 wide, with random weights, reads 8,192 tokens: plainly, and with the masses of four spans measured for
the last 64, 256, 1,024 and 2,048 of them: "beside" by a pass of its own for them, "read" as `replay` does, by the pass that also computes
the model's attention. CPU seconds, medians of alternating runs; logits and masses are compared first.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import results
from overt.lens.analysis.observing import observing
from overt.lens.analysis.replay.spans_read import SpanMasses

SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
}
WORDS = 2000


def measured(model: LlamaForCausalLM, ids: torch.Tensor, answer: int, runs: int) -> dict[str, float]:
    """The seconds of a plain pass, and of those whose last `answer` rows are read."""
    length = ids.shape[1]
    members = np.eye(4, dtype=np.float32)[np.arange(length) * 4 // length].T

    @torch.no_grad()
    def plain() -> torch.Tensor:
        return model(input_ids=ids, use_cache=False, logits_to_keep=answer + 1).logits

    def read(one_pass: bool = True) -> tuple[torch.Tensor, np.ndarray]:
        masses = SpanMasses(members, length - answer - 1, length - 1)
        with observing(model, masses, masses.compute if one_pass else None) as recorder:
            logits = plain()
        assert len(masses.masses) == SIZES["num_hidden_layers"], recorder.missing
        return logits, np.concatenate([*masses.masses.values()])

    logits, (beside, apart), (together, masses) = plain(), read(False), read()
    assert torch.equal(logits, beside), "recording beside the model changes the logits"
    torch.testing.assert_close(logits, together, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(masses, apart, atol=1e-5)
    runners = {"plain": plain, "beside": lambda: read(False), "read": read}
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(runs):
        for name, run in runners.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.takes_out(parser)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--answers", type=int, nargs="+", default=[64, 256, 1024, 2048])
    options = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=WORDS, max_position_embeddings=2 * options.length, **SIZES)
    model, ids = LlamaForCausalLM(config).eval(), torch.randint(WORDS, (1, options.length))
    rows = [{"answer": answer, **measured(model, ids, answer, options.runs)} for answer in options.answers]
    for row in rows:
        ratios = [f"{name} {row[name] / row['plain']:.2f}" for name in ("beside", "read")]
        print(f"{row['answer']} tokens of answer: {row['plain']:.2f} s plainly, times that: {', '.join(ratios)}")
    results.write(options.out, length=options.length, rows=rows)


if __name__ == "__main__":
    main()
