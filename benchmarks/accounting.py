"""Epsilon of a whole budget: how small, and how fast, against what one would use instead."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from torch_holdout.accounting import epsilon_cap
from torch_holdout.accounting.pure import compose_pure
from torch_holdout.bounds import thresholdout_epsilon

DELTA = 1e-6


def oracle(step: float, budget: int) -> float:
    """Compose the same with dp-accounting."""
    one = pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(step, 0),
        value_discretization_interval=min(1e-4, step / 20),
    )
    return float(one.self_compose(2 * budget).get_epsilon_for_delta(DELTA))


def timed(action: Callable[[], float]) -> tuple[float, float]:
    """Return a result and its seconds."""
    start = time.perf_counter()
    return action(), time.perf_counter() - start


def ours(step: float, budget: int) -> float:
    """Compute the cap without what an earlier call has kept."""
    compose_pure.cache_clear()
    return epsilon_cap([step], budget, DELTA)


def line(case: str, peer: str, ours: float, theirs: float, unit: str) -> None:
    """Print one comparison."""
    content = {
        "benchmark": "accounting",
        "case": case,
        "peer": peer,
        "ratio": round(ours / theirs, 4),
        "better": "lower",
        "ours": round(ours, 5),
        "theirs": round(theirs, 5),
        "unit": unit,
    }
    print(json.dumps(content))


def main() -> None:
    """Compare with the closed form (size) and with dp-accounting (size and time)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repetitions = 3 if parser.parse_args().quick else 9
    for step, budget in ((0.01, 10), (0.01, 100), (0.01, 1000), (0.05, 100)):
        case = f"a={step}, B={budget}, delta={DELTA:g}"
        mine, theirs = partial(ours, step, budget), partial(oracle, step, budget)
        found = [(timed(mine), timed(theirs)) for _ in range(repetitions)]
        closed = thresholdout_epsilon(budget, 1 / step, 1, DELTA)
        line(case, "closed form of the paper", found[0][0][0], closed, "epsilon")
        line(case, "dp-accounting", found[0][0][0], found[0][1][0], "epsilon")
        seconds = [statistics.median(pair[side][1] for pair in found) for side in (0, 1)]
        line(case, "dp-accounting", *seconds, "s")


if __name__ == "__main__":
    main()
