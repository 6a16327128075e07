"""Noise on the scores of one stable model."""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import batch_sampler_error
from torch_holdout._shared.checks import (
    require_between,
    require_choice,
    require_instance,
    require_whole,
    shown,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting import Charge, Concentrated, Pure, rho_for, rho_of_gaussian
from torch_holdout.bounds.regulariser import convex_regulariser
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import PredictionMechanism, Setting, Voters
from torch_holdout.prediction.stable.losses import stable_loss
from torch_holdout.prediction.stable.problem import StableProblem

Noise = Literal["laplace", "gaussian"]

_FINENESS = 128  # levels of the stability, per root of the number of scores
_MARGIN = 1 + 2.0**-10  # levels are wider by this: scores are computed in double precision
_LARGEST_LEVEL = 2**52
_SHARE = 1 - 1e-4  # of a budget; the rest is for accounts that round every charge up
_NORMAL_ERROR = 2.0**-49  # of a rounded normal number, per level of its scale


@final
@dataclass(frozen=True, kw_only=True)
class StableERM(PredictionMechanism):
    r"""Answer with the noisy scores of a model that one record can hardly move.

    Scores are rounded to levels of a public width, integer noise is added, and the label is that of
    the largest score (of the sign, for one score). Train with ``fit_stable_model(records,
    mechanism.problem)``. Both the noise and, once lambda is large, the scores are proportional to
    1/lambda: for labels a large lambda costs little, a small one drowns them.

    Guarantee:
        Replacing one of n records moves the K scores of any query by at most
        :math:`\gamma = \frac{2B}{\lambda}(\frac{LB}{n} + \tau)` (see ``StableProblem``), so their m
        levels of width :math:`\gamma/m` by :math:`m + \sqrt K` in Euclidean norm and by
        :math:`m\sqrt K + K` in sum. Integer Laplace noise of scale :math:`(m\sqrt K + K)/
        \varepsilon` is epsilon-private per query (Dwork and Feldman 2018, Theorem 4). Normal noise
        costs :math:`\rho = (m + \sqrt K)^2/(2s^2)` at a standard deviation of s levels, also after
        rounding. Only for a model certified for the same problem: ``require_voters`` checks it.

    Args:
        problem: What the model minimises; public.
        epsilon: Laplace noise, each query epsilon-private. Or:
        sigma: Normal noise of this standard deviation on each score.
        answers: ``"labels"`` (int64) or ``"values"``, the noisy scores [B, K] (float64).

    Example:
        >>> problem = StableProblem(size=40_000, regularisation=0.01, loss="logistic")
        >>> StableERM(problem=problem, epsilon=0.1).noise
        'laplace'
        >>> setting = Setting(num_parts=1, num_outputs=1)
        >>> StableERM(problem=problem, epsilon=0.1).charge(setting)
        Pure(epsilon=0.1, count=1)
        >>> round(StableERM(problem=problem, sigma=0.5).charge(setting).rho * 1e5, 2)
        5.1
    """

    kind: ClassVar[str] = "stable-erm"

    problem: StableProblem
    epsilon: float | None = None
    sigma: float | None = None
    # The base declares it per class; here the problem decides.
    answers: Literal["labels", "values"] = "labels"  # type: ignore[misc]

    def __post_init__(self) -> None:
        require_instance("problem", self.problem, StableProblem)
        require_choice("answers", self.answers, ("labels", "values"))
        if (self.epsilon is None) == (self.sigma is None):
            raise InvalidArgumentError(
                f"Expected one of `epsilon` (Laplace noise) and `sigma` (normal noise), but got "
                f"epsilon={shown(self.epsilon)} and sigma={shown(self.sigma)}."
            )
        if self.answers == "labels" and not self.problem.formula.classes:
            raise InvalidArgumentError(
                f"Expected `answers` to be 'values' for the loss {self.problem.loss!r}, but got "
                f"'labels'."
            )
        if self.epsilon is not None:
            require_between("epsilon", self.epsilon, 1e-9, 1e3)
        if self.sigma is not None:
            moved = self.problem.stability
            require_between("sigma", self.sigma, 1e-3 * moved, 1e9 * moved)
        self._require_room()

    @classmethod
    @formula
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float | None,
        queries: int,
        size: int,
        loss: str,
        noise: Noise = "gaussian",
        regularisation: float | None = None,
        radius: float = 1.0,
        num_outputs: int = 1,
        feature_bound: float = 1.0,
        gradient_tolerance: float | None = None,
        answers: Literal["labels", "values"] = "labels",
    ) -> "StableERM":
        r"""Return the mechanism of which ``queries`` answers cost (epsilon, delta) in all.

        Without a delta, epsilons add up; with one, rhos do, so that queries may be chosen along the
        way. What the sampler's error adds to delta is the account's to count.

        Lambda, if it is not given, is that of Corollary 3 (``bounds.convex_regulariser``) for
        weights of norm ``radius`` and the epsilon of a single query. The corollary adds
        :math:`\lambda\|w\|^2` and this problem :math:`\frac\lambda2\|W\|^2`: its price,
        which is for one score, holds for both. It is meant to be large.

        Example:
            >>> mechanism = StableERM.for_budget(
            ...     epsilon=2.0, delta=1e-5, queries=1000, size=40_000, loss="logistic"
            ... )
            >>> round(mechanism.problem.regularisation, 3), round(mechanism.sigma, 3)
            (0.083, 0.041)
        """
        require_between("epsilon", epsilon, 0, 1e3, ends=False)
        require_whole("queries", queries, 1, 2**40)
        require_choice("noise", noise, ("laplace", "gaussian"))
        each = _epsilon_each(epsilon, delta, queries, noise)
        if regularisation is None:
            regularisation = convex_regulariser(
                lipschitz=feature_bound,
                loss_lipschitz=stable_loss(loss).lipschitz,
                radius=radius,
                units=size,
                epsilon=each,
            )
        problem = StableProblem(
            size=size,
            regularisation=regularisation,
            loss=loss,
            num_outputs=num_outputs,
            feature_bound=feature_bound,
            gradient_tolerance=gradient_tolerance,
        )
        if noise == "laplace":
            return cls(problem=problem, epsilon=each, answers=answers)
        sigma = _moved(problem) * _width(problem) / each
        return cls(problem=problem, sigma=sigma, answers=answers)

    @property
    def noise(self) -> Noise:
        """Which noise is added."""
        return "gaussian" if self.epsilon is None else "laplace"

    @property
    def scale(self) -> float:
        """Scale of the integer Laplace noise, or standard deviation of the normal, in levels."""
        if self.epsilon is not None:
            return _moved_in_sum(self.problem) / self.epsilon
        return (self.sigma or 0.0) / _width(self.problem)  # one of the two was given

    def require_voters(self, voters: Voters) -> None:
        """Raise unless the model is a stable model that was trained for this problem."""
        identity = voters.identity()
        if identity != self.problem.identity():
            stable = identity.get("kind") == self.problem.identity()["kind"]
            raise HoldoutMismatchError(
                f"Expected a model of {self.problem.identity()}, but got "
                f"{f'one of {identity}' if stable else type(voters).__name__}. Its noise would not "
                f"protect that model's records: build it with `model.problem`."
            )

    def total_table(self, voters: Voters, inputs: Any) -> Tensor:
        """Return the levels of the model's scores. Raw."""
        self.require_voters(voters)  # again: it may have got another problem since
        return super().total_table(voters, inputs)

    def table(self, outputs: Tensor) -> Tensor:
        """Return the levels [B, K] of the scores [1, B, K]; a score that is not a number is 0."""
        expected = (1, self.problem.num_outputs)
        if outputs.ndim != 3 or (outputs.shape[0], outputs.shape[2]) != expected:
            raise InvalidArgumentError(
                f"Expected the scores of one model, [1, B, {self.problem.num_outputs}], but got "
                f"{list(outputs.shape)}."
            )
        bound = self.problem.score_bound
        scores = outputs[0].to(torch.float64).nan_to_num(nan=0.0).clamp(-bound, bound)
        return (scores / _width(self.problem)).round().to(torch.int64)

    def charge(self, setting: Setting) -> Charge:
        """Return the charge of one query, whatever the answer."""
        self._require_setting(setting)
        if self.epsilon is not None:
            return Pure(float(self.epsilon))
        return Concentrated(rho_of_gaussian(self.scale, _moved(self.problem)))

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return noisy labels [B], or noisy scores [B, K]."""
        self._require_setting(setting)
        noisy = table + self._draw(tuple(table.shape), table.device, uniforms)
        if self.answers == "values":
            return noisy.to(torch.float64) * _width(self.problem)
        if self.problem.num_outputs == 1:
            return (noisy[:, 0] > 0).to(torch.int64)
        return noisy.argmax(dim=1)

    def value_shape(self, queries: int, setting: Setting) -> tuple[int, ...]:
        """Return the shape of the scores of some queries."""
        return (queries, self.problem.num_outputs)

    def identity(self) -> dict[str, Any]:
        """Return the name and parameters that the ledger stores with every charge."""
        return {
            "kind": self.kind,
            "problem": self.problem.identity(),
            "noise": self.noise,
            "scale": self.scale,
            "answers": self.answers,
        }

    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law.

        Normal numbers are inverted in double precision, to within 7 units of rounding of the
        probability beyond them, times their square; summed over the levels that is below 2^-49
        per level of the standard deviation.
        """
        self._require_setting(setting)
        each = batch_sampler_error(self.scale)
        if self.noise == "gaussian":
            each = _NORMAL_ERROR * (1 + self.scale)
        return self.problem.num_outputs * each

    def _draw(self, shape: tuple[int, ...], device: torch.device, uniforms: Uniforms) -> Tensor:
        if self.noise == "laplace":
            return uniforms.laplace(self.scale, shape, device)
        # Levels are whole, so rounding the noise is rounding the noisy levels.
        return (uniforms.normal(shape, device) * self.scale).round().to(torch.int64)

    def _require_setting(self, setting: Setting) -> None:
        expected = Setting(num_parts=1, num_outputs=self.problem.num_outputs)
        if setting != expected:
            raise InvalidArgumentError(
                f"Expected one model with {self.problem.num_outputs} outputs, one of which "
                f"changes, but got {asdict(setting)}. Give the predictor a `StableModel`."
            )

    def _require_room(self) -> None:
        levels = self.problem.score_bound / _width(self.problem)
        if levels + 300 * self.scale > _LARGEST_LEVEL:
            raise InvalidArgumentError(
                f"Expected scores and noise within {_LARGEST_LEVEL} levels, but the noise has a "
                f"scale of {self.scale:.3g} and scores reach {levels:.3g}. Ask fewer queries or "
                f"spend more epsilon."
            )


def _fineness(problem: StableProblem) -> int:
    # m, the number of levels in one stability
    return _FINENESS * math.isqrt(problem.num_outputs - 1) + _FINENESS


def _width(problem: StableProblem) -> float:
    return problem.stability * _MARGIN / _fineness(problem)


def _moved(problem: StableProblem) -> float:
    """Return how far one record moves the levels in Euclidean norm; rounding moves each by 1."""
    return _fineness(problem) + math.sqrt(problem.num_outputs)


def _moved_in_sum(problem: StableProblem) -> int:
    outputs = problem.num_outputs
    return math.ceil(_fineness(problem) * math.sqrt(outputs)) + outputs


def _epsilon_each(epsilon: float, delta: float | None, queries: int, noise: Noise) -> float:
    """Return the epsilon of one query; for normal noise, that with the same rho."""
    added = _SHARE * epsilon / queries
    if delta is None:
        if noise == "gaussian":
            raise InvalidArgumentError(
                "Expected a `delta` for normal noise, but got None. Take noise='laplace' for a "
                "pure epsilon."
            )
        return added
    concentrated = _SHARE * math.sqrt(2 * rho_for(epsilon, delta) / queries)
    return max(added, concentrated) if noise == "laplace" else concentrated
