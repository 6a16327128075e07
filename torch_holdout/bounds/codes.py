r"""Prices of what a board says, one symbol at a time: flags, steps, records.

Many analysts ask one holdout, each with a Ladder of its own or with one for all, in whatever order
and however they talk to each other. Fix all coins: then who asks next, and what, is a function of
what the board has published. So one registered law for each symbol, which may look at that prefix,
gives every prefix s a code length :math:`\ln 1/Q(s)`, and over the prefixes at which submission k
can be made Q sums to at most 1 (Kraft). With a share a(k) of the failure, at once for every
submission of every account, :math:`n\,\mathrm{kl}(h \| P) \le c`,

.. math:: c = \ln(2/\beta) + \ln 1/a(k) + \ln 1/Q(s) + \ln K

for K statistics. A second account is one more asker: it pays like any other. One ladder's own count
of sequences does not hold for a board; ``interleaved_transcripts`` is the count that does, for a
number of ladders that is known beforehand.
"""

import math
from typing import NamedTuple

from torch_holdout._shared.checks import require_between, require_failure, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting.picos import from_picos, rounded_up
from torch_holdout.accounting.pure import log_binomial
from torch_holdout.bounds.brackets import kl_answer_interval
from torch_holdout.bounds.shares import share
from torch_holdout.bounds.single_query import binomial_interval

_LARGEST = 2**62
_MOST_NATS = from_picos(2**62)  # what 64 bits of picos hold


class Flags(NamedTuple):
    """The flags that a board has said so far, as far as the law of the next one looks at them.

    Attributes:
        ones: How many said "told", "kept" or "record".
        zeros: How many said that nothing was.
        rank: Their price by the law of exchangeable submissions, in nats; only for records.

    Example:
        >>> Flags(ones=1, zeros=3).after(True)
        Flags(ones=2, zeros=3, rank=0.0)
    """

    ones: int = 0
    zeros: int = 0
    rank: float = 0.0

    def after(self, flag: bool, *, records: bool = False) -> "Flags":
        """Return the flags after one more."""
        rank = self.rank - _log_rank(self.ones + self.zeros, flag) if records else 0.0
        return Flags(self.ones + flag, self.zeros + (not flag), rank)


@formula
def flag_price(ones: int, zeros: int, flag: bool) -> float:
    r"""Return the price of the next flag by the law of Krichevsky and Trofimov.

    After t flags with r ones the next one is 1 with probability :math:`(r + 1/2)/(t + 1)`.

    Example:
        >>> round(flag_price(0, 0, True), 6), round(flag_price(0, 9, False), 6)
        (0.693147, 0.051293)
    """
    require_whole("ones", ones, 0, _LARGEST)
    require_whole("zeros", zeros, 0, _LARGEST)
    return -_log_kt(ones, zeros, flag)


@formula
def step_price(better: int, steps: int) -> float:
    r"""Return the price of a value that is told: the j-th of g answers better than the best so far.

    By the law :math:`1/(2g) + 1/(2j(j+1))`, j from 1 to g: half for any of them alike, half for
    small improvements. It sums to less than 1.

    Example:
        >>> round(step_price(better=256, steps=5), 3), round(step_price(better=256, steps=256), 3)
        (3.984, 6.234)
    """
    require_whole("better", better, 1, _LARGEST)
    require_whole("steps", steps, 1, better)
    return -math.log(1 / (2 * better) + 1 / (2 * steps * (steps + 1)))


@formula
def record_flag_price(ones: int, zeros: int, rank: float, flag: bool) -> float:
    r"""Return the price of the next record flag by the registered mixture.

    Half the law of exchangeable submissions, half Krichevsky and Trofimov's. By the first one
    submission t + 1 is a record with probability 1/(t + 2): the public baseline counts as one more
    that was there before all of them. ``rank`` is what the flags so far cost by it.

    Example:
        >>> round(record_flag_price(0, 0, 0.0, True), 6)
        0.693147
        >>> dear = Flags()
        >>> for _ in range(20):
        ...     dear = dear.after(True, records=True)
        >>> round(record_flag_price(dear.ones, dear.zeros, dear.rank, True), 2)
        0.02
    """
    require_whole("ones", ones, 0, _LARGEST)
    require_whole("zeros", zeros, 0, _LARGEST)
    require_between("rank", rank, 0, math.inf)
    kt_so_far = _log_kt_sequence(ones, zeros)
    # Each law's share of the mixture so far, by the logarithm of their quotient: no underflow.
    of_rank, of_kt = _shares(-rank - kt_so_far)
    chance = of_rank * math.exp(_log_rank(ones + zeros, flag))
    return -math.log(chance + of_kt * math.exp(_log_kt(ones, zeros, flag)))


@formula
def answer_price(answers: int) -> float:
    r"""Return the price of a value that is told with another one: any of G answers.

    Example:
        >>> round(answer_price(513), 3)
        6.24
    """
    require_whole("answers", answers, 1, _LARGEST)
    return math.log(answers)


