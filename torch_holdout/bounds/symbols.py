r"""Prices of what a sealed account says on request: record bits, the winner's number, keeps.

Each is a symbol with a law that is registered before it is drawn; the law may look at public
facts, such as how many runs were compared. The price of a sequence of symbols is minus the
logarithm of its probability, so the prices of all sequences satisfy Kraft's inequality, whatever
the analyst asks and when. Every evaluation asked later pays for all of it.
"""

import math
from collections.abc import Sequence

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.errors import InvalidArgumentError

_LARGEST = 2**62


@formula
def kt_price(ones: int, zeros: int) -> float:
    r"""Return the price of a sequence of bits by the law of Krichevsky and Trofimov.

    After t bits with r ones the next one is 1 with probability :math:`(r + 1/2)/(t + 1)`, so the
    whole costs :math:`\ln \pi + \ln \Gamma(t + 1) - \ln \Gamma(r + \frac{1}{2}) - \ln \Gamma(t - r
    + \frac{1}{2})`, in whatever order they came.

    Example:
        >>> round(kt_price(1, 0), 6), round(kt_price(2, 48), 3)
        (0.693147, 10.602)
    """
    require_whole("ones", ones, 0, _LARGEST)
    require_whole("zeros", zeros, 0, _LARGEST)
    bits = ones + zeros
    if not bits:
        return 0.0
    halves = math.lgamma(ones + 0.5) + math.lgamma(zeros + 0.5)
    return math.log(math.pi) + math.lgamma(bits + 1) - halves


@formula
def worst_kt_price(ones: int, zeros: int, more: int) -> float:
    """Return the largest price that a sequence of bits can have after some more of them.

    That is where ones and zeros are as equal as they can become.

    Example:
        >>> worst_kt_price(3, 0, more=1) == kt_price(3, 1)
        True
        >>> worst_kt_price(3, 0, more=7) == kt_price(5, 5)
        True
    """
    require_whole("more", more, 0, _LARGEST)
    later = min(max((zeros + more - ones) // 2, 0), more)
    return kt_price(ones + later, zeros + more - later)


@formula
def rank_price(records: Sequence[bool], compared: Sequence[int]) -> float:
    r"""Return the price of record bits by the law of exchangeable runs: a record is 1 in r.

    r is how many runs are compared, the one that is asked about included.

    Example:
        >>> round(rank_price([True, True], [2, 3]), 6)
        1.791759
    """
    _require_bits(records, compared)
    chances = (
        1 / runs if record else 1 - 1 / runs for record, runs in zip(records, compared, strict=True)
    )
    return -math.fsum(map(math.log, chances))


@formula
def record_mixture(rank: float, ones: int, zeros: int) -> float:
    r"""Return the price of record bits by half the 1/r law and half Krichevsky-Trofimov.

    Args:
        rank: The price of the whole sequence by the 1/r law.
        ones: How many of them were records.
        zeros: How many were not.

    Example:
        >>> round(record_mixture(math.log(math.factorial(20)), 19, 0), 1)
        2.7
    """
    require_between("rank", rank, 0, math.inf)
    kt = kt_price(ones, zeros)
    # The logarithm of the mean of both probabilities, without underflow.
    return min(rank, kt) + math.log(2) - math.log1p(math.exp(-abs(rank - kt)))


@formula
def record_price(records: Sequence[bool], compared: Sequence[int]) -> float:
    r"""Return the price of a sequence of record bits, "better than every run before".

    :math:`-\ln(\frac{1}{2} p + \frac{1}{2} q)`, p the 1/r law and q Krichevsky-Trofimov's: a
    registered mixture. The first run is a record for certain; its bit is not coded and not given
    here. One more bit costs the difference.

    Args:
        records: The coded bits, in the order they were said.
        compared: For each of them the number of runs compared, the one asked about included: 2 or
            more.

    Example:
        >>> round(record_price([True] * 19, range(2, 21)), 1)
        2.7
        >>> round(record_price([], []), 1)
        0.0
    """
    ones = sum(map(bool, records))
    return record_mixture(rank_price(records, compared), ones, len(records) - ones)


@formula
def worst_record_price(rank: float, ones: int, zeros: int, compared: int, more: int) -> float:
    r"""Return the largest price that a sequence of record bits can have after some more of them.

    They cost most by the 1/r law if the records come last; by Krichevsky-Trofimov their order does
    not matter. For k records both are concave in k, so the mixture is: the largest one is found by
    bisection.

    Args:
        rank: The price of the bits so far by the 1/r law.
        ones: How many of them were records.
        zeros: How many were not.
        compared: The number of runs compared for the next bit, 2 or more; one more for each later.
        more: How many bits come.

    Example:
        >>> round(worst_record_price(0.0, 0, 0, compared=2, more=19), 2)
        15.55
        >>> every = [record_price([a, b], [2, 3]) for a in (True, False) for b in (True, False)]
        >>> math.isclose(worst_record_price(0.0, 0, 0, compared=2, more=2), max(every))
        True
    """
    require_whole("compared", compared, 2, _LARGEST)
    require_whole("more", more, 0, _LARGEST)

    def price(records: int) -> float:
        others = compared + more - records  # the first record's number of runs
        falling = math.log(others - 1) - math.log(compared - 1)
        rising = math.lgamma(compared + more) - math.lgamma(others)
        return record_mixture(rank + falling + rising, ones + records, zeros + more - records)

    low, high = 0, more
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if price(middle + 1) > price(middle) else (low, middle)
    return price(low)


@formula
def winner_price(runs: int) -> float:
    r"""Return the price of the winner's number among some runs, :math:`\ln` of how many they are.

    Example:
        >>> round(winner_price(20), 3), winner_price(1)
        (2.996, 0.0)
    """
    require_whole("runs", runs, 1, _LARGEST)
    return math.log(runs)


def _require_bits(records: Sequence[bool], compared: Sequence[int]) -> None:
    if len(records) != len(compared):
        raise InvalidArgumentError(
            f"Expected the number of runs compared for each of {len(records)} record bits, but got "
            f"{len(compared)} numbers."
        )
    for runs in compared:
        require_whole("compared", runs, 2, _LARGEST)
