r"""The exact cost of a soft majority: :math:`P(b) \propto e^{\eta v_b}` over r votes and C classes.

One member that changes its mind moves one vote from a to b. With
:math:`W = 1 + p_a(e^{-\eta} - 1) + p_b(e^{\eta} - 1)`, the ratio of the normalising sums, the new
probabilities are :math:`p'_a = e^{-\eta}p_a/W`, :math:`p'_b = e^{\eta}p_b/W` and
:math:`p'_c = p_c/W`. Nothing here depends on the votes that were cast: every statement is the
largest value over all vote vectors. Moving the vote back is a pair of neighbours, too, so the
largest value over ordered pairs covers both directions.
"""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting.rdp import Curve, rdp_of_pure

_LARGEST_EXPONENT = 300.0  # above, exponentials would leave double precision ...
_SMALLEST_ETA = 1e-6  # ... and below, differences of logarithms would lose their digits
_CLOSE = 0.5  # up to here log(1 + x) is taken of x
_ROUNDING = 2.0**-49
Array = npt.NDArray[np.float64]


@formula
def soft_majority_epsilon(eta: float, num_parts: int, num_classes: int) -> float:
    r"""Return the exact pure epsilon of one soft majority of r parts when one member changes.

    Guarantee:
        The largest log ratio is :math:`\eta - \ln W` for class b, and W is smallest when all r
        votes are on a: moving a vote from any other class to a makes :math:`p_a - e^\eta p_b`
        larger. So with :math:`p = 1/(1 + (C-1)e^{-\eta r})`

        .. math:: \varepsilon = \eta - \ln\bigl(1 - p\,(1 - e^{-\eta})(1 - e^{-\eta(r-1)})\bigr),

        between :math:`\eta` (one part) and :math:`2\eta` (many). One member replaced.

    Example:
        >>> round(soft_majority_epsilon(0.1, num_parts=50, num_classes=10), 4)
        0.1933
        >>> soft_majority_epsilon(0.1, num_parts=1, num_classes=10)
        0.1
    """
    require_between("eta", eta, 0, 1e6)
    require_whole("num_parts", num_parts, 1, 2**20)
    require_whole("num_classes", num_classes, 2, 2**20)
    if num_parts == 1:
        return eta
    if eta <= 1:
        share = 1 / (1 + (num_classes - 1) * math.exp(-eta * num_parts))
        drop = share * math.expm1(-eta) * math.expm1(-eta * (num_parts - 1))
        return eta - math.log1p(-drop)
    # 1 - drop cancels for a large eta: the two normalising sums, divided by their largest terms.
    before = math.log1p((num_classes - 1) * math.exp(-eta * num_parts))
    moved = math.exp(-eta * (num_parts - 2))
    others = (num_classes - 2) * math.exp(-eta * (num_parts - 1))
    return 2 * eta + before - math.log1p(moved + others)


@formula
def soft_majority_rdp(eta: float, num_parts: int, num_classes: int) -> Curve:
    r"""Return the Renyi curve of one soft majority, the largest over all vote vectors.

    Guarantee:
        The divergence depends on the votes through :math:`A = e^{\eta v_a}`,
        :math:`B = e^{\eta v_b}` and :math:`s = 1/\sum_c e^{\eta v_c}` alone:

        .. math:: (\alpha-1) D_\alpha = (\alpha-1)\ln(1 + sY) + \ln(1 + sX),

        with :math:`X = A(e^{(\alpha-1)\eta}-1) + B(e^{-(\alpha-1)\eta}-1)` and
        :math:`Y = A(e^{-\eta}-1) + B(e^{\eta}-1)`. For each difference :math:`v_a - v_b` only
        sA is left, the divergence is concave in it, and it is taken at the best point between the
        smallest and the largest value that any votes give. (Not all of what lies between can be
        reached: up to 0.2 % too much.) Never above :math:`\alpha\eta^2/2` (the range of the loss
        is :math:`2\eta`), nor above the curve of the exact epsilon; where double precision ends
        only these two are used. One member replaced.

    Example:
        >>> curve = soft_majority_rdp(0.05, num_parts=50, num_classes=10)
        >>> round(curve(10.0), 5), round(10 * 0.05**2 / 2, 5)
        (0.00581, 0.0125)
    """
    epsilon = soft_majority_epsilon(eta, num_parts, num_classes)
    response = rdp_of_pure(epsilon)
    scans = eta >= _SMALLEST_ETA and eta * num_parts <= _LARGEST_EXPONENT

    def curve(alpha: float) -> float:
        bounds = [epsilon, response(alpha), alpha * eta * eta / 2]
        if scans:
            bounds.append(_scanned(eta, num_parts, num_classes, alpha))
        return min(bounds)

    return curve


