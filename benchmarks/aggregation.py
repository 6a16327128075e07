"""Aggregating members' votes privately: against loops, against OpenDP, against memory.

One thread, interleaved, medians. [50, 10000, 10]: fifty members, ten thousand queries, ten classes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
import torch
from torch import Tensor, nn
from torch_holdout.noise import SystemNoise
from torch_holdout.prediction.mechanisms import Setting, SoftMajority
from torch_holdout.prediction.mechanisms.votes import count_votes, preferred_classes, vote_table

MEMBERS, QUERIES, CLASSES = 50, 10_000, 10
ETA = 0.1
FEW = 500  # queries for the peers that take one at a time
SETTING = Setting(num_parts=MEMBERS, num_outputs=CLASSES)


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def medians(
    ours: Callable[[], object], theirs: Callable[[], object], repetitions: int
) -> tuple[float, float]:
    """Time both in turns, after one call of each."""
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(repetitions)]
    first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
    return first, second


def report(case: str, peer: str, ours: float, theirs: float, unit: str, better: str) -> None:
    """Print one JSON line."""
    print(
        json.dumps(
            {
                "benchmark": "aggregation",
                "case": case,
                "peer": peer,
                "ratio": round(ours / theirs, 5),
                "better": better,
                "ours": round(ours, 5),
                "theirs": round(theirs, 5),
                "unit": unit,
            }
        ),
        flush=True,
    )


def from_labels(labels: Tensor) -> Tensor:
    """Count and answer, ours."""
    votes = count_votes(labels, CLASSES)
    return SoftMajority(eta=ETA).answer(votes, SETTING, SystemNoise().uniforms())


def loop_of_2017(labels: np.ndarray) -> list[int]:
    """Count and answer as the PATE code of 2017 does: query by query, class by class."""
    answers = []
    for query in range(labels.shape[1]):
        counts = np.bincount(labels[:, query], minlength=CLASSES).astype(np.float64)
        for label in range(CLASSES):
            counts[label] += np.random.laplace(loc=0.0, scale=1 / ETA)
        answers.append(int(np.argmax(counts)))
    return answers


def noisy_max() -> Callable[[list[int]], int]:
    """Return OpenDP's measurement for ready counts."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    measurement: Callable[[list[int]], int] = dp.m.make_noisy_max(
        *space, dp.max_divergence(), scale=1 / ETA
    )
    return measurement


def members() -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return fifty MLPs 784-64-10 as two batched products, and queries."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(MEMBERS, 784, 64, generator=generator) / 28
    second = torch.randn(MEMBERS, 64, CLASSES, generator=generator) / 8
    offsets = torch.zeros(MEMBERS, 1, 64), torch.zeros(MEMBERS, 1, CLASSES)

    def forward(x: Tensor) -> Tensor:
        hidden = nn.functional.relu(torch.baddbmm(offsets[0], x.expand(MEMBERS, -1, -1), first))
        return torch.baddbmm(offsets[1], hidden, second)

    return forward, torch.randn(QUERIES, 784, generator=generator)


def main() -> None:
    """Print one JSON line for each peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repetitions = 5 if parser.parse_args().quick else 15
    torch.set_num_threads(1)
    case = f"[{MEMBERS}, {QUERIES}, {CLASSES}]"
    forward, x = members()
    outputs = forward(x)
    labels = preferred_classes(outputs)
    few = labels[:, :FEW].numpy()
    ours, theirs = medians(lambda: from_labels(labels), lambda: loop_of_2017(few), repetitions)
    scale = 1e6 / QUERIES, 1e6 / FEW
    peer = "numpy loop of PATE 2017"
    report(f"{case} from labels", peer, ours * scale[0], theirs * scale[1], "us/query", "lower")
    measurement = noisy_max()
    counts = count_votes(labels, CLASSES)[:FEW].tolist()
    ours, theirs = medians(
        lambda: from_labels(labels), lambda: [measurement(row) for row in counts], repetitions
    )
    peer = "OpenDP noisy max, from counts"
    report(f"{case} from labels", peer, ours * scale[0], theirs * scale[1], "us/query", "lower")
    size = outputs.numel() * outputs.element_size() / 1e9
    ours, theirs = medians(lambda: vote_table(outputs), outputs.sum, 3 * repetitions)
    report(
        f"{case} scores to votes", "reading memory", size / ours, size / theirs, "GB/s", "higher"
    )
    ours, theirs = medians(
        lambda: from_labels(preferred_classes(outputs)),
        lambda: forward(x),
        max(3, repetitions // 3),
    )
    report(f"{case} all of it", "forward of 50 MLPs 784-64-10", ours, theirs, "s", "lower")


if __name__ == "__main__":
    main()
