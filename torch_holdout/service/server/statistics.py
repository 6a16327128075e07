"""The statistics that a board can be asked, by the names of ``board.toml``.

Each is a function of a row's prediction and its target, or of a block of rows, and total: whatever
an accepted upload holds, it gives numbers; what has no value counts as the worse bound.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_holdout.service.server.config import StatisticSection
from torch_holdout.service.server.uploads import Array
from torch_holdout.statistics import Blockwise, BoundedMean, Statistic, ZeroOne


def statistic(section: StatisticSection) -> Statistic:
    """Return the statistic of a section of ``board.toml``.

    Example:
        >>> statistic(StatisticSection(kind="accuracy")).mode
        'max'
    """
    if section.kind == "accuracy":
        return ZeroOne()
    if section.kind == "cross_entropy":
        return BoundedMean(0.0, _given(section.high))
    if section.kind == "mse":
        return BoundedMean(_given(section.low), _given(section.high))
    metric = macro_f1 if section.kind == "f1_macro" else auroc
    return Blockwise(metric, int(_given(section.blocks)), 0.0, 1.0, mode="max")


def arguments(section: StatisticSection, predictions: Array, target: Array) -> Any:
    """Return what the statistic's ``update`` takes, for some rows' predictions and targets.

    Example:
        >>> section = StatisticSection(kind="accuracy")
        >>> arguments(section, np.array([1, 2]), np.array([1, 0]))
        tensor([ True, False])
    """
    if section.kind == "accuracy":
        return torch.from_numpy(_as_classes(predictions) == target)
    if section.kind == "cross_entropy":
        return torch.from_numpy(cross_entropy(predictions, target))
    if section.kind == "mse":
        with np.errstate(over="ignore"):
            return torch.from_numpy((predictions.astype(np.float64) - target) ** 2)
    own = _as_classes(predictions) if section.kind == "f1_macro" else predictions
    kind = np.int64 if section.kind == "f1_macro" else np.float64
    return torch.from_numpy(own.astype(kind)), torch.from_numpy(target)


def described(statistics: Mapping[str, StatisticSection]) -> dict[str, dict[str, Any]]:
    """Return the public facts of statistics: bounds, which direction is better, kind, blocks.

    Example:
        >>> described({"accuracy": StatisticSection(kind="accuracy")})
        {'accuracy': {'low': 0.0, 'high': 1.0, 'mode': 'max', 'kind': 'accuracy'}}
    """
    return {name: _facts(section) for name, section in statistics.items()}


def _facts(section: StatisticSection) -> dict[str, Any]:
    made = statistic(section)
    facts = {"low": made.low, "high": made.high, "mode": made.mode, "kind": section.kind}
    return facts if section.blocks is None else facts | {"blocks": section.blocks}


def cross_entropy(probabilities: Array, target: Array) -> Array:
    """Return minus the logarithm of each target's probability; infinite for probability 0.

    Example:
        >>> cross_entropy(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 0])).round(4).tolist()
        [0.6931, -0.0]
    """
    own = probabilities[np.arange(len(target)), target].astype(np.float64)
    sums = probabilities.sum(axis=1, dtype=np.float64)
    with np.errstate(divide="ignore"):
        losses: Array = -np.log(own / sums)
    return losses


def macro_f1(predictions: Tensor, target: Tensor) -> Tensor:
    """Return the mean F1 of the classes that are predicted or present in a block.

    Example:
        >>> macro_f1(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])).item()
        0.6666666666666666
    """
    classes = 1 + max(int(predictions.max()), int(target.max()))
    right = predictions[predictions == target]
    hits, said, present = (
        torch.bincount(own, minlength=classes).double() for own in (right, predictions, target)
    )
    seen = (said + present) > 0
    return (2 * hits[seen] / (said + present)[seen]).mean()


def auroc(scores: Tensor, target: Tensor) -> Tensor:
    """Return the chance that a positive row's score is above a negative one's; ties count half.

    A block of one class has none: NaN, which counts as the worse bound.

    Example:
        >>> auroc(torch.tensor([0.1, 0.9, 0.9]), torch.tensor([0, 1, 0])).item()
        0.75
    """
    _, inverse, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[inverse]
    positive = target == 1
    above, below = positive.sum().double(), (~positive).sum().double()
    pairs_won: Tensor = ranks[positive].sum() - above * (above + 1) / 2
    return pairs_won / (above * below)


def _as_classes(predictions: Array) -> Array:
    return predictions if predictions.ndim == 1 else predictions.argmax(axis=1)


def _given(value: float | None) -> float:
    if value is None:
        raise ValueError("expected a parameter that the configuration requires")
    return value
