"""Intervals for one query, and what people do instead for many."""

import math

from torch_holdout._shared.checks import (
    require_failure,
    require_units,
    require_whole,
)
from torch_holdout.bounds.single_query import hoeffding, kl_interval


def chernoff_interval(mean: float, units: int, failure: float) -> tuple[float, float]:
    r"""Return the interval of one query: :math:`n\,\mathrm{kl}(h \| P) \le \ln(2/\beta)`.

    Example:
        >>> low, high = chernoff_interval(0.0, 1000, 0.05)
        >>> low, round(high, 5)
        (0.0, 0.00368)
    """
    require_units(units)
    require_failure(failure)
    return kl_interval(mean, math.log(2 / failure) / units)


def naive_union(units: int, queries: int, failure: float) -> float:
    r"""Return :math:`\sqrt{\ln(2m/\beta)/(2n)}`. INVALID when a query depends on earlier answers.

    It is what is often quoted for a reused validation set; kept to show the difference.

    Example:
        >>> round(naive_union(1000, 50, 0.05), 3)
        0.062
    """
    require_whole("queries", queries, 1, 2**62)
    require_failure(failure)
    return hoeffding(units, failure / queries)


def sample_splitting(units: int, queries: int, failure: float) -> float:
    r"""Return Hoeffding's tau for m queries on disjoint parts of :math:`\lfloor n/m \rfloor` units.

    Valid under adaptivity, and the price to beat. Infinite when there are fewer units than queries.

    Example:
        >>> round(sample_splitting(1000, 5, 0.05), 3)
        0.115
    """
    require_units(units)
    require_whole("queries", queries, 1, 2**62)
    require_failure(failure)
    part = units // queries
    return hoeffding(part, failure / queries) if part else math.inf
