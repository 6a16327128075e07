"""What the door records as said, over all that two parallel runs can say: probabilities of one law.

Exact: no draws, no false alarms. For each evaluation of each run the prefixes at which it can
happen are enumerated through the real door; exp(-nats) over them must sum to at most 1.
"""

import math
from itertools import product

import pytest
import torch
import torch_holdout as th

from support.builders.sealed_logs import events_of, recorded, said_before, sums_of_prefixes

EVALUATIONS, PATIENCE, PASSES = 4, 2, 4
# One course of values for each thing a run of four passes can say: a stop at pass 3, at pass 4, and
# for a run that is ended the best pass, 3 or 4.
COURSES = [(5, 4, 3, 2), (5, 6, 4, 3), (5, 4, 6, 3), (5, 6, 7, 8)]
ENDINGS = ["left open", "given up", "ended"]


def played(first, second, ending):
    """Two runs with these courses, pass by pass, then a third; all public events."""
    holdout = th.ReusableHoldout(
        "memory://", name="val", size=8, statistics={"acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=EVALUATIONS), budget=3,
    )  # fmt: skip

    def evaluate(run, correct):
        sums = holdout.accumulator("acc")
        sums.update(torch.arange(8) < correct)
        evaluate.asked += 1
        return run.evaluate({"acc": sums}, query=f"weights {evaluate.asked}").stop

    evaluate.asked = 0
    runs = [holdout.run(stop=th.Patience("acc", PATIENCE)) for _ in range(2)]
    still = [True, True]
    for number in range(PASSES):
        for which, course in enumerate((first, second)):
            if still[which]:
                still[which] = not evaluate(runs[which], course[number])
    for run in runs:
        if run.outcome is None and ending != "left open":
            run.end() if ending == "ended" else run.give_up()
    evaluate(holdout.run(), 4)
    return events_of(holdout)


@pytest.fixture(scope="module", params=ENDINGS)
def histories(request):
    return [played(*courses, request.param) for courses in product(COURSES, repeat=2)]


def test_prefixes_sum_to_at_most_one(histories):
    sums = sums_of_prefixes(histories, recorded)
    assert len(sums) == 2 * PASSES + 1
    assert max(sums.values()) <= 1 + 1e-12


def test_what_is_recorded_is_what_the_formulas_give(histories):
    for events in histories:
        for event, said in said_before(events, EVALUATIONS):
            assert math.isclose(event["nats"], said, abs_tol=1e-12)


def test_free_silence_is_caught():
    """Twin: parallel runs without the price of silence."""
    histories = [played(*courses, "left open") for courses in product(COURSES, repeat=2)]
    twin = sums_of_prefixes(histories, lambda e: said_before(e, EVALUATIONS, silence=False))
    assert max(twin.values()) > 1.2
