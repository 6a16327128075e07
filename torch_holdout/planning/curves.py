r"""Steps and budgets that training curves need, fitted to measured ones.

A validation loss falls steeply and levels off: with a fall of a factor e in every :math:`\tau`
evaluations, from a drop D, a mechanism of step s releases at each evaluation until the slope is s,
:math:`\tau\ln(D/\tau s)` times, and :math:`\tau` times after that. Fitted to loss and error of
digits, MNIST and a tabular task (500 to 10,000 holdout examples, 8 seeds, 200 epochs with Adam and
with SGD, validated at each, every 2nd, 4th and 8th): :math:`\tau = m/45 + 1/2` for m evaluations,
D = 0.46, that of a guess among ten classes for losses in [0, 5]. The largest numbers of releases
were 21, 14, 9 and 6; the fit has 20, 13, 9 and 6. SGD at a third of the usual rate took 64 and 28.

A wider step for a smaller budget does not help (half the releases take four times the step, and the
chosen epoch is worse by that), nor does a warm-up: it missed optima that came early. Validating
less often does.
"""

import math

from torch_holdout._shared.checks import require_whole
from torch_holdout._shared.numeric_search import largest_whole

REGRET = 0.005  # of the range: how much worse the chosen epoch may be than the best
_DROP = 0.46


def finest_step(size: int) -> float:
    """Return the smallest improvement worth a release, normalised, for a holdout of ``size``.

    The stated regret, but a quarter of the worst-case standard error u where that is more, and u
    where that is less. Evaluations of one run are correlated, so their differences are far less
    uncertain than u.

    Example:
        >>> [round(finest_step(size), 4) for size in (100, 1000, 10_000, 1_000_000)]
        [0.0125, 0.005, 0.005, 0.0005]
    """
    error = standard_error(size)
    return min(max(REGRET, error / 4), error)


def standard_error(size: int) -> float:
    """Return the largest standard error that a mean of values in [0, 1] can have.

    Example:
        >>> standard_error(10_000)
        0.005
    """
    return 0.5 / math.sqrt(size)


def lasting_budget(evaluations: int, step: float = REGRET) -> int:
    """Return how many releases a steep start takes in a run of that many evaluations.

    Example:
        >>> [lasting_budget(evaluations) for evaluations in (3, 25, 50, 200, 1000, 100_000)]
        [3, 6, 9, 20, 55, 92]
        >>> lasting_budget(200, step=0.01), lasting_budget(200, step=0.0025)
        (16, 23)
    """
    require_whole("evaluations", evaluations, 1, 10**9)
    time, most = evaluations / 45 + 0.5, _DROP / step
    needed = most if time >= most else time * (1 + math.log(most / time))
    return max(1, min(evaluations, math.ceil(needed)))


def lasting_interval(evaluations: int, budget: int, step: float = REGRET) -> int:
    """Return the smallest k for which a budget lasts if only each k-th evaluation is made.

    Example:
        >>> [lasting_interval(200, budget) for budget in (5, 10, 20)]
        [12, 3, 1]
    """
    require_whole("budget", budget, 1, 10**9)
    fewer = largest_whole(lambda m: lasting_budget(m, step) <= budget, 1, evaluations)
    return -(-evaluations // (fewer or 1))


def lasting_records(trials: int) -> int:
    """Return how many releases a search takes: each trial that is the best so far is one.

    N independent trials have ln N + 0.58 records, give or take sqrt(ln N); this is two such
    deviations more.

    Example:
        >>> [lasting_records(trials) for trials in (1, 5, 50, 500)]
        [1, 5, 9, 12]
    """
    require_whole("trials", trials, 1, 10**9)
    usual = math.log(trials)
    return min(trials, math.ceil(usual + 0.58 + 2 * math.sqrt(usual)))
