"""What recording costs: all-MiniLM-L6-v2 over 512 tokens, recorded in every way, beside the plain forward pass.

    OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1 python -m benchmarks.lens.recording [--runs 30] [--hugging-face]
    OMP_NUM_THREADS=2 python -m benchmarks.lens.recording --part gpt2 | layer | edit | length [--out docs/results/recording-gpt2.json]

The second line measures recording at length, as `at_length.py` says.

Runs alternate, so that other work on the machine meets all of them alike. Outputs are compared to the bit first; if any
differs, nothing is printed. `--hugging-face` runs transformers' own BertModel of the same weights.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import results
from benchmarks.lens import at_length
from overt.explain import text_model
from overt.lens import record

WAYS: dict[str, dict] = {
    'keep="qkv"': {},
    'keep="summary"': {"keep": "summary"},
    'offload="disk"': {"offload": "disk"},
}


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=("minilm", "gpt2", "layer", "edit", "length"), default="minilm")
    options.add_argument("--runs", type=int)
    options.add_argument("--length", type=int)
    options.add_argument("--hugging-face", action="store_true")
    options.add_argument("--threads", type=int, default=2, help="of the parts at length")
    options.add_argument("--map", type=int, help="cells of the map, of the parts at length")
    results.takes_out(options)
    options.add_argument("--contender", help=argparse.SUPPRESS)
    options.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.part != "minilm":
        return at_length.main(arguments)
    arguments.length, arguments.runs = arguments.length or 512, arguments.runs or 30
    return every_way(arguments)


def every_way(arguments: argparse.Namespace) -> None:
    """MiniLM in every way, alternating."""
    name, model = ("BertModel of transformers", hugging_face()) if arguments.hugging_face else ("overt's MiniLM", minilm())
    numbers = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (1, arguments.length), generator=numbers)
    bytes_stored, runs = compared(model, ids)
    times = alternating(runs, arguments.runs)
    print(f"{name}, {arguments.length} tokens, {arguments.runs} alternating runs, {torch.get_num_threads()} threads")
    print(f"{'':16}{'median':>10}{'least':>10}{'ratio of medians':>19}{'of least':>10}{'kept':>10}")
    plain = times["plain"]
    medians = {way: statistics.median(taken) for way, taken in times.items()}
    results.write(arguments.out, length=arguments.length, runs=arguments.runs, seconds=medians)
    for way, taken in times.items():
        median, minimum = statistics.median(taken), min(taken)
        ratios = f"{median / statistics.median(plain):>19.2f}{minimum / min(plain):>10.2f}"
        print(f"{way:16}{median * 1e3:>7.1f} ms{minimum * 1e3:>7.1f} ms{ratios}{bytes_stored[way] / 1e6:>7.1f} MB")


def minilm() -> torch.nn.Module:
    """The model from its package."""
    return text_model.find().network


def hugging_face() -> torch.nn.Module:
    """transformers' own model from the same files."""
    from overt.explain.hub_model import HubModel

    return HubModel(str(text_model.packaged_folder())).network


def compared(model: torch.nn.Module, ids: Tensor) -> tuple[dict[str, int], dict[str, Callable[[], object]]]:
    """The bytes that each way keeps, and its run; ends here if an output is not the plain one, to the bit."""
    expected, bytes_stored, runs = _tensor(_plain(model, ids)), {"plain": 0}, {"plain": lambda: _plain(model, ids)}
    for way, options in WAYS.items():
        output, recording = _recorded(model, ids, options)
        if not torch.equal(_tensor(output), expected) or not recording.verify().holds:
            sys.exit(f"{way}: the output is not that of the plain run")
        bytes_stored[way] = recording.bytes
        runs[way] = lambda options=options: _recorded(model, ids, options)
    return bytes_stored, runs


def alternating(runs: dict[str, Callable[[], object]], count: int) -> dict[str, list[float]]:
    """Seconds of each run, one of each kind after the other."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(count):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


@torch.no_grad()
def _plain(model, ids: Tensor):
    return model(ids)


@torch.no_grad()
def _recorded(model, ids: Tensor, options: dict):
    with record(model, **options) as recording:
        output = model(ids)
    return output, recording


def _tensor(output) -> Tensor:
    return output if isinstance(output, Tensor) else output.last_hidden_state


if __name__ == "__main__":
    main()
