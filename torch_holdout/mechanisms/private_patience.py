r"""Private early stopping: one sparse vector and one noisy choice for a whole run, in integers.

Sums are integers, and replacing one of the holdout's examples moves each by at most :math:`L`
levels. For ``mode="max"`` all signs turn; below, smaller is better. After pass :math:`t > p`,

.. math:: q_t = \min(S_1, \dots, S_{t-p}) - \min(S_{t-p+1}, \dots, S_t)

says how much the last :math:`p` passes gained. A minimum moves by at most :math:`L`, so
:math:`q_t` by at most :math:`\Delta = 2L`. :math:`\mathrm{Geo}(b)` is
:math:`P(k) \propto e^{-k/b}`, :math:`k \ge 0`. With one secret :math:`\rho`, a draw of
:math:`\mathrm{Geo}(b_1)` for the run, and the public integer :math:`c = \lfloor 2b_2 - b_1
\rfloor`, the run stops at the first :math:`t` with :math:`-q_t + \eta_t > c + \rho`, each
:math:`\eta_t` a fresh draw of :math:`\mathrm{Geo}(b_2)`.

**The stop costs** :math:`\Delta/b_1 + 2\Delta/b_2`. On a neighbouring holdout take :math:`\rho +
\Delta` for :math:`\rho`: one-sided noise can be shifted upwards, and its probability falls by
exactly :math:`e^{-\Delta/b_1}`. No pass that was silent stops then. The pass that stopped has lost
at most :math:`2\Delta`, and :math:`P(\eta \ge x + 2\Delta) \ge e^{-2\Delta/b_2} P(\eta \ge x)` for
every integer :math:`x`. Both steps are about integers, so ties do no harm: ``>`` throughout. The
same shift covers a run that never stops. :math:`b_1 = 5.175\,L/e_s` and :math:`b_2 = 6.520\,L/e_s`
are the split with the least variance, :math:`1 : 2^{2/3}` (Lyu, Su and Li 2017), rounded up: the
cost is :math:`0.99997\,e_s`.

**The choice costs** :math:`e_b`: the evaluation with the smallest
:math:`S_i - \mathrm{Geo}(2L/e_b)`, the first of equal ones. Fix the others' noise: evaluation
:math:`i` wins if its own noise is at least some integer, which a neighbour raises by at most
:math:`2L` (permute-and-flip, McKenna and Sheldon 2020, with the exponential noise of Ding et al.
2021). Given the pass at which a run ended, the choice depends on noise of its own, so both add up
to :math:`e_s + e_b`. The analyst may choose each model, and when to end the run, from the silence
so far: silence is part of what is bounded.

Neither function charges or stores anything. Sums, threshold and kept value are secrets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch_holdout._noise.laplace import geometric_error
from torch_holdout._noise.streams import NoiseStream
from torch_holdout._shared.checks import require_between, require_choice, require_whole
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import LARGEST_EPSILON

STOP_SHARE, CHOICE_SHARE = 0.3, 0.7  # of a run's epsilon
DEFAULT_PATIENCE = 20
_THRESHOLD_SCALE, _COMPARISON_SCALE = 5.175, 6.520  # times L/e_s
_SMALLEST_EPSILON = 1e-6
_LARGEST_RESOLUTION = 2**32
_LARGEST_SUM = 2**62

Kept = tuple[int, int]
"""The best evaluation so far: its noisy signed sum, a secret, and its number."""


@final
@dataclass(frozen=True, kw_only=True)
class PrivateChoice:
    r"""Choose the best of many evaluations, keeping one of them at a time.

    Guarantee:
        Replacing one holdout example changes the law of the number chosen by at most
        :math:`e^\varepsilon`, however many evaluations there are (proof above). Drawing the noise
        of an evaluation twice, or showing the choice among fewer evaluations as well, costs more.

    Args:
        epsilon: What the choice costs.
        resolution: L, by how many levels one example can move a sum.
        mode: Which sums are better, ``"min"`` or ``"max"``.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rule = PrivateChoice(epsilon=1.0, resolution=1)
        >>> stream, kept = SeededNoise(7).stream("example"), None
        >>> for number, total in enumerate((900, 400, 100, 300), start=1):
        ...     kept = rule.keep(total, number, kept, stream)
        >>> kept[1]
        3
    """

    epsilon: float
    resolution: int
    mode: str = "min"

    def __post_init__(self) -> None:
        _require_rule(self.epsilon, self.resolution, self.mode)

    @property
    def scale(self) -> float:
        """The noise of each evaluation, in levels."""
        return 2 * self.resolution / self.epsilon

    def keep(
        self, total: int, number: int, kept: Sequence[int] | None, stream: NoiseStream
    ) -> Kept:
        """Return the better of what was kept and a new evaluation; the first of equal ones.

        To be called once for each evaluation, in order. The work is the same for every outcome.
        """
        noisy = _signed(total, self.mode) - stream.geometric(self.scale)
        if kept is None:
            return noisy, number
        best, holder = kept
        return (noisy, number) if noisy < best else (best, holder)

    def sampler_error(self, evaluations: int) -> float:
        """Bound the total variation of all draws from their laws.

        Example:
            >>> PrivateChoice(epsilon=1.0, resolution=2**16).sampler_error(200) < 1e-72
            True
        """
        return evaluations * geometric_error(self.scale)


@final
@dataclass(frozen=True, kw_only=True)
class PrivatePatience:
    r"""Stop a run that has not improved for some passes, and choose its best evaluation.

    Guarantee:
        Replacing one holdout example changes the joint law of the pass at which the run stopped
        and of the evaluation chosen by at most :math:`e^\varepsilon` (proof above): 0.3 of epsilon
        for the stop, 0.7 for the choice, both charged in full before the first of them. It needs
        one threshold for the run, one noise for each comparison and each evaluation, one outcome.

    Gains below about 22/(n epsilon) of the range in p passes are lost in the noise of a
    comparison: a curve that improves more slowly is stopped too early, and needs more patience.

    Args:
        epsilon: What a run costs.
        resolution: L, by how many levels one example can move a sum.
        patience: p, the passes that may bring nothing.
        mode: Which sums are better, ``"min"`` or ``"max"``.
        min_delta: By how many levels of the sum a pass must be better to count; public.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rule = PrivatePatience(epsilon=1.0, resolution=1, patience=2)
        >>> stream = SeededNoise(7).stream("example")
        >>> threshold = rule.draw_threshold(stream)  # with the first comparison: once for the run
        >>> totals = [900, 500, 400, 300, 600, 700]
        >>> [rule.stops(totals[:t], threshold, stream) for t in range(1, 7)]
        [False, False, False, False, False, True]
    """

    epsilon: float
    resolution: int
    patience: int = DEFAULT_PATIENCE
    mode: str = "min"
    min_delta: int = 0

    def __post_init__(self) -> None:
        _require_rule(self.epsilon, self.resolution, self.mode)
        require_whole("patience", self.patience, 1, _LARGEST_SUM)
        require_whole("min_delta", self.min_delta, 0, _LARGEST_SUM)

    @property
    def choice(self) -> PrivateChoice:
        """The rule that chooses the run's best evaluation, with its share of epsilon."""
        share = CHOICE_SHARE * self.epsilon
        return PrivateChoice(epsilon=share, resolution=self.resolution, mode=self.mode)

    @property
    def threshold_scale(self) -> float:
        """The noise of the run's threshold, in levels."""
        return _THRESHOLD_SCALE * self.resolution / (STOP_SHARE * self.epsilon)

    @property
    def comparison_scale(self) -> float:
        """The noise of each comparison, in levels."""
        return _COMPARISON_SCALE * self.resolution / (STOP_SHARE * self.epsilon)

    def compares(self, passes: int) -> bool:
        """Whether the pass with this number, counted from 1, is compared with the threshold.

        Example:
            >>> rule = PrivatePatience(epsilon=1.0, resolution=1, patience=2)
            >>> [rule.compares(passes) for passes in (1, 2, 3)]
            [False, False, True]
        """
        return passes > self.patience

    def draw_threshold(self, stream: NoiseStream) -> int:
        """Draw the run's secret threshold; a second one for the same run voids the guarantee."""
        centre = math.floor(2 * self.comparison_scale - self.threshold_scale)
        return centre + stream.geometric(self.threshold_scale)

    def stops(self, totals: Sequence[int], threshold: int | None, stream: NoiseStream) -> bool:
        """Whether the run stops after the last of ``totals``, the sums of all its passes.

        To be called once for each pass. A pass that is not compared needs no threshold and draws
        nothing.
        """
        if not self.compares(len(totals)):
            return False
        if threshold is None:
            raise InvalidArgumentError("Expected the run's threshold, but got None: draw it once.")
        signed = [_signed(total, self.mode) for total in totals]
        before, last = min(signed[: -self.patience]), min(signed[-self.patience :])
        return last - before + self.min_delta + stream.geometric(self.comparison_scale) > threshold

    def sampler_error(self, passes: int) -> float:
        """Bound the total variation of all draws of a run from their laws.

        Example:
            >>> rule = PrivatePatience(epsilon=1.0, resolution=2**16)
            >>> rule.sampler_error(passes=200) < 1e-72
            True
        """
        compared = max(0, passes - self.patience) * geometric_error(self.comparison_scale)
        return geometric_error(self.threshold_scale) + compared + self.choice.sampler_error(passes)


def _signed(total: int, mode: str) -> int:
    return total if mode == "min" else -total


def _require_rule(epsilon: float, resolution: int, mode: str) -> None:
    require_between("epsilon", epsilon, _SMALLEST_EPSILON, LARGEST_EPSILON)
    require_whole("resolution", resolution, 1, _LARGEST_RESOLUTION)
    require_choice("mode", mode, ("min", "max"))
