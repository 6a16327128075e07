"""The public facts of a stable model: its objective, and how far one record moves its scores."""

import math
from dataclasses import dataclass
from typing import Any, final

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.stable.losses import StableLoss, stable_loss

CHUNK = 8192  # records whose gradients are added up in one product
_UNIT = 2.0**-52  # twice the unit of rounding in double precision
_MOST_NUMBERS = 2**40  # records times features: scores are then right to a part of a level
_RELATIVE_TOLERANCE = 1e-3


@final
@dataclass(frozen=True, kw_only=True)
class StableProblem:
    r"""Minimise :math:`\frac1n\sum_i \ell(Wx_i, y_i) + \frac\lambda2\|W\|^2` over linear scores.

    Features are cut to norm B. All of it is public and fixed before the records are looked at: the
    number of records too.

    Guarantee:
        Let :math:`\ell` be L-Lipschitz in the scores and the full gradient at W and at W' at most
        tau, each on its own data set of n records, and let the sets differ in one record. The
        objective is lambda-strongly convex and one record's gradient is at most LB, so

        .. math:: \lambda\|W - W'\| \le \|\nabla F(W) - \nabla F(W')\|
            \le 2\tau + \tfrac{2LB}{n}, \qquad
            \|Wx - W'x\| \le \gamma = \tfrac{2B}{\lambda}\left(\tfrac{LB}{n} + \tau\right)

        for every x of norm B at most. With B = L = 1 and exact minimisers this is the
        :math:`2/(\lambda n)` of Dwork and Feldman 2018 and Shalev-Shwartz et al. 2010. The proof
        does not care how W was found.

    Attributes:
        size: How many records there are.
        regularisation: Lambda. The noise is proportional to 1/lambda.
        loss: ``"logistic"``, ``"smooth-hinge"``, ``"softmax"`` or ``"huber"``.
        num_outputs: How many scores: 1, or one per class for ``"softmax"``.
        feature_bound: B.
        gradient_tolerance: Tau; None for LB/(1000 n), which makes the noise 0.1 % larger.

    Example:
        >>> problem = StableProblem(size=40_000, regularisation=0.01, loss="logistic")
        >>> round(problem.stability, 6), problem.tolerance
        (0.005005, 2.5e-08)
    """

    size: int
    regularisation: float
    loss: str
    num_outputs: int = 1
    feature_bound: float = 1.0
    gradient_tolerance: float | None = None

    def __post_init__(self) -> None:
        require_whole("size", self.size, 1, 10**10)
        require_between("regularisation", self.regularisation, 1e-12, 1e6)
        require_between("feature_bound", self.feature_bound, 1e-6, 1e6)
        if self.gradient_tolerance is not None:
            require_between("gradient_tolerance", self.gradient_tolerance, 1e-15, 1e6)
        single = stable_loss(self.loss).single
        if not single:
            require_whole("num_outputs", self.num_outputs, 2, 2**16)
        elif self.num_outputs != 1:
            raise InvalidArgumentError(
                f"Expected `num_outputs` to be 1 for the loss {self.loss!r}, but got "
                f"{self.num_outputs!r}. Take 'softmax' for more than two classes."
            )

    @property
    def formula(self) -> StableLoss:
        """The loss and its constants."""
        return stable_loss(self.loss)

    @property
    def record_gradient(self) -> float:
        """LB, the largest gradient of one record's loss in W."""
        return self.formula.lipschitz * self.feature_bound

    @property
    def tolerance(self) -> float:
        """Tau."""
        if self.gradient_tolerance is not None:
            return self.gradient_tolerance
        return _RELATIVE_TOLERANCE * self.record_gradient / self.size

    @property
    def weight_stability(self) -> float:
        """How far one record moves the weights, in Frobenius norm."""
        return 2 * (self.record_gradient / self.size + self.tolerance) / self.regularisation

    @property
    def stability(self) -> float:
        """Gamma: how far one record moves the scores of any query, in Euclidean norm."""
        return self.feature_bound * self.weight_stability

    @property
    def score_bound(self) -> float:
        """Largest norm of any scores: at a gradient of tau, lambda |W| is at most LB + tau."""
        largest = (self.record_gradient + self.tolerance) / self.regularisation
        return self.feature_bound * largest

    @property
    def condition(self) -> float:
        """Smoothness of the objective over its strong convexity."""
        return 1 + self.formula.smoothness * self.feature_bound**2 / self.regularisation

    @property
    def sufficient_steps(self) -> int:
        r"""How many accelerated gradient steps reach three quarters of tau, whatever the records.

        From any point no worse than W = 0, which is at most :math:`(LB)^2/(2\lambda)` above the
        minimum: :math:`\sqrt\kappa\,\ln(4\kappa(LB/\tau)^2)` (Nesterov 2004, Theorem 2.2.3).
        """
        ratio = self.record_gradient / self.tolerance
        logarithm = math.log(4 * self.condition) + 2 * math.log(max(ratio, 1.0))
        return math.ceil(math.sqrt(self.condition) * logarithm)

    def rounding(self, num_features: int) -> float:
        """Bound the rounding error of a gradient computed in double precision, by public facts."""
        adding = (CHUNK + self.size / CHUNK + 64) * (self.record_gradient + self.tolerance)
        slopes = self.formula.smoothness * (num_features + 64) * self.score_bound
        return _UNIT * (adding + slopes * self.feature_bound)

    def require_features(self, num_features: int) -> None:
        """Raise if double precision cannot certify the tolerance; no record is looked at."""
        require_whole("num_features", num_features, 1, max(1, _MOST_NUMBERS // self.size))
        smallest = 4 * self.rounding(num_features)
        if self.tolerance < smallest:
            raise InvalidArgumentError(
                f"Expected `gradient_tolerance` to be {smallest:.3g} or more, which double "
                f"precision can certify here, but got {self.tolerance:.3g}. Raise it, or raise "
                f"`regularisation`."
            )

    def identity(self) -> dict[str, Any]:
        """Return the public facts that a ledger and a checkpoint store."""
        return {
            "kind": "stable-model",
            "size": int(self.size),
            "regularisation": float(self.regularisation),
            "loss": self.loss,
            "num_outputs": int(self.num_outputs),
            "feature_bound": float(self.feature_bound),
            "gradient_tolerance": float(self.tolerance),
        }