@formula
def expected_accuracy_sensitivity(eta: float) -> float:
    r"""Return how much one member moves the expected accuracy of a soft majority.

    Guarantee:
        The probability of any one label moves by at most :math:`\tanh(\eta/2)` when one vote
        moves, so a mean of such probabilities over any number of samples does too. (The log odds
        of a label move by at most :math:`2\eta`, and :math:`\sup_x \sigma(x + 2\eta) - \sigma(x)`
        is that.) One member replaced.

    Example:
        >>> round(expected_accuracy_sensitivity(0.1), 5)
        0.04996
    """
    require_between("eta", eta, 0, math.inf)
    return math.tanh(eta / 2)


@lru_cache(maxsize=2)
def _rays(eta: float, num_parts: int, num_classes: int) -> tuple[Array, Array, Array]:
    r"""Return B and the least and most that the other classes weigh, in units of A.

    One entry for each difference :math:`d = v_a - v_b`.

    With d fixed, :math:`(p_a, p_b)` moves on a ray, and the other classes weigh less against A the
    larger v_a is, because they have fewer votes: the largest v_a and an even spread of the rest is
    one end of what the ray can reach, the smallest v_a and the rest on one class the other.
    """
    others = num_classes - 2
    difference = np.arange(2 - num_parts, num_parts + 1)
    high, low = (num_parts + difference) // 2, np.maximum(difference, 1)
    if not others:
        paired = (num_parts + difference) % 2 == 0
        b = np.exp(-eta * difference[paired])
        return b, np.zeros_like(b), np.zeros_like(b)
    single = num_parts + difference - 2 * high  # 0 or 1 vote is left for the others ...
    least = (others + single * math.expm1(eta)) * np.exp(-eta * high)
    left = num_parts + difference - 2 * low  # ... or as many as can be, all on one class
    most = np.exp(eta * (left - low)) + (others - 1) * np.exp(-eta * low)
    return np.exp(-eta * difference), least, most


@lru_cache(maxsize=4096)
def _scanned(eta: float, num_parts: int, num_classes: int, alpha: float) -> float:
    b, least, most = _rays(eta, num_parts, num_classes)
    power = (alpha - 1) * eta
    fade = math.exp(-power)
    x = (1 - b * fade) * -math.expm1(-power)  # X in units of exp(power), so nothing overflows
    y = (1 - b * math.exp(eta)) * math.expm1(-eta)
    slope = (alpha - 1) * fade * y + x
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = -alpha * x * y / slope - 1 - b
    # X and Y of one sign: it only rises or only falls with s, and an end of the range is best.
    rest = np.where(x * y < 0, rest, np.where(slope > 0, least, most))
    rest = np.clip(rest, least, most)
    total = 1 + b + rest
    if eta <= _CLOSE:
        first = np.log1p(y / total)
    else:  # 1 + sY would cancel
        first = np.log((rest + math.exp(-eta) + b * math.exp(eta)) / total)
    if power <= _CLOSE:
        second = np.log1p(x * math.exp(power) / total)
    else:
        second = power + np.log((1 + fade * (rest + b * fade)) / total)
    largest = float(np.max((alpha - 1) * first + second))
    # What rounding may have taken away: a few units of the last digit of either logarithm.
    return (largest + _ROUNDING * (power + alpha * (eta > _CLOSE))) / (alpha - 1)
