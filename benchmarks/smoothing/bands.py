"""How often 95% bands hold the truth: smooth signals, white noise, points of all draws counted together.

python -m benchmarks.smoothing.bands [--seeds 100]
"""

import argparse

import numpy as np

from benchmarks.denoising.signals import sampled
from overt.smoothing import analyze

SIGNALS = ("sine", "wave", "heavisine", "corner", "doppler", "blocks")
WAYS = {"auto": {}, "time, degree 1": {"keys": "time"}, "time, degree 2": {"keys": "time", "degree": 2}}


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=100)
    seeds = options.parse_args().seeds
    print(f"{'signal':<12}{'SNR':<5}" + "".join(f"{way:>16}" for way in WAYS))
    for name in SIGNALS:
        truth = sampled(name)
        for snr in (1, 3):
            shares = [np.mean([coverage(truth, snr, seed, way) for seed in range(seeds)]) for way in WAYS.values()]
            print(f"{name:<12}{snr:<5}" + "".join(f"{share:>16.1%}" for share in shares), flush=True)


def coverage(truth: np.ndarray, snr: float, seed: int, way: dict) -> float:
    """The share of points whose truth lies in the band; NaN where it is withheld."""
    noisy = truth + truth.std() / snr * np.random.default_rng(seed).normal(size=truth.size)
    result = analyze(noisy, **way)
    if result.lower is None or result.upper is None:
        return float("nan")
    return float(np.mean((result.lower <= truth) & (truth <= result.upper)))


if __name__ == "__main__":
    main()
