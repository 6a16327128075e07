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
    whole costs :math:`\ln \pi + \ln\Gamma(t+1) - \ln\Gamma(r+\frac12) - \ln\Gamma(t-r+\frac12)`,
    in whatever order they came.

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
        zeros: How many were none.

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

    :math:`-\ln(\frac12 \prod_t p_t + \frac12 q)`, p the 1/r law and q Krichevsky-Trofimov's: a
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
