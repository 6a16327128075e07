"""Rows of one group depend on each other: groups as units cover the truth, rows as units do not.

If at most 5 % of intervals may miss, more misses than ``LIMIT`` have probability below 1e-6: the
false-alarm rate. Seeds are fixed on top.
"""

import pytest
import torch
import torch_holdout as th
from scipy import stats

from support.machines.soak import soak

pytestmark = [pytest.mark.statistical, pytest.mark.soak]
FAILURE = 0.05
RUNS = soak(300, 24)  # of 300, 0 and 151 missed
LIMIT = int(stats.binom.isf(1e-6, RUNS, FAILURE))
GROUPS, TRUTH = 60, 0.5


def sample(generator):
    """Rows of 60 patients, 1 to 40 each: most of a row's value is its patient's."""
    sizes = torch.randint(1, 41, (GROUPS,), generator=generator)
    ids = torch.arange(GROUPS).repeat_interleave(sizes)
    patients = torch.where(torch.rand(GROUPS, generator=generator) < 0.5, 0.15, 0.85)
    noise = 0.3 * (torch.rand(len(ids), generator=generator) - 0.5)
    return (patients[ids] + noise).double(), ids


def misses(statistic, values, ids):
    """Whether the interval of the only evaluation of a closed account misses the truth."""
    holdout = th.ReusableHoldout(
        "memory://", name="val", size=len(values), statistics={"loss": statistic}, budget=1,
        mechanism=th.Sealed(evaluations=1),
    )  # fmt: skip
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(len(values)))
    sums = holdout.accumulator("loss")
    if isinstance(statistic, th.GroupedMean):
        sums.update(values[order], ids[order])
    else:
        sums.update(values[order])
    holdout.run().evaluate({"loss": sums}, query="w")
    (closed,) = holdout.close(failure=FAILURE).values
    return not closed.low <= TRUTH <= closed.high


def missed(make):
    generator = torch.Generator().manual_seed(19)
    samples = [sample(generator) for _ in range(RUNS)]
    return sum(misses(make(ids), values, ids) for values, ids in samples)


def test_groups_as_units_cover_the_truth():
    assert missed(lambda ids: th.GroupedMean(0.0, 1.0, groups=ids)) <= LIMIT


def test_twin_of_rows_as_units_does_not():
    assert missed(lambda ids: th.BoundedMean(0.0, 1.0)) > LIMIT
