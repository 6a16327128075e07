"""What every benchmark does the same way: arguments, turns, medians, one JSON line each."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

Sample = Callable[[], float]


def asked_quick(about: str | None) -> bool:
    """Read the command line: ``--quick`` is all a benchmark takes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="under 30 seconds, noisier")
    return bool(parser.parse_args().quick)


def timed(action: Callable[[], object], clock: Sample = time.perf_counter) -> Sample:
    """Return a function that runs ``action`` once and says how many seconds it took."""

    def sample() -> float:
        start = clock()
        action()
        return clock() - start

    return sample


def medians(*samples: Sample, repetitions: int) -> list[float]:
    """Take samples in turns, so that a slow minute hits all alike; the first of each is dropped."""
    rounds = [[sample() for sample in samples] for _ in range(1 + repetitions)]
    return [statistics.median(values) for values in zip(*rounds[1:], strict=True)]


def report(
    benchmark: str,
    *,
    case: str,
    peer: str,
    ours: float,
    theirs: float,
    unit: str,
    better: str = "lower",
    **more: Any,
) -> None:
    """Print one comparison as a line of JSON.

    ``yardstick=True`` says that nobody would pick the peer instead: it gives the scale.
    """
    line = {
        "benchmark": benchmark,
        "case": case,
        "peer": peer,
        "ratio": _short(ours / theirs),
        "better": better,
        "ours": _short(ours),
        "theirs": _short(theirs),
        "unit": unit,
    }
    print(json.dumps(line | more), flush=True)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
