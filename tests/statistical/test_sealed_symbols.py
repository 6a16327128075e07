"""Record bits and winners through the real door: what evaluations pay is one law's probability.

Exact: no draws, no false alarms. An analyst ends a run after each evaluation, asks about records
and the winner, and goes on with what she was told, in runs beside each other and in turn.
All courses of values are enumerated; for each evaluation exp(-nats) over the prefixes at which it
can happen must sum to at most 1, and with the shares of runs and evaluations over all of them.
"""

import math
from itertools import permutations

import pytest
import torch
import torch_holdout as th

from support.builders.sealed_logs import (
    events_of,
    recorded,
    said_before,
    share,
    sums_of_prefixes,
)

EVALUATIONS, RUNS = 2, 8


def played(values):
    """Runs in which each decision uses what was said; values are how many examples are right."""
    holdout = th.ReusableHoldout(
        "memory://", name="val", size=8, statistics={"acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=EVALUATIONS), budget=RUNS,
    )  # fmt: skip
    values, asked = iter(values), iter(range(100))

    def evaluate(run):
        sums = holdout.accumulator("acc")
        sums.update(torch.arange(8) < next(values))
        run.evaluate({"acc": sums}, query=f"weights {next(asked)}")

    def run():
        with holdout.run() as made:
            evaluate(made)
        return made

    beside = holdout.run()  # open all the time
    evaluate(beside)
    run()
    second = run()
    if second.record():  # what is asked, and when, depends on what was said
        run().record()
    else:
        holdout.winner()
    held = holdout.run()
    evaluate(held)
    third = run()
    if holdout.winner() == 2:
        held.give_up()  # not free: something was said since its evaluation
        third.record()
    evaluate(beside)
    evaluate(holdout.run())
    return events_of(holdout)


@pytest.fixture(scope="module")
def histories():
    """Every order of the values that count, those of ended runs; the others are always the same."""
    return [played((0, *order, 3, 3, 3, 3)) for order in permutations((1, 2, 4, 5), 4)]


def test_prefixes_sum_to_at_most_one(histories):
    sums = sums_of_prefixes(histories, recorded)
    assert len(sums) == 8
    assert max(sums.values()) <= 1 + 1e-12


def test_with_the_shares_all_evaluations_sum_to_at_most_one(histories):
    sums = sums_of_prefixes(histories, recorded)
    shares = {(run, number): share(run, RUNS) * share(number, EVALUATIONS) for run, number in sums}
    assert math.fsum(shares[key] * each for key, each in sums.items()) <= 1


def test_what_is_recorded_is_what_the_formulas_give(histories):
    for events in histories:
        for event, said in said_before(events, EVALUATIONS):
            assert math.isclose(event["nats"], said, abs_tol=1e-12)


def test_symbols_that_are_not_charged_are_caught(histories):
    """Twin: the same answers for nothing."""
    twin = sums_of_prefixes(histories, lambda e: said_before(e, EVALUATIONS, symbols=False))
    assert max(twin.values()) > 3
