"""How far released values can be off: our certificate against the published theorems.

Grid, step and noise are chosen for each theorem as suits it best, in advance; ours is the
certificate of a plan, its noise and its rounding included.
"""

import math
from collections.abc import Callable
from functools import partial

import torch_holdout as th
from _measure import asked_quick, report
from torch_holdout.accounting import PrivacyLoss, Pure
from torch_holdout.bounds.private_answers import THEOREMS, PrivateAnswers
from torch_holdout.bounds.published import (
    ladder_best_step,
    ladder_error,
    sample_splitting,
    thresholdout_tolerance,
)

FAILURE = 0.05
CELLS = ((1_000, 200, 20), (10_000, 200, 20), (50_000, 1_000, 20), (50_000, 100_000, 100))
Bounds = dict[str, float]


def about_privacy(size: int, budget: int) -> Bounds:
    """Return the theorems about noisy answers, each with the noise it likes best."""

    def tolerance(theorem: Callable[..., float], sigma: float) -> float:
        loss = PrivacyLoss((Pure(1 / (sigma * size), 2 * budget),))
        answers = PrivateAnswers(size, loss, lambda beta: sigma * math.log(budget / beta), FAILURE)
        return theorem(answers)

    scales = [math.exp(x / 3) for x in range(-36, 2)]
    return {
        name: min(map(partial(tolerance, theorem), scales)) for name, theorem in THEOREMS.items()
    }


def description_length(size: int, queries: int, budget: int) -> float:
    """Return the bound for an output of few bits (Dwork et al. 2015), with the best grid.

    There are at most sum C(m, b) G^b transcripts; Hoeffding for the releases of each.
    """

    def tolerance(answers: int) -> float:
        terms = [_log_choose(queries, b) + b * math.log(answers) for b in range(budget + 1)]
        transcripts = max(terms) + math.log(sum(math.exp(term - max(terms)) for term in terms))
        exponent = transcripts + math.log(2 * budget / FAILURE)
        return math.sqrt(exponent / (2 * size)) + 0.5 / (answers - 1)

    return min(tolerance(round(math.exp(x / 20))) for x in range(20, 200))


def published(size: int, queries: int, budget: int) -> Bounds:
    """Return everything that can be said about releases of values."""
    return {
        **about_privacy(size, budget),
        "description length (Dwork et al. 2015)": description_length(size, queries, budget),
        "Theorem 3.3 of the Thresholdout paper": thresholdout_tolerance(
            size, failure=FAILURE, queries=queries, budget=budget
        ),
        "sample splitting": sample_splitting(size, queries, FAILURE),
    }


def compare(case: str, label: str, ours: float, bounds: Bounds) -> None:
    """Print the comparison with the best of some theorems, at most 1: nobody is further off."""
    name = min(bounds, key=lambda key: bounds[key])
    report(
        "certificates",
        case=case,
        peer=label + name,
        ours=ours,
        theirs=min(1.0, bounds[name]),
        unit="distance",
    )


def main() -> None:
    """Print one JSON line per comparison."""
    cells = CELLS[:2] if asked_quick(__doc__) else CELLS
    for size, queries, budget in cells:
        facts = {"size": size, "queries": queries, "budget": budget}
        case = f"n={size}, m={queries}, B={budget}"
        bounds = published(**facts)
        curve = th.certificate(**facts, failure=FAILURE, purpose="curve").tolerance
        compare(f"curve, {case}", "best published: ", curve, bounds)
        compare(
            f"curve, {case}",
            "best published about privacy: ",
            curve,
            {name: bounds[name] for name in THEOREMS},
        )
        for name in ("Theorem 3.3 of the Thresholdout paper", "sample splitting"):
            compare(f"curve, {case}", "", curve, {name: bounds[name]})
        step = ladder_best_step(size, queries, FAILURE)
        bounds["the Ladder (Blum and Hardt 2015)"] = ladder_error(size, queries, step, FAILURE)
        stopping = th.certificate(**facts, failure=FAILURE, purpose="early-stopping").tolerance
        compare(f"early stopping, {case}", "best published: ", stopping, bounds)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


if __name__ == "__main__":
    main()
