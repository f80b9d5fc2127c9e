"""Smoothers beyond those of `overt bench smooth`, for one series at equal steps: a series in, its curve out."""

from overt.bench.smoothing.peers import PEERS, Smoother

ALL_PEERS: dict[str, Smoother] = {each.name: each for each in PEERS}


def usable() -> list[str]:
    """The names of those whose packages are installed; a line for each of the others."""
    for each in ALL_PEERS.values():
        if each.missing:
            print(f"{each.name} is left out: {each.missing}")
    return [name for name, each in ALL_PEERS.items() if not each.missing]
