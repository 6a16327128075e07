"""Per-example values for statistics that need no function: losses and accuracies of a batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import EvalPrediction

from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics import Statistic
from torch_holdout.statistics.bounded_mean import CrossEntropy, ZeroOne
from torch_holdout.statistics.ratio import Ratio

IGNORED = -100  # how Hugging Face marks tokens without a label
_LOSSES, _ACCURACIES = ("loss", "eval_loss"), ("accuracy", "eval_accuracy")
_INSTEAD = (
    "Write a function of one batch, def values(p): return {name: one value for each example of "
    "p.predictions and p.label_ids}, and pass HoldoutTrainer(..., values=values)"
)


def require_known(statistics: Mapping[str, Statistic]) -> None:
    """Raise if a statistic's values cannot be computed without a function.

    Example:
        >>> import torch_holdout as th
        >>> require_known({"loss": th.BoundedMean(0, 5), "top_1": th.ZeroOne()})
        >>> require_known({"f1": th.BoundedMean(0, 1, mode="max")})
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected `values`, because nothing is known ...
    """
    unknown = [name for name, each in statistics.items() if _kind(name, each) is None]
    if unknown:
        raise InvalidArgumentError(
            f"Expected `values`, because nothing is known about how {unknown} are computed. "
            f"{_INSTEAD}. Without it there are values for statistics named 'loss' and 'accuracy', "
            f"th.CrossEntropy and th.ZeroOne. Nothing was charged."
        )


def default_values(
    statistics: Mapping[str, Statistic], prediction: EvalPrediction, *, shifts: bool | None
) -> dict[str, Any]:
    """Return the values of a batch: of classes, or of tokens averaged over each sequence.

    Args:
        statistics: The registered ones.
        prediction: Logits and labels of a batch. Labels of -100 count nowhere.
        shifts: Whether token i is the label of position i - 1, as in a causal language model; None
            if that is not known.

    Example:
        >>> import torch_holdout as th
        >>> p = EvalPrediction(torch.zeros(2, 3, 2), torch.tensor([[1, 0, -100], [1, 1, 1]]))
        >>> default_values({"loss": th.BoundedMean(0, 5)}, p, shifts=False)["loss"]
        tensor([0.6931, 0.6931])
    """
    logits, labels = _tensors(prediction)
    if logits.ndim == labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.flatten()
    if labels.is_floating_point() or logits.ndim != labels.ndim + 1 or labels.ndim not in (1, 2):
        raise InvalidArgumentError(
            f"Expected logits [B, C] with classes [B], or [B, T, C] with [B, T], but got "
            f"{counted(logits.ndim, 'dimension')} with {counted(labels.ndim, 'dimension')} "
            f"({labels.dtype}). {_advice(logits, labels)}. Nothing was charged."
        )
    if labels.ndim == 2 and shifts is None:
        raise InvalidArgumentError(
            f"Expected a model of a known kind, because its labels are of tokens, and whether they "
            f"belong to their own position or to the one before is not known. {_INSTEAD}. Nothing "
            f"was charged."
        )
    if labels.ndim == 2 and shifts:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return {name: _values(name, each, logits, labels) for name, each in statistics.items()}


def _advice(logits: Tensor, labels: Tensor) -> str:
    """Return what to write for logits and labels without values of their own."""
    if not labels.is_floating_point():
        return f"preprocess_logits_for_metrics has to leave the logits, or: {_INSTEAD}"
    if labels.ndim > 1:
        loss = "F.binary_cross_entropy_with_logits(p.predictions, p.label_ids, reduction='none')"
        return (
            f"Labels are numbers: for several labels of an example, pass HoldoutTrainer(..., "
            f"values=lambda p: {{'loss': {loss}.mean(1)}})"
        )
    return (
        "Labels are numbers: for a regression, pass HoldoutTrainer(..., values=lambda p: "
        "{'loss': (p.predictions.squeeze(-1) - p.label_ids) ** 2})"
    )


def _kind(name: str, statistic: Statistic) -> str | None:
    if isinstance(statistic, ZeroOne):
        return "accuracy"
    if isinstance(statistic, CrossEntropy):
        return "loss"
    if getattr(statistic, "per_example", None) is not None or statistic.needs_order:
        return None
    if name in _LOSSES:
        return "loss"
    return "accuracy" if name in _ACCURACIES else None


def _values(name: str, statistic: Statistic, logits: Tensor, labels: Tensor) -> Any:
    if labels.ndim == 1 and isinstance(statistic, ZeroOne | CrossEntropy):
        return logits, labels
    if isinstance(statistic, CrossEntropy) and statistic.reduce is not None:
        return (logits if statistic.class_dim == -1 else logits.transpose(1, 2)), labels
    if isinstance(statistic, ZeroOne | CrossEntropy):
        better = "BoundedMean(0.0, 1.0, mode='max')"
        if isinstance(statistic, CrossEntropy):
            better = f"CrossEntropy({statistic.high}, reduce='mean', class_dim=-1)"
        raise InvalidArgumentError(
            f"Expected one label for each example for {name!r} ({statistic!r}), but the labels "
            f"are of tokens. Register th.{better} under the name "
            f"{_kind(name, statistic)!r}, the mean over each sequence, or a th.Ratio, that over "
            f"all tokens; or write values=. Nothing was charged."
        )
    right = _losses(logits, labels) if _kind(name, statistic) == "loss" else _hits(logits, labels)
    if labels.ndim == 1 and not isinstance(statistic, Ratio):
        return right
    right, labels = (each.view(len(labels), -1) for each in (right, labels))
    counted_tokens = labels != IGNORED
    totals = torch.where(counted_tokens, right, 0.0).sum(1)
    tokens = counted_tokens.sum(1)
    if isinstance(statistic, Ratio):
        return totals, tokens
    return totals / tokens.clamp(min=1)  # a sequence without labels has a value of 0


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    classes = logits.shape[-1]
    flat = functional.cross_entropy(
        logits.float().reshape(-1, classes), labels.reshape(-1), reduction="none"
    )
    return flat.view(labels.shape)


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(-1) == labels).to(torch.float32)


def _tensors(prediction: EvalPrediction) -> tuple[Tensor, Tensor]:
    logits: Any = prediction.predictions
    if isinstance(logits, tuple | list) and logits:
        logits = logits[0]  # further outputs come after the logits
    labels: Any = prediction.label_ids
    for name, each, advice in (
        ("logits", logits, "Check prediction_step and preprocess_logits_for_metrics"),
        ("labels", labels, "Check label_names and remove_unused_columns of TrainingArguments"),
    ):
        if not isinstance(each, Tensor):
            raise InvalidArgumentError(
                f"Expected one tensor of {name} for each batch, but got {type(each).__name__}. "
                f"{advice}, or write values=. Nothing was charged."
            )
    return logits, labels
