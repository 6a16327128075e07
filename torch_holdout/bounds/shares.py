r"""Shares of the failure probability for positions whose number is planned, and may be exceeded.

Of the whole, .9 is divided equally among the planned positions and .1 among all positions, so the
shares of all positions sum to at most 1 whatever happens, and the plan costs little.
"""

from torch_holdout._shared.checks import require_whole
from torch_holdout._shared.formulas import formula

_LARGEST = 2**62


@formula
def share(position: int, planned: int) -> float:
    r"""Return :math:`.9/m` for positions up to the planned m, plus :math:`.1/(k(k+1))` for any k.

    Example:
        >>> round(share(200, 200), 9), round(share(1, 1), 9)
        (0.004502488, 0.95)
        >>> round(share(201, 200), 9)
        2.463e-06
    """
    require_whole("position", position, 1, _LARGEST)
    require_whole("planned", planned, 1, _LARGEST)
    return share_sum(position, position, planned)


@formula
def share_sum(first: int, last: int, planned: int) -> float:
    """Return the sum of the shares of the positions first to last, in closed form; 0 for none.

    Example:
        >>> share_sum(1, 200, 200) < 1, share_sum(11, 10, 200)
        (True, 0.0)
        >>> round(share_sum(11, 50, 200), 6)
        0.18713
    """
    require_whole("first", first, 1, _LARGEST)
    require_whole("last", last, 0, _LARGEST)
    require_whole("planned", planned, 1, _LARGEST)
    if last < first:
        return 0.0
    inside = max(0, min(last, planned) - first + 1)
    # 1/(k(k+1)) = 1/k - 1/(k+1): the sum telescopes, and the fraction loses no digits.
    return 0.9 * inside / planned + 0.1 * (last - first + 1) / (first * (last + 1))
