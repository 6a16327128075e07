"""The interface of a mechanism: the query it sees, the decision it returns, and its cost."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal

from torch_holdout._noise.streams import NoiseStream
from torch_holdout._shared.checks import require_number
from torch_holdout.accounting import Charge, Concentrated, Pure
from torch_holdout.accounting.compose import sparse_charges
from torch_holdout.bounds.channels import Channel
from torch_holdout.errors import HoldoutError, InvalidArgumentError

_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-12, 1e3

DEFAULT_RESOLUTION = 2**16  # integer levels of one example's value
Guess = Fraction | None  # a value in [0, 1]; None for no guess
LARGEST_EPSILON = 1e6  # fits the ledger's 64-bit picos


def require_sigma(sigma: float) -> None:
    """Raise unless an integer sampler can draw noise of scale ``sigma``."""
    require_number("sigma", sigma)
    if sigma != 0 and not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        raise InvalidArgumentError(
            f"Expected `sigma` to be 0 (no noise, no privacy) or from {_SMALLEST_SIGMA:g} to "
            f"{_LARGEST_SIGMA:g} in normalised units, but got {sigma!r}."
        )


@dataclass(frozen=True, kw_only=True)
class Query:
    """One question, in integer levels. ``total`` is raw: it is in no repr and leaves no mechanism.

    Attributes:
        total: The holdout's sum, between 0 and ``units * resolution``.
        units: Over how many parts the mean runs.
        resolution: Levels of one part; replacing one changes ``total`` by at most this.
        grid: Number of answer intervals.
        guess: A value in [0, 1] that does not depend on the holdout beyond its releases, or None.
        threshold: The open round's secret noisy threshold, or None if no round is open.
        forced: Release without comparing.
        mode: Which direction is better, ``"min"`` or ``"max"``.
        noise: Where this query's draws come from.

    Example:
        >>> from torch_holdout._noise.streams import SystemNoise
        >>> Query(total=3, units=4, resolution=1, grid=8, guess=None, threshold=None, forced=True,
        ...       noise=SystemNoise().stream())
        Query(units=4, resolution=1, grid=8, guess=None, forced=True, mode='min')
    """

    total: int = field(repr=False)
    units: int
    resolution: int
    grid: int
    guess: Fraction | None
    threshold: int | None = field(repr=False)
    forced: bool
    mode: str = "min"
    noise: NoiseStream = field(repr=False)

    @property
    def levels(self) -> int:
        """The largest possible total."""
        return self.units * self.resolution


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A mechanism's decision. Not yet committed, so its repr shows neither answer nor secret.

    Attributes:
        index: The answer on the grid, or None when the guess is returned.
        compared: Whether the holdout was compared with the guess.
        opened: Whether that comparison opened a round.
        threshold: The secret threshold to keep, None if no round stays open.

    Example:
        >>> Decision(index=3, compared=True, opened=False, threshold=17)
        Decision(compared=True, opened=False)
    """

    index: int | None = field(repr=False)
    compared: bool
    opened: bool
    threshold: int | None = field(repr=False)


@dataclass(frozen=True)
class Release:
    """An earlier release of the same statistic, as a public grid point.

    Example:
        >>> Release(index=3, grid=4).value
        Fraction(3, 4)
    """

    index: int
    grid: int

    @property
    def value(self) -> Fraction:
        """The released value in [0, 1]."""
        return Fraction(self.index, self.grid)


