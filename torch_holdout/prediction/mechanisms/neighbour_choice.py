r"""How many neighbours vote, and with how much noise, for a budget: from public numbers only.

**Sampling.** At the rate q the curve of a query at an integer order a is
:math:`\ln E[e^{J(J-1)/\sigma^2}]/(a-1)` with J binomial of a and q, and by Jensen's inequality at
least :math:`aq^2/\sigma^2`: the curve of all records with the noise :math:`\sigma/q`. Counts of a
sample are, times 1/q, the counts of all records plus the noise of the sampling and
:math:`\sigma/q`. So for the same budget a sample is never the better one, and all records vote
unless their noise would be larger than can be drawn.

**Votes.** With N records of C classes, n = N/C of each on average. The nearest m of a query vote,
:math:`m = n\ln C\,(1 - e^{-b\sigma/(n\ln C)})` with :math:`b = 4 + 2\ln C`.

- Little noise: :math:`b\sigma` votes, enough to stand out from the largest noise of C classes.
- Much noise: :math:`n\ln C`. If a share :math:`e^{-t}` of the records at the distance where t class
  sizes have been passed are of the query's class, those beyond :math:`t = \ln C` are no more often
  right than one in C.

The two constants were compared on twelve tasks of 2 to 100 classes and 400 to 20,000 records
(digits by pixels and by gradients, tables, clusters), each with nine levels of noise: the accuracy
is .005 below that of the best number of votes on average, and at most .05.
"""

import math
from typing import NamedTuple

from torch_holdout._noise.gaussian_table import LARGEST_TABLE_SCALE
from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout.accounting import SampledGaussian, largest_parameter, queries_for
from torch_holdout.errors import InvalidArgumentError

SMALLEST_SIGMA = 0.5
MOST_NEIGHBOURS = 2**16  # of a query, voting or not
_RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


class NeighbourChoice(NamedTuple):
    """What ``choose_neighbours`` takes.

    Attributes:
        rate: The share of the records that may vote on a query.
        k: How many of them vote.
        sigma: The noise on each count.
    """

    rate: float
    k: int
    sigma: float


def choose_neighbours(
    *,
    epsilon: float,
    delta: float,
    queries: int,
    planned_records: int,
    num_classes: int,
    rate: float | None = None,
) -> NeighbourChoice:
    """Return the votes that a budget pays for this often; see the module for how they are chosen.

    A budget that is too small for any use gets the best there is: noise that drowns the votes.
    ``rate`` fixes the sampling rate instead.

    Example:
        >>> choice = choose_neighbours(
        ...     epsilon=2.0, delta=1e-5, queries=300, planned_records=3500, num_classes=10)
        >>> choice.rate, choice.k, round(choice.sigma, 1)
        (1.0, 347, 52.6)
    """
    require_between("epsilon", epsilon, 0, 1e6, ends=False)
    require_between("delta", delta, 0, 1, ends=False)
    require_whole("queries", queries, 1, 2**40)
    require_whole("planned_records", planned_records, 1, 2**40)
    require_whole("num_classes", num_classes, 2, 2**20)
    if rate is not None:
        require_between("rate", rate, 1e-4, 1)
    for tried in _RATES if rate is None else (float(rate),):
        sigma = _sigma_of(tried, epsilon, delta, queries)
        if sigma <= LARGEST_TABLE_SCALE:
            nearest = neighbours_for(sigma / tried, planned_records, num_classes)
            return NeighbourChoice(tried, max(1, round(tried * nearest)), sigma)
    raise InvalidArgumentError(
        f"Expected a budget that pays for {queries:,} queries with a noise of at most "
        f"{LARGEST_TABLE_SCALE:,.0f} votes, but epsilon {epsilon:g} at delta {delta:g} does not. "
        "Ask for fewer queries or take a larger epsilon; no answer of it would be of use."
    )


def neighbours_for(noise: float, records: int, num_classes: int) -> float:
    """Return how many of the nearest records vote on a query when each count has this noise.

    Example:
        >>> [round(neighbours_for(noise, 3500, 10)) for noise in (1.0, 10.0, 100.0, 1000.0)]
        [9, 82, 529, 806]
    """
    spread = math.log(num_classes)
    most = spread * records / num_classes
    nearest = most * -math.expm1(-(4 + 2 * spread) * noise / most)
    return max(1.0, min(nearest, records, MOST_NEIGHBOURS))


def _sigma_of(rate: float, epsilon: float, delta: float, queries: int) -> float:
    """Return the least noise of a rate; infinite if it is more than can be drawn."""

    def pays(sigma: float) -> bool:
        return queries_for(SampledGaussian(rate, sigma), epsilon, delta) >= queries

    if pays(SMALLEST_SIGMA):
        return SMALLEST_SIGMA
    if not pays(LARGEST_TABLE_SCALE):
        return math.inf
    sharpness = largest_parameter(
        lambda sharpness: SampledGaussian(rate, 1 / sharpness), queries, epsilon, delta
    )
    return min(1 / sharpness, LARGEST_TABLE_SCALE)
