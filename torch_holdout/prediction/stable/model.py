"""One strongly convex linear model: stable enough that noise on its scores protects a record."""

import warnings
from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from torch_holdout._fingerprints.hashing import UnknownContentError, digest
from torch_holdout._shared.checks import require_instance, require_length, require_whole
from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import Voters
from torch_holdout.prediction.neighbours import Neighbours
from torch_holdout.prediction.stable.fit import minimise
from torch_holdout.prediction.stable.problem import StableProblem

Records = Dataset[Any] | tuple[Tensor, Tensor]


@final
class StableModel(nn.Module, Voters):
    r"""Linear scores :math:`x \mapsto Wx` of features cut to a norm; made by ``fit_stable_model``.

    There is no bias: append a constant feature, which then counts in the norm. Averaging several
    such models would not be more stable than one of all records, so there is one.

    Its weights and scores are private, and so is a checkpoint of it. Only what a mechanism such as
    ``StableERM`` makes of them may leave.

    Guarantee:
        See ``StableProblem``: replacing one record moves the scores of any query by at most
        ``problem.stability``. The gradient was checked, not assumed, to be within the tolerance.

    Example:
        >>> problem = StableProblem(size=4, regularisation=0.5, loss="logistic")
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [-1.0, 1.0]])
        >>> model = fit_stable_model((x, torch.tensor([1, 1, 0, 0])), problem)
        >>> isinstance(model, StableModel), model.num_outputs, str(model.neighbours)
        (True, 1, 'replacing one record (one member changes)')
        >>> [tuple(scores.shape) for scores in model.output_chunks(x)]
        [(1, 4, 1)]
    """

    def __init__(self, problem: StableProblem, num_features: int) -> None:
        super().__init__()
        require_instance("problem", problem, StableProblem)
        problem.require_features(num_features)
        self.problem = problem
        self.num_outputs: int | None = problem.num_outputs
        self._certificate: str | None = None  # a digest of the certified weights and their problem
        self._loaded: list[Any] = []  # the weights of a state while it is loaded
        self.weights = _frozen(torch.zeros((problem.num_outputs, num_features)).double())

    @property
    def num_parts(self) -> int:
        """The number of models: one, of all records."""
        return 1

    @property
    def neighbours(self) -> Neighbours:
        """The protected change: one record is replaced by any other."""
        return Neighbours(relation="replace-one", unit="record")

    def identity(self) -> dict[str, Any]:
        """Return the public facts of the objective, and nothing of the weights."""
        return self.problem.identity()

    @property
    def certified(self) -> bool:
        """Whether the weights are, bit for bit, those that were certified for this problem."""
        return self._certificate is not None and self._certificate == self._digest()

    def forward(self, x: Tensor) -> Tensor:
        """Return the raw scores [B, K] of queries [B, ...]; they are private."""
        features = self._features(x)
        return features @ self.weights.T

    def public_outputs(self, inputs: Tensor) -> Tensor:
        """Return the scores of weights that are all zero; it raises if the queries are wrong."""
        features = self._features(inputs)
        return features @ torch.zeros_like(self.weights).T

    def output_chunks(self, inputs: Tensor) -> Iterator[Tensor]:
        """Yield the raw scores [1, B, K] of the one member, without gradients."""
        with torch.no_grad():
            scores = self.forward(inputs)  # not called: a hook's scores are not certified
        yield scores[None]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the problem and the certificate; a state that holds weights is secret anyway."""
        certificate = self._certificate if self.certified else None
        return {
            "problem": self.identity(),
            "certified": certificate is not None,
            "certificate": certificate,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raise unless the weights, which are loaded by now, are those that were certified."""
        self._certificate = None
        if state["problem"] != self.identity():
            raise HoldoutMismatchError(
                f"Expected weights of {self.identity()}, but got weights of {state['problem']}. "
                f"Build the model with the problem they were trained for."
            )
        if not state["certified"]:
            return
        if "certificate" not in state:
            self._certify_on_trust(self._loaded)
        elif state["certificate"] == self._digest():
            self._certificate = state["certificate"]
        else:
            raise HoldoutMismatchError(
                "Expected the weights that were certified, bit for bit in double precision, but "
                "got others: the state was converted, edited or loaded in part. Load the state as "
                "`state_dict()` returned it. The model is not certified and answers nothing."
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.__dict__.pop("_certified", None) is not None:  # a pickle of version 0.1.0
            self._certificate = None
            if state["_certified"]:
                self._certify_on_trust([self.weights])

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self._loaded = [state_dict[key] for key in (f"{prefix}weights",) if key in state_dict]
        try:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        finally:
            self._loaded = []

    def _certify_on_trust(self, loaded: list[Any]) -> None:
        """Certify what version 0.1.0 saved: it kept no digest, only that there is a certificate."""
        if not loaded or loaded[0].dtype != torch.float64 or not self._holds(loaded[0]):
            raise HoldoutMismatchError(
                "Expected certified weights in double precision, but the state has none. Load the "
                "state as `state_dict()` returned it. The model is not certified and answers "
                "nothing."
            )
        self._certificate = self._digest()
        warnings.warn(
            "These weights were saved by version 0.1.0, which kept no digest of them: that nobody "
            "changed them since they were certified is taken on trust. Save them again.",
            HoldoutWarning,
            stacklevel=2,
        )

    def _holds(self, weights: Tensor) -> bool:
        return torch.equal(self.weights.detach().cpu(), weights.detach().cpu())

    def _digest(self) -> str:
        try:
            return digest([self.problem.identity(), self.weights.detach()]).hex()
        except UnknownContentError:  # no dense weights any more
            return ""

    def _features(self, x: Tensor) -> Tensor:
        """Return the queries' features, cut; raise if they, or this model's weights, are wrong."""
        if not self.certified:
            raise InvalidArgumentError(
                "Expected certified weights, but this model's are not certified: it was not "
                "trained, or its weights have been changed since (edited, converted, or loaded in "
                "part). Make it with `fit_stable_model`, or load the whole state of one that was. "
                "Nothing was charged."
            )
        features = cut_features(x, self.problem.feature_bound).to(self.weights.device)
        if features.shape[1] != self.weights.shape[1]:
            raise InvalidArgumentError(
                f"Expected queries of {self.weights.shape[1]} features, but got "
                f"{features.shape[1]}. Nothing was charged."
            )
        return features

    def _apply(self, fn: Any, recurse: bool = True) -> "StableModel":
        """Move the weights and keep their precision: rounding them would undo the certificate."""
        weights = self.weights.data
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.weights.dtype != torch.float64:
            self.weights = _frozen(weights.to(self.weights.device))
        return self


def fit_stable_model(
    train_set: Records, problem: StableProblem, *, max_iterations: int = 100_000
) -> StableModel:
    """Train on all records, until the gradient is certified to be within the tolerance.

    A record whose norm or target is not a finite number counts as a record of zeros, silently: an
    error would tell that there is one. That classes are numbered from 0 is taken to be public.
    How long it takes depends on the records; do not publish it.

    Args:
        train_set: ``(x, y)`` or a dataset of such pairs; ``x`` is flattened and cut to
            ``problem.feature_bound``. Scale features by public numbers only.
        problem: What to minimise; its ``size`` is the number of records.
        max_iterations: Most steps that may be needed by any records; more is refused at once.

    Example:
        >>> problem = StableProblem(size=3, regularisation=0.1, loss="huber")
        >>> data = (torch.tensor([[0.2], [0.5], [1.0]]), torch.tensor([0.4, 1.0, 2.0]))
        >>> fit_stable_model(data, problem).num_outputs
        1
    """
    require_instance("problem", problem, StableProblem)
    require_whole("max_iterations", max_iterations, 1, 10**9)
    x, y = _tensors(train_set, problem.size)
    features = cut_features(x, problem.feature_bound)
    targets = y.reshape(-1).to(features.device)
    if problem.formula.classes:
        targets = _labels(targets, problem)
    else:
        features, targets = _finite(features, targets)
    model = StableModel(problem, features.shape[1])
    with torch.no_grad():
        model.weights = _frozen(minimise(problem, features, targets, max_iterations))
    model._certificate = model._digest()
    return model.eval()


def cut_features(x: Tensor, bound: float) -> Tensor:
    """Return [B, d] in double precision, each row of norm ``bound`` at most.

    A row whose norm is not a finite number becomes zero.

    Example:
        >>> rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("nan"), 1.0]])
        >>> cut_features(rows, 1.0).norm(dim=1).tolist()
        [1.0, 0.5..., 0.0]
    """
    require_instance("x", x, Tensor)
    plain = x.layout == torch.strided and not x.is_nested and not x.is_quantized and not x.is_meta
    if x.ndim < 2 or x.is_complex() or not plain:
        raise InvalidArgumentError(
            f"Expected real features [B, d], but got {x.dtype} {list(x.shape)}. Add a dimension "
            f"to a single record or a single feature."
        )
    device = x.device if x.device.type in ("cpu", "cuda") else torch.device("cpu")
    rows = x.detach().flatten(1).to(device).to(torch.float64)
    norms = rows.norm(dim=1, keepdim=True)
    usable = norms.isfinite()
    factors = torch.where(usable, bound / norms.clamp(min=bound), 0.0)
    return torch.where(usable, rows, 0.0) * factors


def _frozen(weights: Tensor) -> nn.Parameter:
    return nn.Parameter(weights, requires_grad=False)


def _tensors(train_set: Records, size: int) -> tuple[Tensor, Tensor]:
    if isinstance(train_set, tuple):
        if len(train_set) != 2:
            raise InvalidArgumentError("Expected `train_set` to be a pair of features and targets.")
        x, y = train_set
        require_instance("x", x, Tensor)
        require_instance("y", y, Tensor)
        _require_size(size, x.shape[0] if x.ndim else 0, y.numel())
        return x, y
    count = require_length("train_set", train_set)
    _require_size(size, count, count)
    pairs = [train_set[index] for index in range(count)]
    features = [torch.as_tensor(x).to(torch.float64).flatten() for x, _ in pairs]
    return torch.stack(features), torch.stack([torch.as_tensor(y).reshape(()) for _, y in pairs])


def _require_size(expected: int, records: int, targets: int) -> None:
    if (records, targets) != (expected, expected):
        raise InvalidArgumentError(
            f"Expected {expected} records, each with one target, but got {records} with {targets} "
            f"targets. Set the problem's `size` to the number of records."
        )


def _labels(targets: Tensor, problem: StableProblem) -> Tensor:
    classes = max(2, problem.num_outputs)
    if targets.is_floating_point() or targets.is_complex():
        raise InvalidArgumentError(
            f"Expected labels to be whole numbers, but got {targets.dtype}. Convert them, or take "
            f"the loss 'huber' for real targets."
        )
    labels = targets.to(torch.int64)
    if bool(((labels < 0) | (labels >= classes)).any()):
        raise InvalidArgumentError(
            f"Expected every label to be from 0 to {classes - 1}, but at least one is not. Number "
            f"the classes from 0."
        )
    return labels


def _finite(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    values = targets.to(torch.float64)
    usable = values.isfinite()
    return torch.where(usable[:, None], features, 0.0), torch.where(usable, values, 0.0)
