"""Epsilon of a whole budget: how small, and how fast, against what one would use instead."""

from functools import partial

from _measure import asked_quick, medians, report, timed
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from torch_holdout.accounting import epsilon_cap
from torch_holdout.accounting.pure import _compose_pure
from torch_holdout.bounds.published import thresholdout_epsilon

DELTA = 1e-6


def oracle(step: float, budget: int) -> float:
    """Compose the same with dp-accounting."""
    one = pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(step, 0),
        value_discretization_interval=min(1e-4, step / 20),
    )
    return float(one.self_compose(2 * budget).get_epsilon_for_delta(DELTA))


def cap(step: float, budget: int) -> float:
    """Compute the cap without what an earlier call has kept."""
    _compose_pure.cache_clear()
    return epsilon_cap([step], budget, DELTA)


def main() -> None:
    """Compare with the closed form (size) and with dp-accounting (size and time)."""
    repetitions = 3 if asked_quick(__doc__) else 9
    for step, budget in ((0.01, 10), (0.01, 100), (0.01, 1000), (0.05, 100)):
        line = partial(report, "accounting", case=f"a={step}, B={budget}, delta={DELTA:g}")
        closed = thresholdout_epsilon(budget, 1 / step, 1, DELTA)
        ours, theirs = cap(step, budget), oracle(step, budget)
        line(peer="closed form of the paper", ours=ours, theirs=closed, unit="epsilon")
        line(peer="dp-accounting", ours=ours, theirs=theirs, unit="epsilon")
        ours, theirs = medians(
            timed(partial(cap, step, budget)),
            timed(partial(oracle, step, budget)),
            repetitions=repetitions,
        )
        line(peer="dp-accounting", ours=ours, theirs=theirs, unit="s")


if __name__ == "__main__":
    main()
