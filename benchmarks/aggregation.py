"""Aggregating members' votes privately: against numpy, against OpenDP, against memory.

One thread, interleaved, medians. [50, 10000, 10]: fifty members, ten thousand queries, ten classes.
"""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import opendp.prelude as dp
import torch
from _measure import asked_quick, medians, report, timed
from torch import Tensor, nn
from torch_holdout._noise.streams import SystemNoise
from torch_holdout.prediction.mechanisms import Setting, SoftMajority
from torch_holdout.prediction.mechanisms.votes import count_votes, preferred_classes, vote_table

MEMBERS, QUERIES, CLASSES = 50, 10_000, 10
ETA = 0.1
FEW = 500  # queries for the peers that take one at a time
CASE = f"[{MEMBERS}, {QUERIES}, {CLASSES}]"
SETTING = Setting(num_parts=MEMBERS, num_outputs=CLASSES)


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


def vectorised(labels: np.ndarray) -> np.ndarray:
    """Count and answer as one would write it today; float noise, so not private to the last bit."""
    queries = labels.shape[1]
    places = labels + CLASSES * np.arange(queries)
    counts = np.bincount(places.ravel(), minlength=CLASSES * queries).reshape(queries, CLASSES)
    noise = np.random.default_rng().laplace(scale=1 / ETA, size=counts.shape)
    return (counts + noise).argmax(axis=1)


def compare_scores(outputs: Tensor, repetitions: int) -> None:
    """Compare scores to answers, per query: what comes between the members and the users."""
    scores = outputs.numpy()
    times = medians(
        timed(lambda: from_labels(preferred_classes(outputs)), process_time),
        timed(lambda: vectorised(scores.argmax(axis=-1)), process_time),
        repetitions=repetitions,
    )
    ours, theirs = (1e6 * found / QUERIES for found in times)
    line = partial(report, "aggregation", case=f"{CASE} from scores", unit="CPU us/query")
    line(peer="numpy, vectorised, float noise", ours=ours, theirs=theirs)


def compare_memory(repetitions: int) -> None:
    """Compare scores to votes with reading the scores, which are more than a cache holds."""
    outputs = torch.randn(MEMBERS, 5 * QUERIES, CLASSES)
    size = outputs.numel() * outputs.element_size() / 1e9
    ours, theirs = medians(
        timed(lambda: vote_table(outputs), process_time),
        timed(outputs.sum, process_time),
        repetitions=repetitions,
    )
    report(
        "aggregation",
        case=f"[{MEMBERS}, {5 * QUERIES}, {CLASSES}] scores to votes",
        peer="reading the scores once",
        unit="GB/s",
        better="higher",
        ours=size / ours,
        theirs=size / theirs,
        yardstick=True,
    )


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


def from_counts(counts: list[list[int]]) -> Callable[[], list[int]]:
    """Return what answers ready counts with OpenDP, one query at a time."""
    measurement = noisy_max()
    return lambda: [measurement(row) for row in counts]


def compare_answers(labels: Tensor, repetitions: int) -> None:
    """Compare labels to answers, per query."""
    every = labels.numpy()
    counts = count_votes(labels, CLASSES)[:FEW].tolist()
    peers: dict[str, tuple[Callable[[], object], int]] = {
        "numpy, vectorised, float noise": (partial(vectorised, every), QUERIES),
        "numpy loop of PATE 2017": (partial(loop_of_2017, every[:, :FEW]), FEW),
        "OpenDP noisy max, from counts": (from_counts(counts), FEW),
    }
    times = medians(
        timed(partial(from_labels, labels)),
        *(timed(action) for action, _ in peers.values()),
        repetitions=repetitions,
    )
    for (peer, (_, queries)), theirs in zip(peers.items(), times[1:], strict=True):
        report(
            "aggregation",
            case=f"{CASE} from labels",
            peer=peer,
            ours=1e6 * times[0] / QUERIES,
            theirs=1e6 * theirs / queries,
            unit="us/query",
        )


def main() -> None:
    """Print one JSON line for each peer."""
    repetitions = 5 if asked_quick(__doc__) else 15
    torch.set_num_threads(1)
    forward, x = members()
    outputs = forward(x)
    compare_answers(preferred_classes(outputs), repetitions)
    line = partial(report, "aggregation", yardstick=True)
    compare_scores(outputs, repetitions)
    compare_memory(repetitions)
    ours, theirs = medians(
        timed(lambda: from_labels(preferred_classes(outputs))),
        timed(lambda: forward(x)),
        repetitions=max(3, repetitions // 3),
    )
    case, peer = f"{CASE} all of it", "forward of 50 MLPs 784-64-10"
    line(case=case, peer=peer, ours=ours, theirs=theirs, unit="s")


if __name__ == "__main__":
    main()