@formula
def in_picos(nats: float) -> int:
    """Return nats in whole picos (10^-12), rounded up, as the ledger adds them: exactly.

    Example:
        >>> in_picos(math.log(2)), in_picos(0.0)
        (693147180560, 0)
    """
    require_between("nats", nats, 0, _MOST_NATS)
    return rounded_up(nats)


@formula
def board_bracket(
    *, position: int, planned: int, said: float, failure: float, statistics: int = 1
) -> float:
    r"""Return c of submission k: :math:`\ln(2/\beta) - \ln a(k) + \ln 1/Q(s) + \ln K`.

    a(k) is ``shares.share``; ``said`` is all that any account was told before it, in nats.

    Example:
        >>> facts = {"planned": 250, "failure": 0.05}
        >>> round(board_bracket(position=250, said=0.0, **facts), 3)
        9.315
        >>> round(board_bracket(position=250, said=876.5, **facts), 1)
        885.8
    """
    require_failure(failure)
    require_between("said", said, 0, math.inf)
    require_whole("statistics", statistics, 1, _LARGEST)
    return math.log(2 * statistics / failure) - math.log(share(position, planned)) + said


@formula
def told_interval(
    *, answer: float, grid: int, bracket: float, units: int, resolution: int, exact: bool
) -> tuple[float, float]:
    """Return the interval of a value that was told on a grid: the holdout's is half a step away.

    For values 0 and 1 exact: Clopper and Pearson's for the fewest and for the most successes that
    the answer can stand for. Else by the KL divergence, widened by the rounding to levels.

    Example:
        >>> facts = {"answer": 0.9, "grid": 512, "bracket": 9.0, "units": 10_000}
        >>> low, high = told_interval(exact=True, resolution=65536, **facts)
        >>> round(low, 4), round(high, 4)
        (0.8876, 0.9115)
    """
    require_between("answer", answer, 0, 1)
    require_whole("grid", grid, 1, _LARGEST)
    require_between("bracket", bracket, 0, math.inf)
    require_whole("units", units, 1, _LARGEST)
    require_whole("resolution", resolution, 1, _LARGEST)
    error = 0.5 / grid
    if not exact:
        low, high = kl_answer_interval(answer, error, bracket, units)
        return max(0.0, low - 0.5 / resolution), min(1.0, high + 0.5 / resolution)
    slack = 1e-9  # a whole number that floating point has moved
    fewest = max(0, math.ceil((answer - error) * units - slack))
    most = min(units, math.floor((answer + error) * units + slack))
    fewest, most = min(fewest, most), max(fewest, most)
    return binomial_interval(fewest, units, bracket)[0], binomial_interval(most, units, bracket)[1]


@formula
def interleaved_transcripts(*, position: int, releases: int, ladders: int, answers: int) -> float:
    r"""Return the logarithm of how many transcripts with b releases lie before position i.

    Of T strict Ladders without noise, G answers each, in any order that the transcript decides: at
    most :math:`\binom{i-1}{b}\binom{TG}{b}`. With g the number of values, over all ladders, that
    are still better than their best: a guess keeps g; a release takes the j-th of them and leaves
    g - j at most; :math:`\sum_j \binom{g-j}{b-1} = \binom{g}{b}`.

    Example:
        >>> facts = {"position": 5, "releases": 4, "answers": 3}
        >>> round(math.exp(interleaved_transcripts(ladders=3, **facts)))
        126
        >>> interleaved_transcripts(ladders=1, **facts)  # one ladder's own count: not for a board
        -inf
    """
    require_whole("position", position, 1, _LARGEST)
    require_whole("releases", releases, 0, _LARGEST)
    require_whole("ladders", ladders, 1, _LARGEST)
    require_whole("answers", answers, 1, _LARGEST)
    values = ladders * answers
    if releases > min(values, position - 1):
        return -math.inf
    return log_binomial(position - 1, releases) + log_binomial(values, releases)


def _log_kt(ones: int, zeros: int, flag: bool) -> float:
    return math.log(((ones if flag else zeros) + 0.5) / (ones + zeros + 1))


def _log_kt_sequence(ones: int, zeros: int) -> float:
    halves = math.lgamma(ones + 0.5) + math.lgamma(zeros + 0.5)
    return halves - math.log(math.pi) - math.lgamma(ones + zeros + 1)


def _log_rank(flags: int, flag: bool) -> float:
    """Return ln of the chance that the next flag is what it is, among exchangeable submissions."""
    return -math.log(flags + 2) if flag else math.log1p(-1 / (flags + 2))


def _shares(log_quotient: float) -> tuple[float, float]:
    """Return two shares of 1 from the logarithm of their quotient."""
    if log_quotient > 0:
        second = math.exp(-log_quotient) / (1 + math.exp(-log_quotient))
        return 1 - second, second
    first = math.exp(log_quotient) / (1 + math.exp(log_quotient))
    return first, 1 - first
