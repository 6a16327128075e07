"""The fingerprint of a model's weights, on the processor, against blake2b over the same bytes.

Two looks an evaluation. Networks of 25 and 100 million weights, and one of 450 small tensors, which
takes as long as asking 226 modules for their settings; torch on one thread and on two, on quiet
cores and with both of them busy. blake2b reads the weights alone: names, shapes, classes and
settings are in our time and not in its.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch
from _measure import asked_quick, medians, report, timed
from torch import nn
from torch_holdout._fingerprints.weights import weights_fingerprint

BUSY = "while True: pass"


def wide(millions: int) -> nn.Module:
    """Return a network of so many million weights, in few tensors."""
    return nn.Sequential(*[nn.Linear(1000, 1000, bias=False) for _ in range(millions)])


def small_tensors(width: int) -> nn.Module:
    """Return a network of 452 tensors, half of them of ``width`` numbers."""
    layers = [(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(113)]
    return nn.Sequential(*[layer for pair in layers for layer in pair])


def hashed(model: nn.Module) -> str:
    """Hash the bytes of all weights."""
    hasher = hashlib.blake2b()
    for parameter in model.parameters():
        hasher.update(parameter.detach().numpy())
    return hasher.hexdigest()


@contextlib.contextmanager
def cores(busy: bool) -> Iterator[None]:
    """Keep every core busy meanwhile, or none."""
    loops = [
        subprocess.Popen([sys.executable, "-c", BUSY])
        for _ in range((os.cpu_count() or 1) if busy else 0)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def look(model: nn.Module, threads: int) -> Callable[[], object]:
    """Return a look at the weights, where torch has that many threads."""

    def once() -> None:
        torch.set_num_threads(threads)
        weights_fingerprint(model).lanes.tolist()

    return once


def main() -> None:
    """Print one JSON line per network, number of threads and state of the cores."""
    quick = asked_quick(__doc__)
    networks = {
        "25 million weights": lambda: wide(25),
        "100 million weights": lambda: wide(100),
        "452 tensors, 25 million weights": lambda: small_tensors(470),
        "452 tensors, half a million weights": lambda: small_tensors(64),
    }
    for name, make in networks.items():
        model = make()
        for busy in (False, True):
            with cores(busy):
                peer = timed(lambda model=model: hashed(model))
                looks = [timed(look(model, threads)) for threads in (1, 2)]
                one, two, theirs = medians(*looks, peer, repetitions=3 if quick else 7)
            state = "busy cores" if busy else "quiet cores"
            for threads, ours in ((1, one), (2, two)):
                case = f"{name}, {threads} thread{'s' * (threads > 1)}, {state}"
                report("weights", case=case, peer="blake2b", ours=ours, theirs=theirs, unit="s")


if __name__ == "__main__":
    main()
