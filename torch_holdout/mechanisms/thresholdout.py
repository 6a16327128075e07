"""Thresholdout: the reusable holdout of Dwork et al., NIPS 2015 (arXiv 1506.02629)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from torch_holdout._shared.checks import (
    require_choice,
    require_instance,
    require_number,
    require_text,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import Guess, Release
from torch_holdout.mechanisms.families import StaysNearGuess


@final
@dataclass(frozen=True, kw_only=True)
class Thresholdout(StaysNearGuess):
    r"""Return the guess while the holdout agrees with it; pay for an answer when it does not.

    With the holdout's mean :math:`h`, the guess :math:`g` and one secret :math:`\hat T = T +
    \mathrm{Lap}(2\sigma)` per round: if :math:`|h - g| + \mathrm{Lap}(4\sigma) > \hat T`, release
    :math:`h + \mathrm{Lap}(\sigma)` rounded to the grid and start a new round; else return
    :math:`g`. Scales are in normalised units (bounds mapped to [0, 1]); noise is discrete.

    Guarantee:
        Replacing one holdout example changes the law of a round and its answer by at most a factor
        :math:`e^{2/(u\sigma)}`, u units: :math:`\varepsilon = 2B/(u\sigma)` for B releases, under
        adaptive queries (Lemma 3.2 of the paper; proof for integers in ``rounds``). With
        ``sigma=0`` there is no privacy and only the counting certificate applies. With
        ``guess="train"`` the training records get no privacy at all.

    Args:
        threshold: T, how far guess and holdout may differ before an answer is paid for.
        sigma: Scale of the answer noise; the threshold has twice, a comparison four times that.
        guess: ``"last"``, the latest release of the same statistic (suggested for early stopping),
            or ``"train"``, the training value (the paper's). No default: it decides what is spent.
        initial: Public first guesses by statistic name, in the user's units, for ``"last"``;
            a statistic without one has its first query released.

    Example:
        >>> Thresholdout(threshold=0.02, sigma=0.002, guess="last").epsilon_per_step(units=500)
        1.0
    """

    kind: ClassVar[str] = "thresholdout"

    threshold: float
    sigma: float
    guess: Literal["train", "last"]
    initial: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        self._check_distance("threshold")
        require_choice("guess", self.guess, ("train", "last"))
        if self.initial is None:
            return
        require_instance("initial", self.initial, Mapping)
        object.__setattr__(self, "initial", dict(self.initial))
        for name, value in self.initial.items():
            require_text("initial", name)
            require_number(f"initial[{name!r}]", value)
        if self.guess != "last":
            raise InvalidArgumentError(
                "Expected `initial` only with guess='last'; guess='train' brings its own guess."
            )

    def identity(self) -> dict[str, Any]:
        """Return kind and parameters."""
        return {
            "kind": self.kind,
            "threshold": float(self.threshold),
            "sigma": float(self.sigma),
            "guess": self.guess,
            "initial": {name: float(v) for name, v in sorted((self.initial or {}).items())},
        }

    def wants_guess(self) -> bool:
        """Whether the training value must come with every query."""
        return self.guess == "train"

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return the training value, the last release, or the public initial value (normalised)."""
        if self.guess == "train" or last is None:
            return given
        return last.value
