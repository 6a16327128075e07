r"""Prices of what sealed runs have said, and the bracket of an evaluation that pays for them.

Fix all coins. The door publishes symbols, and the query of an evaluation is a function of those
published before it. One law for each symbol is registered before the first query: a symbol of
probability q costs :math:`-\ln q` nats, paid by every evaluation asked after it. The prefixes at
which one evaluation of one run can happen form an antichain, so their probabilities sum to at most
1 (Kraft), and so do the shares of runs and evaluations: except with probability beta,
:math:`n\,\mathrm{kl}(h \| P) \le c` for all evaluations at once.

The law of one run, for m planned evaluations, patience p and ``after`` passes that take no part:
pass T stops it with probability share(T, m)/2, T > after + p; the other half is for the run that
its analyst ends, whose best pass is one of the last p. A run that has not stopped has said that:
silence costs what the stops up to now have taken.

What an evaluation's own run has not said is free; what all other runs begun before that evaluation
have said by then is charged, silence included. A run without a rule for stopping says nothing, and
costs nothing. The number of a run that is given up is free again only if no other run has said
anything since its first evaluation: else the evaluation that another run points to could be kept
out of many, for the share of one.
"""

import math

from torch_holdout._shared.checks import require_between, require_failure, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.shares import share, share_sum
from torch_holdout.errors import InvalidArgumentError

_LARGEST = 2**62


@formula
def stop_price(passes: int, evaluations: int) -> float:
    r"""Return the price of "stopped by patience at pass T": :math:`\ln 2 - \ln` share(T, m).

    It names the best pass too, if that is the one patience refers to.

    Example:
        >>> round(stop_price(41, evaluations=200), 3)
        6.084
    """
    return math.log(2) - math.log(share(passes, evaluations))


@formula
def end_price(passes: int, patience: int, after: int = 0) -> float:
    r"""Return the price of a run ended by its analyst at pass T, with its best pass handed over.

    :math:`\ln 2 + \ln \min(T - k, p)`, k the passes that take no part: a run that was not stopped
    has its best among the last p passes. Up to pass k there is none to hand over.

    Example:
        >>> round(end_price(50, patience=10), 3), round(end_price(3, patience=10), 3)
        (2.996, 1.792)
    """
    require_whole("passes", passes, 1, _LARGEST)
    require_whole("patience", patience, 1, _LARGEST)
    require_whole("after", after, 0, _LARGEST)
    if passes <= after:
        raise InvalidArgumentError(
            f"Expected more than {after} passes, as these take no part in patience, but got "
            f"{passes}. A run ended before has no best pass; its price is that of silence."
        )
    return math.log(2) + math.log(min(passes - after, patience))


@formula
def silence_price(passes: int, evaluations: int, patience: int, after: int = 0) -> float:
    r"""Return the price of "not stopped yet" after j passes; open, crashed and given up alike.

    :math:`-\ln(1 - \frac{1}{2} \sum_{k+p < t \le j}` share(t, m)), k the passes that take no part.
    Nothing up to pass k + p, where no run can stop.

    Example:
        >>> [round(silence_price(j, evaluations=200, patience=10), 3) for j in (10, 50, 100, 200)]
        [0.0, 0.098, 0.231, 0.565]
    """
    require_whole("passes", passes, 0, _LARGEST)
    require_whole("evaluations", evaluations, 1, _LARGEST)
    require_whole("patience", patience, 1, _LARGEST)
    require_whole("after", after, 0, _LARGEST)
    if passes <= after + patience:
        return 0.0
    return -math.log1p(-share_sum(after + patience + 1, passes, evaluations) / 2)


@formula
def noisy_stop_price(passes: int, evaluations: int, patience: int, best: int) -> float:
    r"""Return the price of "stopped at pass T, best pass b", where noise decides both.

    The stop as without noise; then b by the registered code: half for T - p, half uniform on 1 to
    T. Both halves count for b = T - p.

    Example:
        >>> round(noisy_stop_price(41, evaluations=200, patience=10, best=31), 3)
        6.753
        >>> round(noisy_stop_price(41, evaluations=200, patience=10, best=30), 3)
        10.491
    """
    require_whole("passes", passes, 1, _LARGEST)
    require_whole("patience", patience, 1, _LARGEST)
    require_whole("best", best, 1, passes)
    code = 0.5 / passes + (0.5 if best == passes - patience else 0.0)
    return stop_price(passes, evaluations) - math.log(code)


@formula
def noisy_end_price(passes: int) -> float:
    r"""Return the price of a noisy run ended by its analyst: :math:`\ln 2 + \ln T`, any best pass.

    Example:
        >>> round(noisy_end_price(50), 3)
        4.605
    """
    require_whole("passes", passes, 1, _LARGEST)
    return math.log(2) + math.log(passes)


@formula
def evaluation_bracket(
    *,
    failure: float,
    run: int,
    runs: int,
    evaluation: int,
    evaluations: int,
    statistics: int,
    others: float = 0.0,
) -> float:
    r"""Return the bracket c of evaluation i in run r, for R planned runs of m evaluations.

    :math:`c = \ln(2/\beta) - \ln` share(r, R) :math:`- \ln` share(i, m) :math:`+ \ln K + o`, K the
    number of statistics and o what all other runs begun before this evaluation have said by then.

    Example:
        >>> facts = {"failure": 0.05, "run": 1, "evaluation": 200, "evaluations": 200}
        >>> round(evaluation_bracket(runs=1, statistics=1, **facts), 6)
        9.143298
        >>> round(evaluation_bracket(runs=10, statistics=1, **facts), 6)
        11.058118
    """
    require_failure(failure)
    require_whole("statistics", statistics, 1, _LARGEST)
    require_between("others", others, 0, math.inf)
    return (
        math.log(2 / failure)
        - math.log(share(run, runs))
        - math.log(share(evaluation, evaluations))
        + math.log(statistics)
        + others
    )
