r"""Distances for one query, for many queries by counting transcripts, and the Ladder's own theorem.

The counting argument, its other counts and its KL form are in ``bounds.brackets``.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_instance,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.numeric_search import best_argument
from torch_holdout.accounting.pure import log_binomial
from torch_holdout.bounds.brackets import (
    Sequences,
    any_sequences,
    bracket_anytime,
    bracket_fixed,
    hoeffding_tolerance,
)
from torch_holdout.bounds.single_query import hoeffding, kl_interval


@formula
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


@formula
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


@formula
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


@formula
def counting_anytime(
    units: int, *, position: int, releases_before: int, answers: int, failure: float
) -> float:
    r"""Return the distance between holdout and population mean of the query at ``position``.

    ``bracket_anytime`` with :math:`A(b) = G^b` (``answers``) in Hoeffding's form,
    :math:`\tau = \sqrt{c/(2u)}`: holds for all positions and numbers of releases at once with
    probability :math:`1 - \beta`, so neither the number of queries nor the budget need be known,
    and the run may stop whenever it likes.

    Assumes: i.i.d. units with values in [0, 1]; only the transcript leaves; grid fixed first.
    Vacuous when the result is 1 or more.

    Example:
        >>> facts = {"position": 50, "releases_before": 4, "answers": 401}
        >>> round(counting_anytime(10_000, **facts, failure=0.05), 3)
        0.051
    """
    sequences = any_sequences(answers)
    bracket = bracket_anytime(
        position=position, releases_before=releases_before, sequences=sequences, failure=failure
    )
    return hoeffding_tolerance(bracket, units)


@formula
def counting_fixed(units: int, *, queries: int, budget: int, answers: int, failure: float) -> float:
    r"""Return the distance for a number of queries m and a budget B fixed beforehand.

    .. math:: \tau = \sqrt{\frac{\ln(2/\beta) + \ln \sum_{b=0}^{B-1} \binom{m}{b+1} G^b}{2u}}

    Covers the first m queries only, guesses too: the distance between a guess and the holdout's
    mean comes on top. Vacuous when the result is 1 or more.

    Example:
        >>> round(counting_fixed(10_000, queries=1000, budget=20, answers=100, failure=0.05), 3)
        0.097
    """
    bracket = bracket_fixed(
        queries=queries, budget=budget, sequences=any_sequences(answers), failure=failure
    )
    return hoeffding_tolerance(bracket, units)


@formula
def counting_data_dependent(
    units: int, *, queries: int, releases_before: int, answers: int, failure: float
) -> float:
    r"""Return the distance for m fixed queries, paying for releases made, not for the budget.

    ``bracket_data_dependent`` with :math:`A(b) = G^b` in Hoeffding's form.

    Example:
        >>> facts = {"queries": 1000, "answers": 100, "failure": 0.05}
        >>> round(counting_data_dependent(10_000, releases_before=19, **facts), 3)
        0.098
    """
    sequences = any_sequences(answers)
    bracket = bracket_data_dependent(
        queries=queries, releases_before=releases_before, sequences=sequences, failure=failure
    )
    return hoeffding_tolerance(bracket, units)


@formula
def improvement_bits() -> Sequences:
    """Count 1: only *that* a query was an improvement leaves, no value.

    One value at the very end of a run is read by no query, so it costs nothing more; a value that
    later queries can read costs ``ln G``.

    Example:
        >>> improvement_bits()(5)
        0.0
    """
    return Sequences("bits", 1)


@formula
def bracket_data_dependent(
    *, queries: int, releases_before: int, sequences: Sequences, failure: float
) -> float:
    r"""Return the bracket for m fixed queries, paying for releases made, not for the budget.

    b earlier releases get the share :math:`6/(\pi^2 (b+1)^2)` of the failure, for all b at once:
    :math:`c = \ln(2/\beta) + \ln\binom{m}{b+1} + \ln A(b) + \ln(\pi^2/6) + 2\ln(b+1)`.

    Example:
        >>> facts = {"queries": 50, "releases_before": 4, "failure": 0.05}
        >>> round(bracket_data_dependent(sequences=any_sequences(57), **facts), 2)
        38.14
    """
    require_whole("queries", queries, 1, 2**62)
    require_whole("releases_before", releases_before, 0, queries - 1)
    require_instance("sequences", sequences, Sequences)
    require_failure(failure)
    return (
        math.log(2 / failure)
        + log_binomial(queries, releases_before + 1)
        + sequences.up_to(releases_before)
        + math.log(math.pi**2 / 6)
        + 2 * math.log(releases_before + 1)
    )


@formula
def bracket_all_released(*, queries: int, answers: int, failure: float) -> float:
    r"""Return the bracket when every one of m queries is released.

    No position is left open: :math:`c = \ln(2/\beta) + \ln\sum_{i=1}^{m} G^{i-1}`.

    Example:
        >>> round(bracket_all_released(queries=50, answers=64, failure=0.05), 1)
        207.5
    """
    require_whole("queries", queries, 1, 2**62)
    require_whole("answers", answers, 2, 2**62)
    require_failure(failure)
    # sum of G^(i-1) = (G^m - 1)/(G - 1) <= G^m/(G - 1)
    return math.log(2 / failure) + queries * math.log(answers) - math.log(answers - 1)


@formula
def ladder_error(units: int, queries: int, step: float, failure: float) -> float:
    r"""Return the largest distance between the Ladder's best and the best true value.

    Its own theorem (Blum and Hardt 2015, arXiv 1502.04585):

    .. math:: P\left(\exists t: |\min_{i \le t} P_i - R_t| > e + \eta\right)
        \le \exp\left(-2e^2 n + (1/\eta + 2)\ln(4m/\eta) + 1\right)

    for step eta and m queries, solved for :math:`e + \eta`. It speaks of the best value so far
    only, and it does not grow with the number of releases. It is about a Ladder that rounds to
    multiples of its step, without noise; ``th.Ladder`` is certified by counting. Vacuous when 1 or
    more.

    Example:
        >>> round(ladder_error(10_000, 50, step=0.02, failure=0.05), 3)
        0.175
    """
    require_units(units)
    require_whole("queries", queries, 1, 2**62)
    require_between("step", step, 0, 1, ends=False)
    require_failure(failure)
    paths = (1 / step + 2) * math.log(4 * queries / step) + 1
    return math.sqrt((paths + math.log(1 / failure)) / (2 * units)) + step


@formula
def ladder_best_step(units: int, queries: int, failure: float) -> float:
    """Return the step with the smallest ``ladder_error``; fix it before the first query.

    Example:
        >>> step = ladder_best_step(10_000, 50, 0.05)
        >>> round(ladder_error(10_000, 50, step, 0.05), 3)
        0.147
    """
    ladder_error(units, queries, 0.5, failure)
    return math.exp(
        best_argument(lambda x: ladder_error(units, queries, math.exp(x), failure), -16.0, -0.05)
    )
