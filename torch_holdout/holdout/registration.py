"""The parameters of a holdout: checked when it is made, compared when it is opened again."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, final

from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_instance,
    require_text,
    require_whole,
    shown,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.run_events import part_names
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION, LARGEST_EPSILON
from torch_holdout.statistics import Statistic

_LARGEST = {
    "size": 2**40, "budget": 2**31 - 1, "resolution": 2**24, "grid": 2**31, "planned": 10**9,
}  # fmt: skip
_LARGEST_SUM = 2**62


@final
@dataclass(frozen=True, kw_only=True)
class Registration:
    """The parameters of a holdout; the arguments are those of ``ReusableHoldout``.

    ``planned`` is a plan's number of queries; more may be asked, at the anytime price.
    ``plan_arguments`` are those of ``plan``, which the account keeps; ``refusal`` says why none can
    be created from it.

    Example:
        >>> import torch_holdout as th
        >>> registration = Registration(
        ...     name="val", size=500, statistics={"val_acc": th.ZeroOne()}, budget=20,
        ...     mechanism=th.Thresholdout(threshold=0.02, sigma=0.002, guess="last"))
        >>> registration.units("val_acc"), registration.grid_of("val_acc")
        (500, 128)
    """

    name: str
    size: int
    statistics: Mapping[str, Statistic]
    mechanism: Mechanism
    budget: int
    delta: float | None = None
    grid: int | None = None
    resolution: int | None = None
    seed: int | None = None
    planned: int | None = None
    plan_arguments: Mapping[str, Any] | None = None
    refusal: str | None = None

    def __post_init__(self) -> None:
        require_text("name", self.name)
        for name, largest in _LARGEST.items():
            value = plain_whole(getattr(self, name))
            if value is not None or name in ("size", "budget"):
                require_whole(name, value, 1, largest)
            object.__setattr__(self, name, value)
        if self.delta is not None:
            require_between("delta", self.delta, 0, 1, ends=False)
            object.__setattr__(self, "delta", float(self.delta))
        require_instance("mechanism", self.mechanism, Mechanism)
        sets = self.mechanism.estimation_sets
        if sets is not None and self.budget > sets:
            raise InvalidArgumentError(
                f"Expected a `budget` of at most {sets}, the number of estimation sets, because a "
                f"release discards one, but got {self.budget}."
            )
        self._check_statistics()
        self._check_range()
        self._check_cost()
        self.first_guesses()

    @property
    def levels(self) -> int:
        """Integer levels of one example's value."""
        return DEFAULT_RESOLUTION if self.resolution is None else self.resolution

    def statistic(self, name: str) -> Statistic:
        """Return a registered statistic; raise if there is none of that name."""
        if not isinstance(name, str) or name not in self.statistics:
            raise InvalidArgumentError(
                f"Expected one of the registered statistics {list(self.statistics)}, but got "
                f"{shown(name)}."
            )
        return self.statistics[name]

    def units(self, name: str) -> int:
        """Return the number of parts that a statistic's mean runs over."""
        return self.statistics[name].units(self.size)

    def grid_of(self, name: str) -> int:
        """Return the number of answer intervals of a statistic."""
        if self.grid is not None:
            return self.grid
        return int(2 ** math.ceil(math.log2(4 * math.sqrt(self.units(name)))))

    def first_guesses(self) -> dict[str, Fraction]:
        """Return the public first guesses, normalised."""
        identity = self.mechanism.identity()
        key = "baseline" if identity.get("baseline") else "initial"
        given = identity.get(key) or {}
        for name, value in given.items():
            statistic = self.statistic(name)
            require_between(f"{key}[{name!r}]", value, statistic.low, statistic.high)
        return {n: Fraction(self.statistics[n].to_normalised(v)) for n, v in given.items()}

    def identity(self) -> dict[str, Any]:
        """Return the parameters that the ledger stores and compares."""
        return {
            "size": self.size,
            "statistics": {
                name: statistic.identity() | {"units": self.units(name), "grid": self.grid_of(name)}
                for name, statistic in self.statistics.items()
            },
            "mechanism": self.mechanism.identity(),
            "budget": self.budget,
            "delta": self.delta,
            "resolution": self.levels,
            "relation": "replace-one",
            "seeded": self.seed is not None,
            **({} if self.planned is None else {"planned": self.planned}),
            **({} if self.plan_arguments is None else {"plan": dict(self.plan_arguments)}),
        }

    def brief(self) -> str:
        """Return the parameters that a representation shows."""
        return (
            f"name={self.name!r}, size={self.size}, statistics={list(self.statistics)}, "
            f"mechanism={self.mechanism!r}, budget={self.budget}"
        )

    def kept(self, ledger: Ledger, account: str) -> "Registration":
        """Return the parameters of an account, which may be those of an earlier planner."""
        if self.plan_arguments is None:
            return self
        stored = ledger.summary(account).registered
        grids = {statistic.grid for statistic in stored.statistics.values()}
        return replace(
            self,
            size=stored.size,
            mechanism=stored.mechanism(),
            budget=stored.budget,
            planned=stored.planned,
            grid=grids.pop() if len(grids) == 1 else None,
        )

    def _check_statistics(self) -> None:
        if not isinstance(self.statistics, Mapping) or not self.statistics:
            raise InvalidArgumentError(
                "Expected `statistics` to map names to statistics, e.g. "
                '{"val_loss": th.BoundedMean(0, 5)}, with at least one entry.'
            )
        for name, statistic in self.statistics.items():
            require_text("statistics", name)
            require_instance(f"statistics[{name!r}]", statistic, Statistic)
            if statistic.parts:
                self._check_ratio(name)

    def _check_ratio(self, name: str) -> None:
        if self.mechanism.is_private():
            raise InvalidArgumentError(
                f"Expected a mechanism without noise for the ratio {name!r}, because one example "
                f"can move a quotient by any amount, but {type(self.mechanism).__name__} has it. "
                f"Use th.Sealed(evaluations=...) without epsilon, or sigma=0.0; or register the "
                f"numerator and the denominator as means of their own. Nothing was charged."
            )
        longest = 200 - max(len(part) - len(name) for part in part_names(name))
        if len(name) > longest:
            raise InvalidArgumentError(
                f"Expected the name of a ratio to have at most {longest} characters, but got "
                f"{len(name)}."
            )

    def _check_range(self) -> None:
        for units in self._all_units():
            # Noise of up to 4 scales reaches 256 ln 2 < 178 of them; the ledger keeps 64 bits.
            scale = self.mechanism.noise_scale(units, self.levels)
            if units * self.levels + 8 * 178 * scale >= _LARGEST_SUM:
                raise InvalidArgumentError(
                    f"Expected sums and noise below 2^62, but {units} units of {self.levels} "
                    f"levels with this noise exceed that. Choose a smaller resolution."
                )

    def _check_cost(self) -> None:
        charges = self.mechanism.budget_charges(self._all_units(), self.budget)
        in_rho = self.mechanism.currency == "rho"
        cap = math.fsum(c.count * (c.rho if in_rho else c.epsilon) for c in charges)
        if not math.isinf(cap) and cap > LARGEST_EPSILON:
            raise InvalidArgumentError(
                f"Expected the whole budget to cost at most {self.mechanism.currency} "
                f"{LARGEST_EPSILON:g}, but with this noise it costs {cap:.3g}, which protects "
                f"nothing. Use more noise, or sigma=0 to claim no privacy where that is allowed."
            )

    def _all_units(self) -> set[int]:
        return {self.units(name) for name in self.statistics}


