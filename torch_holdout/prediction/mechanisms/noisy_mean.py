"""The mean of members' values, with integer noise."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import batch_sampler_error
from torch_holdout._shared.checks import (
    require_between,
    require_choice,
    require_flag,
    require_number,
    require_whole,
    shown,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting import (
    Charge,
    Concentrated,
    DiscreteLaplace,
    Pure,
    largest_parameter,
    rho_of_gaussian,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import PredictionMechanism, Setting
from torch_holdout.prediction.mechanisms.votes import in_double, require_scores

Noise = Literal["laplace", "gaussian"]


@final
@dataclass(frozen=True, kw_only=True)
class NoisyMean(PredictionMechanism):
    r"""Answer with the members' mean, clipped and on a grid, plus noise.

    Every member's value becomes an integer from 0 to ``resolution`` (L), the integers are added up,
    and the noise is an integer, too: no floating-point number that was computed from private values
    leaves. With ``simplex`` a member gives probabilities of C classes, made non-negative and scaled
    down to a sum of at most 1, each rounded down to a level. What is not a number counts as
    ``low``, and a vector with such an entry as class 0, silently.

    Guarantee:
        One member moves the sum by at most L; a vector moves by 2L in total and by
        :math:`\sqrt 2 L` in length. So integer Laplace noise costs epsilon (Ghosh, Roughgarden and
        Sundararajan 2009) and Gaussian noise of deviation :math:`\sigma` on the mean of r members
        costs :math:`\rho = w^2/(2r^2\sigma^2)` for a range of w and :math:`1/(r^2\sigma^2)` for
        vectors; rounding it is post-processing. Two members: twice, and four times.

    Args:
        low: Smallest value of a member.
        high: Largest value of a member.
        noise: ``"laplace"`` with ``epsilon`` or ``"gaussian"`` with ``sigma``.
        epsilon: The cost of one query.
        sigma: Standard deviation of the noise on the mean, in the units of the values.
        simplex: Whether members give probabilities of classes; then low is 0 and high is 1.
        resolution: Levels of one member's value, L. None: 65536, and for Gaussian noise the power
            of two that makes a level a hundredth of ``sigma``: finer ones would only add to what
            double precision gets wrong.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> mechanism = NoisyMean(low=0.0, high=10.0, noise="laplace", epsilon=100.0)
        >>> sums = mechanism.table(torch.tensor([[4.0], [5.0], [99.0]]))
        >>> setting = Setting(num_parts=3, num_outputs=1)
        >>> mechanism.answer(sums, setting, SeededNoise(1).uniforms()).round(decimals=1)
        tensor([6.3000], dtype=torch.float64)
    """

    kind: ClassVar[str] = "noisy_mean"
    answers: ClassVar[Literal["labels", "values"]] = "values"

    low: float
    high: float
    noise: Noise
    epsilon: float | None = None
    sigma: float | None = None
    simplex: bool = False
    resolution: int | None = None

    def __post_init__(self) -> None:
        require_number("low", self.low)
        require_number("high", self.high)
        require_choice("noise", self.noise, ("laplace", "gaussian"))
        require_flag("simplex", self.simplex)
        if self.resolution is not None:
            require_whole("resolution", self.resolution, 1, 2**24)
        wanted, other = ("epsilon", "sigma") if self.noise == "laplace" else ("sigma", "epsilon")
        require_between(wanted, getattr(self, wanted), 1e-9, 1e9)
        if getattr(self, other) is not None:
            raise InvalidArgumentError(
                f"Expected no `{other}` for {self.noise} noise, but got "
                f"{shown(getattr(self, other))}. Pass only `{wanted}`."
            )
        self._require_bounds()
        for name in ("low", "high", wanted):
            object.__setattr__(self, name, float(getattr(self, name)))

    def _require_bounds(self) -> None:
        if not self.low < self.high or not math.isfinite(float(self.high) - float(self.low)):
            raise InvalidArgumentError(
                f"Expected `low` below `high`, but got {self.low!r} and {self.high!r}. Give the "
                "range of one member's value."
            )
        if self.simplex and (self.low, self.high) != (0, 1):
            raise InvalidArgumentError(
                f"Expected `low` 0 and `high` 1 for probabilities, but got {self.low!r} and "
                f"{self.high!r}. Pass simplex=False for other values."
            )

    @classmethod
    @formula
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float | None,
        queries: int,
        num_parts: int,
        num_classes: int = 1,
        members_changed: int = 1,
        low: float,
        high: float,
        noise: Noise,
        simplex: bool = False,
        resolution: int | None = None,
    ) -> "NoisyMean":
        """Return the mechanism with the least noise that a budget pays for this often.

        Example:
            >>> budget = {"epsilon": 2.0, "delta": 1e-5, "queries": 100, "num_parts": 50}
            >>> round(NoisyMean.for_budget(**budget, low=0.0, high=1.0, noise="gaussian").sigma, 3)
            0.43
        """
        require_number("low", low)
        require_number("high", high)
        setting = Setting(
            num_parts=num_parts, num_outputs=num_classes, members_changed=members_changed
        )
        mean = partial(cls, low=low, high=high, noise=noise, simplex=simplex, resolution=resolution)

        def at(sharpness: float) -> NoisyMean:
            if noise == "laplace":
                return mean(epsilon=sharpness)
            return mean(sigma=(float(high) - float(low)) / (num_parts * sharpness))

        return at(largest_parameter(lambda s: at(s).charge(setting), queries, epsilon, delta))

    def table(self, outputs: Tensor) -> Tensor:
        """Return sums of levels: [B] of values [m, B] or [m, B, 1], or [B, C] of vectors."""
        return self._vectors(outputs) if self.simplex else self._scalars(outputs)

    def _scalars(self, outputs: Tensor) -> Tensor:
        shape = tuple(outputs.shape)
        if len(shape) not in (2, 3) or shape[2:] not in ((), (1,)):
            raise InvalidArgumentError(
                "Expected the members' outputs to have the shape [members, queries], but got "
                f"{list(shape)}. Pass simplex=True for vectors of probabilities."
            )
        values = in_double(outputs.detach().reshape(shape[:2]))
        values = torch.nan_to_num(values, nan=self.low, posinf=self.high, neginf=self.low)
        share = (values.clamp(self.low, self.high) - self.low) / (self.high - self.low)
        levels = (share * self.levels).round_().clamp_(0, self.levels).to(torch.int64)
        return levels.sum(dim=0).to(outputs.device)

    def _vectors(self, outputs: Tensor) -> Tensor:
        require_scores(outputs)
        values = in_double(outputs.detach())
        odd = values.isnan().any(dim=-1, keepdim=True)
        first = (torch.arange(values.shape[-1], device=values.device) == 0).to(values.dtype)
        # Infinity divided by infinity would not be a number.
        values = torch.where(odd, first, values.clamp(0.0, 2.0**60))
        values = values / values.sum(dim=-1, keepdim=True).clamp_(min=1.0)
        levels = (values * self.levels).floor_().clamp_(0, self.levels).to(torch.int64)
        # A rounded division may leave one level too many; it is taken from the largest entry.
        over = (levels.sum(dim=-1, keepdim=True) - self.levels).clamp_(min=0)
        top = levels.argmax(dim=-1, keepdim=True)
        return levels.scatter_add(-1, top, -over).sum(dim=0).to(outputs.device)

    def charge(self, setting: Setting) -> Charge:
        """Return the charge of one query."""
        changed, parts = setting.members_changed, setting.num_parts
        if self.noise == "gaussian":
            width = math.sqrt(2) if self.simplex else self.high - self.low
            return Concentrated(rho_of_gaussian(self._sigma * parts, changed * width))
        if self.simplex:
            return Pure(changed * (self.epsilon or 0.0))
        return DiscreteLaplace(self._scale, changed * self.levels)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return the noisy mean of each query in the units of the values.

        Double precision; on the host where the device has none.
        """
        self._require_table(table, setting)
        shape, device = tuple(table.shape), table.device
        if self.noise == "gaussian":
            drawn = in_double(uniforms.normal(shape, in_double(table).device))
            noise = (drawn * self._deviation(setting)).round_().to(torch.int64).to(device)
        else:
            noise = uniforms.laplace(self._scale, shape, device)
        whole = setting.num_parts * self.levels
        level = in_double((table + noise).clamp(0, whole))
        return (self.low + level * ((self.high - self.low) / whole)).clamp(self.low, self.high)

    def _require_table(self, table: Tensor, setting: Setting) -> None:
        width = (setting.num_outputs,) if self.simplex else ()
        if tuple(table.shape[1:]) != width or table.dim() < 1 or table.dtype != torch.int64:
            raise InvalidArgumentError(
                f"Expected a table {['queries', *width]} of whole numbers (int64), but got "
                f"{list(table.shape)} of {table.dtype}. Pass what `table` returned."
            )

    def value_shape(self, queries: int, setting: Setting) -> tuple[int, ...]:
        """Return one value per query, or one per class."""
        return (queries, setting.num_outputs) if self.simplex else (queries,)

    def identity(self) -> dict[str, Any]:
        """Return the name and parameters that the ledger stores with every charge."""
        return {**super().identity(), "resolution": self.levels}

    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law.

        A rounded Gaussian number is another integer only if its error crosses the middle between
        two: that happens with the probability of the error, in levels.
        """
        outputs = setting.num_outputs if self.simplex else 1
        if self.noise == "laplace":
            return outputs * batch_sampler_error(self._scale)
        return outputs * (self._deviation(setting) * (2.0**-50 + 20 * 2.0**-63) + 2.0**-62)

    @property
    def levels(self) -> int:
        """Levels of one member's value."""
        if self.resolution is not None:
            return self.resolution
        if self.noise == "laplace":
            return 2**16
        fine = 100 * (float(self.high) - float(self.low)) / self._sigma
        return min(2**24, max(2, 2 ** math.ceil(math.log2(fine))) if fine > 2 else 2)

    @property
    def _sigma(self) -> float:
        return float(self.sigma or 0.0)

    @property
    def _scale(self) -> float:
        """Scale of the Laplace noise, in levels."""
        return (2 if self.simplex else 1) * self.levels / (self.epsilon or 0.0)

    def _deviation(self, setting: Setting) -> float:
        """Return the deviation of the Gaussian noise, in levels of the sum."""
        width = self.high - self.low
        return self._sigma * setting.num_parts * self.levels / width
