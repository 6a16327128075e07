"""Sealed runs: decisions are shown, values are not."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

from torch_holdout._shared.checks import plain_whole, require_between, require_whole
from torch_holdout.bounds.sealed_runs import (
    end_price,
    noisy_end_price,
    noisy_stop_price,
    silence_price,
    stop_price,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import Decision, Guess, Mechanism, Query, Release
from torch_holdout.mechanisms.patience import Patience
from torch_holdout.mechanisms.private_patience import PrivatePatience

_LARGEST_PLAN = 10**9
_EPSILONS = (1e-6, 1e3)


@final
@dataclass(frozen=True)
class Sealed(Mechanism):
    r"""Show no value until the holdout is closed: a run says only when it stops, or nothing.

    The budget counts runs. Inside a run every evaluation is kept sealed; a ``Patience`` stops it
    where early stopping on the raw values would have stopped it and names its best evaluation.
    ``holdout.close()`` then shows every curve, with an interval for every evaluation.

    Guarantee:
        With probability :math:`1-\beta`, all at once, evaluation i of run r satisfies
        :math:`n\,\mathrm{kl}(h\|P) \le c`, c the sum of :math:`\ln(2/\beta)`, the code lengths of r
        and i, and what other runs have said by then (``bounds.sealed_runs``).

    Args:
        evaluations: Evaluations planned in a run; more may come, at a higher price.
        epsilon: None; with a number, what one run costs in privacy: its decisions are noisy then.

    Example:
        >>> Sealed(evaluations=200)
        Sealed(evaluations=200, epsilon=None)
        >>> Sealed(evaluations=200).price(
        ...     state="open", passes=100, patience=Patience("val_loss", 10), best=None)
        0.2313...
    """

    kind: ClassVar[str] = "sealed"
    shows_values: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    guess_rule: ClassVar[str | None] = None
    fixes_statistics: ClassVar[bool] = True

    evaluations: int
    epsilon: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "evaluations", plain_whole(self.evaluations))
        require_whole("evaluations", self.evaluations, 1, _LARGEST_PLAN)
        if self.epsilon is not None:
            require_between("epsilon", self.epsilon, *_EPSILONS)
            object.__setattr__(self, "epsilon", float(self.epsilon))

    def noise_scale(self, units: int, resolution: int) -> float:
        """Return the largest scale of the noise, that of comparisons, in levels."""
        if self.epsilon is None:
            return 0.0
        return PrivatePatience(epsilon=self.epsilon, resolution=resolution).comparison_scale

    def epsilon_spent(self, passes: int, patience: Patience | None, best: int | None) -> float:
        """Return what a run has cost: all of it, from its first comparison or its choice on."""
        compared = patience is not None and passes >= patience.earliest_stop
        return self.epsilon_per_step(1) if compared or best is not None else 0.0

    def epsilon_per_step(self, units: int) -> float:
        """Return what one run costs; infinity without noise."""
        return math.inf if self.epsilon is None else self.epsilon

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return no guess: nothing is compared with one."""
        return None

    def guess_distance(self) -> float:
        """Return 0: there are no guesses."""
        return 0.0

    def price(
        self, *, state: str, passes: int, patience: Patience | None, best: int | None
    ) -> float:
        """Return what a run has said so far, in nats: whatever is asked later pays for it.

        Its silence says that it has not stopped yet. A run that nothing stops says nothing.

        Args:
            state: ``"open"``, ``"stopped"``, ``"ended"`` or ``"given_up"``.
            passes: How many passes it has made.
            patience: What stops it.
            best: The pass of the evaluation that was handed over, if one was.
        """
        if patience is None:
            return 0.0
        if state == "stopped" and self.epsilon is None:
            return stop_price(passes, self.evaluations)
        if state == "stopped" and best is not None:
            return noisy_stop_price(passes, self.evaluations, patience.patience, best)
        if state == "ended" and best is not None:
            if self.epsilon is not None:
                return noisy_end_price(passes)
            return end_price(passes, patience.patience, patience.after)
        return silence_price(passes, self.evaluations, patience.patience, patience.after)

    def decide(self, query: Query) -> Decision:
        """Raise always: a sealed holdout answers no query with a value."""
        raise values_are_sealed()


def values_are_sealed() -> InvalidArgumentError:
    """Return the error for a question that asks a sealed holdout for a value."""
    return InvalidArgumentError(
        "Expected a run, because this holdout is sealed and shows no value before it is closed. "
        "Write `with holdout.run(stop=th.Patience(...)) as run:` and, for each evaluation, "
        "`run.evaluate({name: values}, query=...)`. Nothing was charged."
    )