class RegisteredHoldout:
    """The parameters of a holdout, as its users read them."""

    _registration: Registration

    def _attached(self) -> str:
        raise NotImplementedError

    def _kept(self) -> Registration:
        """Return the parameters; where a plan chose them, those that its account has kept."""
        if self._registration.plan_arguments is not None:
            self._attached()
        return self._registration

    @property
    def name(self) -> str:
        """The holdout's name in its ledger."""
        return self._registration.name

    @property
    def size(self) -> int:
        """The number of examples a pass must see."""
        return self._kept().size

    @property
    def budget(self) -> int:
        """The number of releases that are allowed in all; of a sealed holdout, of runs."""
        return self._kept().budget

    @property
    def mechanism(self) -> Mechanism:
        """The rule that answers queries."""
        return self._kept().mechanism

    @property
    def statistics(self) -> dict[str, Statistic]:
        """The registered statistics, by name."""
        return dict(self._registration.statistics)

    @property
    def asked_for(self) -> tuple[str, ...]:
        """The names that a guarded step returns values under: those of all statistics."""
        return tuple(self._registration.statistics)

    @property
    def questions_left(self) -> int | None:
        """None: any number of passes may be asked about; releases are what is counted."""
        return None

    def require_values(self) -> None:
        """Raise unless a training's passes are answered: those of a holdout here always are."""
