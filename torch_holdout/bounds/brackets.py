r"""Transcript counting: few released grid values cannot have overfitted much.

Fix all coins. The query at position i is a function of the answers released before it. With b of
them there are at most :math:`\binom{i-1}{b} A(b)` such functions, A(b) the number of sequences of b
released values: :math:`G^b` for any mechanism with G answers, fewer for a Ladder. Each of these
functions was fixed without the holdout, so a one-query bound holds for it; a union bound with
shares of the failure holds for all. What differs below is the shares.

Every function returns a *bracket* c: except with probability beta, :math:`u\,\mathrm{kl}(h \| P)
\le c` for every query it covers, h the mean over u units and P the population's (Chernoff's
bound, valid for independent values in [0, 1]). ``hoeffding_tolerance`` and ``kl_answer_interval``
turn it into a distance and into an interval.

Assumes: an i.i.d. holdout; nothing but the transcript leaves; the grid was fixed first. Noise does
no harm.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_instance,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting.pure import log_binomial
from torch_holdout.bounds.single_query import kl_edge
from torch_holdout.errors import InvalidArgumentError

_LARGEST_FIXED = 10**6


@final
@dataclass(frozen=True)
class Sequences:
    r"""The number of sequences that b releases can form: calling it gives :math:`\ln A(b)`."""

    rule: Literal["any", "falling", "monotone", "bits"]
    answers: int

    def __post_init__(self) -> None:
        require_whole("answers", self.answers, 1, 2**62)

    def __call__(self, releases: int) -> float:
        """Return the logarithm of the number of sequences."""
        if self.rule == "any":
            return releases * math.log(self.answers)
        if self.rule == "monotone":
            return log_binomial(self.answers + releases - 1, releases)
        if self.rule == "falling":
            return log_binomial(self.answers, releases) if releases <= self.answers else -math.inf
        return 0.0

    def up_to(self, releases: int) -> float:
        """Return the largest logarithm for at most that many releases.

        Used where the claim about the last release stands for all before it: falling sequences
        become fewer again beyond G/2.
        """
        return self(min(releases, self.answers // 2) if self.rule == "falling" else releases)


@formula
def any_sequences(answers: int) -> Sequences:
    r"""Count :math:`G^b`: any of G answers at each release.

    Example:
        >>> round(math.exp(any_sequences(10)(3)))
        1000
    """
    return Sequences("any", answers)


@formula
def falling_sequences(answers: int) -> Sequences:
    r"""Count :math:`\binom{G}{b}`: each release strictly better than the one before.

    A Ladder without noise whose step is at least one grid step. For several statistics G is the sum
    of their answers: whichever of them the analyst asks about next, each step of the induction
    splits one of the G remaining answers off.

    Example:
        >>> round(math.exp(falling_sequences(10)(3)))
        120
        >>> falling_sequences(2)(3)
        -inf
    """
    return Sequences("falling", answers)


@formula
def monotone_sequences(answers: int) -> Sequences:
    r"""Count :math:`\binom{G+b-1}{b}`: no release worse than the one before.

    Any Ladder that publishes the better of best and answer. For several statistics G is the sum of
    their answers.

    Example:
        >>> round(math.exp(monotone_sequences(10)(3)))
        220
    """
    return Sequences("monotone", answers)


@formula
def bracket_fixed(*, queries: int, budget: int, sequences: Sequences, failure: float) -> float:
    r"""Return the bracket for m queries and a budget B fixed beforehand.

    A query that is answered, by a release or a guess, has at most B - 1 releases before it; over
    all positions that makes
    :math:`c = \ln(2/\beta) + \ln \sum_{b=0}^{B-1} \binom{m}{b+1} A(b)`.

    Example:
        >>> facts = {"queries": 50, "budget": 5, "failure": 0.05}
        >>> round(bracket_fixed(sequences=any_sequences(57), **facts), 2)
        34.43
    """
    require_whole("queries", queries, 1, 2**62)
    require_whole("budget", budget, 1, 2**31)
    require_instance("sequences", sequences, Sequences)
    require_failure(failure)
    return math.log(2 / failure) + _log_nodes(queries, budget, sequences)


@formula
def bracket_anytime(
    *, position: int, releases_before: int, sequences: Sequences, failure: float
) -> float:
    r"""Return the bracket of the query at position i, with nothing known in advance.

    Shares :math:`6/(\pi^2 i^2)` and :math:`6/(\pi^2 (b+1)^2)`: :math:`c = \ln(2/\beta) +
    \ln\binom{i-1}{b} + \ln A(b) + \ln(\pi^4/36) + 2\ln i + 2\ln(b+1)` for all i and b at once. The
    run may stop whenever it likes. i counts all queries of the account, guesses included, repeats
    not; b is ``releases_before``.

    Example:
        >>> facts = {"position": 50, "releases_before": 4, "failure": 0.05}
        >>> round(bracket_anytime(sequences=any_sequences(57), **facts), 2)
        44.16
    """
    require_whole("position", position, 1, 2**62)
    require_whole("releases_before", releases_before, 0, position - 1)
    require_instance("sequences", sequences, Sequences)
    require_failure(failure)
    return math.log(2 / failure) + _log_anytime(position, releases_before, sequences)


@formula
def bracket_planned(
    *,
    position: int,
    releases_before: int,
    sequences: Sequences,
    failure: float,
    queries: int,
    budget: int,
) -> float:
    r"""Return the bracket when m queries and a budget B were planned, and more may be asked.

    Half of the failure is shared as for a fixed plan, half as anytime, so each query's share is the
    mean of the two: at most :math:`\ln 2` worse than the better of them, whatever happens. Beyond
    the plan only the anytime half remains.

    Example:
        >>> plan = {"queries": 50, "budget": 5, "failure": 0.05, "sequences": any_sequences(57)}
        >>> round(bracket_planned(position=50, releases_before=4, **plan), 2)
        35.12
        >>> round(bracket_planned(position=3, releases_before=1, **plan), 2)
        13.7
    """
    require_whole("queries", queries, 1, 2**62)
    require_whole("budget", budget, 1, 2**31)
    require_failure(failure)
    anytime = bracket_anytime(
        position=position, releases_before=releases_before, sequences=sequences, failure=failure / 2
    )
    if position > queries or releases_before >= budget:
        return anytime
    fixed = bracket_fixed(queries=queries, budget=budget, sequences=sequences, failure=failure / 2)
    # ln of the two shares' sum, in brackets: -ln(e^-a + e^-f).
    return -_log_sum([-anytime, -fixed])


def worst_releases(position: int, budget: int, sequences: Sequences) -> int:
    """Return the number of earlier releases that makes the query at a position most uncertain.

    The anytime bracket is concave in their number: with few of them there is little to count, and
    with nearly all earlier queries released there is little choice of which.

    Example:
        >>> worst_releases(200, budget=20, sequences=any_sequences(100))
        19
        >>> 100 < worst_releases(200, budget=200, sequences=monotone_sequences(400)) < 199
        True
    """
    require_whole("position", position, 1, 2**62)
    require_whole("budget", budget, 1, 2**31)
    low, high = 0, min(budget, position) - 1
    while low < high:
        middle = (low + high) // 2
        here = _log_anytime(position, middle, sequences)
        if _log_anytime(position, middle + 1, sequences) > here:
            low = middle + 1
        else:
            high = middle
    return low


@formula
def hoeffding_tolerance(bracket: float, units: int) -> float:
    r"""Return :math:`\tau = \sqrt{c/(2u)}`: the event implies :math:`|h - P| \le \tau`.

    Vacuous when the result is 1 or more.

    Example:
        >>> round(hoeffding_tolerance(39.69, 1000), 3)
        0.141
    """
    require_between("bracket", bracket, 0, math.inf)
    require_units(units)
    return math.sqrt(bracket / (2 * units))


@formula
def kl_answer_interval(
    answer: float, error: float, bracket: float, units: int
) -> tuple[float, float]:
    r"""Return an interval for P from an answer within ``error`` of h.

    h is unknown, so :math:`u\,\mathrm{kl}(h \| P) \le c` is inverted at both ends of
    :math:`[\text{answer} - e, \text{answer} + e]`. Never wider than Hoeffding's, and about half of
    it for small error rates; no failure probability is split between the two.

    Example:
        >>> low, high = kl_answer_interval(0.05, error=0.002, bracket=50.0, units=10_000)
        >>> round(low, 3), round(high, 3)
        (0.03, 0.077)
        >>> round(hoeffding_tolerance(50.0, 10_000), 3)
        0.05
    """
    require_between("answer", answer, 0, 1)
    require_between("error", error, 0, math.inf)
    require_between("bracket", bracket, 0, math.inf)
    require_units(units)
    divergence = bracket / units
    low = kl_edge(max(0.0, answer - error), 0.0, divergence)
    return low, kl_edge(min(1.0, answer + error), 1.0, divergence)


def _log_anytime(position: int, releases_before: int, sequences: Sequences) -> float:
    return (
        log_binomial(position - 1, releases_before)
        + sequences.up_to(releases_before)
        + math.log(math.pi**4 / 36)
        + 2 * math.log(position)
        + 2 * math.log(releases_before + 1)
    )


@lru_cache(maxsize=1024)
def _log_nodes(queries: int, budget: int, sequences: Sequences) -> float:
    most = min(budget, queries)
    if most > _LARGEST_FIXED:
        raise InvalidArgumentError(
            f"Expected a budget or number of queries of at most {_LARGEST_FIXED} for a fixed plan, "
            f"but got {most}. Use the anytime form."
        )
    return _log_sum([log_binomial(queries, b + 1) + sequences(b) for b in range(most)])


def _log_sum(terms: list[float]) -> float:
    largest = max(terms)
    return largest + math.log(math.fsum(math.exp(term - largest) for term in terms))
