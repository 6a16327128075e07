"""The intervals of ratios hold, also with small denominators and against an adaptive analyst.

More misses than ``limit`` says would happen with probability below 1e-6 if the claim held: the
false-alarm rate of every check here. Seeds are fixed. Twins that forget the denominator's
uncertainty, or take the mean of quotients for the quotient of means, are found by the same checks.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch
import torch_holdout as th
from scipy import stats
from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.ratios import Quotient, quotient_interval

from support.machines.soak import soak

pytestmark = [pytest.mark.statistical, pytest.mark.soak]

SIZE, LEVELS = 300, 65536
CLIMBED = 3000
MISS = 0.2  # of one query that is asked once
BRACKET = math.log(2 / MISS)


def limit(draws, probability):
    return int(stats.binom.isf(1e-6, draws, probability))


def steady(generator):
    """Numerators hardly vary; of 25 denominators all but one are 0."""
    return 0.5 + 0.01 * generator.random(SIZE), generator.random(SIZE) < 0.04


def group(generator):
    """Accuracy in a group that 1 of 20 examples belongs to."""
    member = generator.random(SIZE) < 0.05
    return member & (generator.random(SIZE) < 0.7), member


def tokens(generator):
    """Loss per token, larger in longer sequences; most are short."""
    length = np.minimum(1 + generator.geometric(0.2, SIZE), 33)
    return length * (0.2 + length / 11) * (0.5 + generator.random(SIZE)), length


def signed(generator):
    """Gains of both signs per unit of a weight that is often small."""
    weight = generator.beta(0.3, 2.0, SIZE)
    return weight * (generator.random(SIZE) * 2 - 0.8), weight


CASES = {  # examples, the ratio, its population value
    steady: (th.Ratio(th.BoundedMean(0, 1), th.BoundedMean(0, 1), 0.0, 100.0), 0.505 / 0.04),
    group: (th.Ratio(th.ZeroOne(), th.ZeroOne(), 0.0, 1.0, mode="max"), 0.7),
    tokens: (th.Ratio(th.BoundedMean(0, 160), th.BoundedMean(1, 33), 0.0, 10.0), None),
    signed: (th.Ratio(th.BoundedMean(-1, 1), th.BoundedMean(0, 1), -5.0, 5.0), 0.2),
}
CLAIMED = [pytest.param(case, id=case.__name__) for case in CASES]


def truth(case):
    known = CASES[case][1]
    if known is not None:
        return known
    lengths = np.arange(2, 34)
    chances = 0.2 * 0.8 ** (lengths - 2)
    chances[-1] += 1 - chances.sum()
    return float(chances @ (lengths * (0.2 + lengths / 11)) / (chances @ lengths))


@cache
def drawn(case):
    """Sums of independent holdouts, each asked once: parts with totals and squares."""
    generator, (statistic, _) = np.random.default_rng(17), CASES[case]
    found = []
    for _ in range(soak(4000, 400)):
        sums = statistic.accumulator(LEVELS, size=SIZE)
        sums.update(*(torch.from_numpy(np.asarray(each)) for each in case(generator)))
        found.append((sums._sealed.tolist(), sums._squares.tolist()))
    return found


def both(quotient, totals, squares):
    """The real interval: the quotient of two, at ln 2 more."""
    parts = (quotient.numerator, quotient.denominator)
    ends = [
        part.interval(total, own, SIZE, LEVELS, BRACKET)
        for part, total, own in zip(parts, totals, squares, strict=True)
    ]
    return quotient_interval(*ends, quotient.low, quotient.high)


def numerator_alone(quotient, totals, squares):
    """The twin: as if the denominator were known."""
    part = quotient.numerator
    facts = {"units": SIZE, "resolution": LEVELS, "bracket": BRACKET, "kind": part.kind}
    ends = closing_interval(total=totals[0], squares=squares[0], **facts)
    divisor = float(quotient.denominator.exact(totals[1], SIZE * LEVELS))
    above = tuple(part.low + part.width * end for end in ends)
    return quotient_interval(above, (divisor, divisor), quotient.low, quotient.high)


def missed(case, interval):
    quotient, population = Quotient.of(CASES[case][0].identity()), truth(case)
    ends = [interval(quotient, *sums) for sums in drawn(case)]
    found = sum(not low <= population <= high for low, high in ends)
    widths = [high - low for low, high in ends]
    print(f"{case.__name__}: {found} of {len(ends)} miss, width {np.median(widths):.3g}")
    return found, len(ends)


@pytest.mark.parametrize("case", CLAIMED)
def test_the_quotient_of_both_intervals_holds(case):
    found, draws = missed(case, both)
    assert found <= limit(draws, MISS)


@pytest.mark.parametrize("case", CLAIMED)
def test_all_intervals_of_a_closed_account_hold_at_once(case):
    """Through the real door: one run, whose best evaluation would be reported."""
    generator, found, holdouts = np.random.default_rng(23), 0, soak(100, 5)
    for _ in range(holdouts):
        holdout = th.ReusableHoldout(
            "memory://", name="val", size=SIZE, statistics={"ratio": CASES[case][0]},
            mechanism=th.Sealed(evaluations=30), budget=1,
        )  # fmt: skip
        with holdout.run() as run:
            for number in range(30):
                sums = holdout.accumulator("ratio")
                sums.update(*(torch.from_numpy(np.asarray(each)) for each in case(generator)))
                run.evaluate({"ratio": sums}, query=str(number))
        found += any(truth(case) not in value for value in holdout.close().values)
    assert found <= limit(holdouts, 0.05)


def test_forgetting_the_denominators_uncertainty_is_caught():
    found, draws = missed(steady, numerator_alone)
    assert found > limit(draws, MISS)


def test_a_mean_of_quotients_is_another_number():
    """The twin: each example's own quotient is a bounded value, and its mean has a true interval.

    It is one for another population value.
    """
    mean, generator, found = th.BoundedMean(0.0, 10.0), np.random.default_rng(17), 0
    for _ in range(draws := soak(4000, 400)):
        losses, lengths = tokens(generator)
        sums = mean.accumulator(LEVELS, size=SIZE)
        sums.update(torch.from_numpy(losses / lengths))
        low, high = closing_interval(
            kind="mean", total=int(sums._sealed), squares=int(sums._squares), units=SIZE,
            resolution=LEVELS, bracket=BRACKET,
        )  # fmt: skip
        found += not 10 * low <= truth(tokens) <= 10 * high
    assert found > limit(draws, MISS)


class Climber:
    """An analyst who keeps every column of coins that made the published quotient better.

    Weights are 64 to 128, the coin of an example is independent of its weight: whatever vote is
    taken, the weighted mean of right ones is 1/2 in the population.
    """

    def __init__(self, seed, mechanism, queries):
        self.generator = np.random.default_rng([seed, 5])
        self.weights = torch.from_numpy(self.generator.integers(64, 129, CLIMBED))
        self.holdout = th.ReusableHoldout(
            "memory://", name="val", size=CLIMBED, mechanism=mechanism, budget=queries,
            statistics={"acc": th.Ratio(
                th.BoundedMean(0, 128), th.BoundedMean(64, 128), 0.0, 1.0, mode="max")},
        )  # fmt: skip
        self.answers = [self.ask(number) for number in range(queries)]

    def ask(self, number):
        column = self.generator.integers(0, 2, CLIMBED) * 2 - 1
        if number == 0:
            self.kept, self.best = np.zeros(CLIMBED), 0.0
        votes = self.kept + column
        tie = self.generator.integers(0, 2, CLIMBED) * 2 - 1
        right = torch.from_numpy(np.where(votes == 0, tie, votes) > 0)
        sums = self.holdout.accumulator("acc")
        sums.update(self.weights * right, self.weights)
        answer = self.holdout.release("acc", sums, query=str(number))
        if answer.kind == "release" and answer.value > self.best:
            self.kept, self.best = votes, answer.value
        return answer

    def misses(self):
        return any(0.5 not in self.holdout.interval(answer) for answer in self.answers)

    def misses_uncounted(self):
        """The twin: each answer as if it were asked once, as a mean of examples."""
        alone = hoeffding_tolerance(math.log(2 / 0.05), CLIMBED)
        return any(abs(answer.value - 0.5) > alone for answer in self.answers if answer.is_release)


def test_live_intervals_hold_against_a_climber():
    climbers = [Climber(seed, th.Ladder(step=0.004), 80) for seed in range(soak(60, 8))]
    released = [[a for a in climber.answers if a.kind == "release"] for climber in climbers]
    print("best published", [round(own[-1].value, 3) for own in released])
    widths = [c.holdout.interval(own[-1]) for c, own in zip(climbers, released, strict=True)]
    assert all(0 < interval.low < interval.high < 1 for interval in widths)  # it says something
    assert sum(climber.misses() for climber in climbers) <= limit(len(climbers), 0.05)
    assert sum(c.misses_uncounted() for c in climbers) > limit(len(climbers), 0.05)