class Mechanism(ABC):
    """A rule that answers queries from a holdout, with its privacy cost.

    Attributes:
        kind: The name that the ledger keeps.
        currency: What charges are counted in: epsilon, or rho (zero-concentrated) for noise that
            has no pure epsilon.
        compares: Whether guesses are compared, in rounds with a secret threshold each.
        guess_rule: What a returned guess says about the holdout: ``"both"``, it is near;
            ``"improvement"``, it is not much better; None, there are no guesses.
        grid_guess: Whether the caller's guess is rounded to the grid before it is used.
        fixes_statistics: Whether no statistic may be added after the first query.
        shows_values: Whether it answers queries at all; if not, the budget counts runs.

    Example:
        >>> from torch_holdout.mechanisms import LaplaceMechanism
        >>> mechanism = LaplaceMechanism(epsilon=0.1)
        >>> isinstance(mechanism, Mechanism), mechanism.compares, mechanism.epsilon_per_step(500)
        (True, False, 0.1)
    """

    kind: ClassVar[str]
    currency: ClassVar[Literal["epsilon", "rho"]] = "epsilon"
    compares: ClassVar[bool] = True
    guess_rule: ClassVar[str | None] = "both"
    grid_guess: ClassVar[bool] = False
    fixes_statistics: ClassVar[bool] = False
    shows_values: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        """Return kind and parameters: stored, and compared when the holdout is opened again."""
        return {"kind": self.kind, **vars(self)}

    @abstractmethod
    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return the guess to compare with; None forces a release."""

    @abstractmethod
    def decide(self, query: Query) -> Decision:
        """Answer one query. Draws only from ``query.noise``."""

    @abstractmethod
    def epsilon_per_step(self, units: int) -> float:
        """Return what one answer, or one round of comparisons, costs; infinity without noise."""

    def charge_per_step(self, units: int) -> float:
        """Return ``epsilon_per_step`` in the mechanism's currency."""
        return self.epsilon_per_step(units)

    def release_charge(self, units: int) -> float:
        """Return what one release costs with its round of comparisons, in the currency."""
        return self.charge_per_step(units) * (2 if self.compares else 1)

    def budget_charges(self, units: Collection[int], budget: int) -> list[Charge]:
        r"""Return what a full budget charges, from registered parameters alone.

        B answers, and those of ``accounting.compose.sparse_charges`` for a mechanism that compares.
        Constant from creation, so it covers adaptive queries and stopping early.

        Example:
            >>> from torch_holdout.mechanisms import LaplaceMechanism, Thresholdout
            >>> LaplaceMechanism(epsilon=0.1).budget_charges({500}, budget=20)
            [Pure(epsilon=0.1, count=20)]
            >>> rule = Thresholdout(threshold=0.1, sigma=0.02, guess="last")
            >>> rule.budget_charges({100, 500}, budget=20)
            [Pure(epsilon=0.5, count=40), Pure(epsilon=0.1, count=1)]
        """
        steps = [self.charge_per_step(u) for u in set(units)]
        if self.currency == "rho":
            return [Concentrated(max(steps), budget)]
        return sparse_charges(steps, budget) if self.compares else [Pure(max(steps), budget)]

    def is_private(self) -> bool:
        """Whether the noise gives any privacy."""
        return math.isfinite(self.charge_per_step(1))

    def channel(self, *, units: int, resolution: int, grid: int, **statistic: Any) -> Channel:
        """Return how one statistic's value becomes an answer, for the certificate.

        Example:
            >>> from torch_holdout.mechanisms import LaplaceMechanism
            >>> channel = LaplaceMechanism(epsilon=0.1).channel(units=500, resolution=1, grid=64)
            >>> channel.sigma, channel.rule
            (0.02, None)
        """
        return Channel(
            units=units,
            resolution=resolution,
            grid=grid,
            sigma=self.noise_scale(units, resolution) / (units * resolution),
            noise="gaussian" if self.currency == "rho" else "laplace",
            threshold=self.guess_distance(),
            rule=self.guess_rule,
            **statistic,
        )

    def noise_scale(self, units: int, resolution: int) -> float:
        """Return the scale of the answer noise in levels."""
        step = self.epsilon_per_step(units)
        return 0.0 if math.isinf(step) else resolution / step

    def guess_distance(self) -> float:
        """Return how far a returned guess may be from the holdout, apart from noise."""
        raise HoldoutError(
            f"No certificate is known for {type(self).__name__}: it does not say how far its "
            f"guesses may be off. Define its guess_distance()."
        )

    def wants_guess(self) -> bool:
        """Whether the caller must bring the guess with every query."""
        return False

    def guess_source(self) -> Literal["training", "caller", "release"]:
        """Return whose value a guess is: a training value, the caller's own, or a release."""
        return "training" if self.wants_guess() else "release"

    @property
    def estimation_sets(self) -> int | None:
        """How many sets guesses come from, one discarded with each release; None without any."""
        return None

    def allows_fresh(self) -> bool:
        """Whether an answered query may be asked again for a new release."""
        return True
