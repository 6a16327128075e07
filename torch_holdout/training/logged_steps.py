"""What a step logs under the names of ``LoggedMean`` statistics, taken before Lightning sees it."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, Metric
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy, MultilabelAccuracy

from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import HoldoutError, InvalidArgumentError, PartialPassError
from torch_holdout.statistics import LoggedMean, Statistic
from torch_holdout.statistics.logged_mean import is_one_number
from torch_holdout.training.first_look.places import calling_place
from torch_holdout.training.metric import ReusableHoldoutMetric

_FREE = "Nothing was charged."
_OTHERWISE = (
    "Return per-example values with HoldoutGuard(holdout, step=fn), or make it a th.Blockwise "
    "statistic."
)


@final
class LoggedStep:
    """One run of a step on one batch: its logged means, and its metrics while it runs.

    Every metric is emptied before the step and put back as it was after it. So a logged metric has
    the value of this batch alone, and none of them keeps anything of the holdout.

    Args:
        statistics: The holdout's; those that are no ``LoggedMean`` are returned by the step.
        metrics: The module's and the callbacks' metrics, by place.
        rows: How many examples the batch may have; None if the loader does not tell.
        batch_size: Called for Lightning's own idea of how many it has; None if it has none.
    """

    def __init__(
        self,
        statistics: Mapping[str, Statistic],
        metrics: Mapping[str, Metric],
        rows: range | None,
        batch_size: Callable[[], int | None],
    ) -> None:
        self._means = logged_means(statistics)
        self._all = len(self._means) == len(statistics)
        self._metrics = metrics if self._means else {}
        self._before: list[tuple[Metric, dict[str, Any]]] = []
        self._examples = rows
        self._batch_size = batch_size
        self._taken: dict[str, tuple[Tensor, int]] = {}
        self._sources: set[int] = set()

    def __enter__(self) -> "LoggedStep":
        for metric in self._metrics.values():
            # Resetting empties lists in place.
            kept = {k: list(v) if isinstance(v, list) else v for k, v in vars(metric).items()}
            self._before.append((metric, kept))
            Metric.reset(metric)
        return self

    def __exit__(self, *_: object) -> None:
        for metric, kept in self._before:
            vars(metric).clear()
            vars(metric).update(kept)
        self._before = []

    def takes(self, name: str) -> bool:
        """Whether a key belongs to the guard alone."""
        return name in self._means

    def take(self, name: str, value: Any, options: Mapping[str, Any]) -> None:
        """Take what is logged under a registered name; raise unless it is the mean of a batch."""
        statistic = self._means[name]
        if name in self._taken:
            raise InvalidArgumentError(
                f"Expected {name!r} to be logged once for each batch, but it was logged twice "
                f"({calling_place()}). Log one of them under another name. {_FREE}"
            )
        _require_mean(name, options.get("reduce_fx", "mean"))
        require_loggable_value(name, value)
        source = self._source_of(value)
        if source is not None:
            self._sources.add(id(source))
            _require_known_metric(name, source, statistic)
        if isinstance(value, Metric):
            value = self._value_of(name, value)
        number = value if isinstance(value, Tensor) else torch.tensor(float(value))
        if not is_one_number(number):
            raise not_a_number(name)
        size = self._size(name, options.get("batch_size"))
        self._taken[name] = (number.detach().reshape(()), size)

    def joined(self, output: Any, step: str) -> Any:
        """Return what the step returned with what it logged; raise if a name is missing."""
        missing = [name for name in self._means if name not in self._taken]
        if missing:
            raise InvalidArgumentError(
                f"Expected `{step}` to log {missing} for each batch, because they are registered "
                f"as th.LoggedMean, but it did not. What is logged at the end of the epoch is no "
                f"batch's mean: {_OTHERWISE} {_FREE}"
            )
        if self._means and self._all:
            return dict(self._taken)  # what the step returns is for nobody
        return {**output, **self._taken} if isinstance(output, Mapping) else output

    def others(self) -> list[str]:
        """Return the metrics that the step has updated and not logged under a registered name."""
        return [
            name
            for name, metric in self._metrics.items()
            if metric.update_count and id(metric) not in self._sources
        ]

    def _source_of(self, value: Any) -> Metric | None:
        """Return the metric that a value is, or is the batch value of."""
        if isinstance(value, Metric):
            return value
        found = (m for m in self._metrics.values() if m._forward_cache is value)
        return next(found, None) if isinstance(value, Tensor) else None

    def _value_of(self, name: str, metric: Metric) -> Any:
        if not any(metric is own for own in self._metrics.values()):
            raise InvalidArgumentError(
                f"Expected the metric that is logged as {name!r} to be an attribute of the module, "
                f"so that it can be emptied after each batch, but it is not. {_OTHERWISE} {_FREE}"
            )
        if not metric.update_count:
            raise InvalidArgumentError(
                f"Expected the metric that is logged as {name!r} to be updated in the same step, "
                f"but it was not. Update it there, before it is logged. {_FREE}"
            )
        metric._to_sync = False  # ranks are added up by the door
        return errors_by_type(
            metric.compute,
            lambda kind: HoldoutError(
                f"The metric that is logged as {name!r} could not be computed: {kind}. Its message "
                f"is withheld, because it may quote holdout data. {_FREE}"
            ),
        )

    def _size(self, name: str, given: Any) -> int:
        size = self._batch_size() if given is None else given
        rows = self._examples
        if size is None and rows is not None and len(rows) == 1:
            return rows[0]
        if isinstance(size, int) and size > 0 and (rows is None or size in rows):
            return int(size)
        raise PartialPassError(
            f"Expected {name!r} to be logged with the number of examples of its batch, but "
            f"{'what Lightning infers' if given is None else 'batch_size='} differs from "
            f"the loader's. Write self.log({name!r}, ..., batch_size=len(y)). {_FREE}"
        )


def require_whole_names(trainer: Any, statistics: Mapping[str, Statistic]) -> None:
    """Raise if a callback monitors a name that Lightning would make of one taken by the guard."""
    for callback in trainer.callbacks:
        monitor = str(getattr(callback, "monitor", ""))
        for name in logged_means(statistics):
            if monitor in (f"{name}_epoch", f"{name}_step"):
                raise InvalidArgumentError(
                    f"Expected {type(callback).__name__} to monitor {name!r}, under which the "
                    f"guard publishes, but it monitors {monitor!r}, which a module that logs with "
                    f"on_step=True has only without a guard. Write monitor={name!r}. {_FREE}"
                )


def logged_means(statistics: Mapping[str, Statistic]) -> dict[str, LoggedMean]:
    """Return the statistics that a module logs."""
    return {name: each for name, each in statistics.items() if isinstance(each, LoggedMean)}


def batch_size_of(results: Any, batch: Any) -> int | None:
    """Return how many examples Lightning takes a batch for; None if it cannot tell."""
    extract = getattr(sys.modules[type(results).__module__], "extract_batch_size", None)
    try:
        return None if extract is None else int(extract(batch))
    except Exception:  # whatever a batch of another kind does
        return None


def require_loggable_value(name: str, value: Any) -> None:
    """Raise unless a value is one number or a metric; Lightning's own error would quote it."""
    number = isinstance(value, int | float) or is_one_number(value)
    if not number and not isinstance(value, Metric):
        raise not_a_number(name)


def not_a_number(name: str) -> InvalidArgumentError:
    """Return the error for a logged value of another kind."""
    return InvalidArgumentError(
        f"Expected {name!r} to be logged as one number for each batch, its mean, but something "
        f"else was logged ({calling_place()}); it is not shown here. {_FREE}"
    )


def _require_mean(name: str, reduction: Any) -> None:
    word = reduction if isinstance(reduction, str) else getattr(reduction, "__name__", "")
    if reduction is not torch.mean and not (
        isinstance(reduction, str) and word.lower() in ("mean", "avg")
    ):
        raise InvalidArgumentError(
            f"Expected {name!r} to be logged as a mean over batches, because it is a "
            f"th.LoggedMean, but reduce_fx is {word or 'a function'!r}. {_OTHERWISE} {_FREE}"
        )


def _require_known_metric(name: str, metric: Metric, statistic: LoggedMean) -> None:
    if (problem := _problem_of(metric, statistic)) is not None:
        raise InvalidArgumentError(
            f"Expected a micro accuracy, MeanSquaredError, MeanAbsoluteError or MeanMetric to be "
            f"logged as {name!r}, whose value is the mean of its batches, but got {problem}. "
            f"{_OTHERWISE} {_FREE}"
        )


def _problem_of(metric: Metric, statistic: LoggedMean) -> str | None:
    """Return why a metric is not a mean over batches, in words; None if it is one."""
    kind = type(metric)
    accuracies = (BinaryAccuracy, MulticlassAccuracy)
    means = (*accuracies, MultilabelAccuracy, MeanSquaredError, MeanAbsoluteError, MeanMetric)
    if isinstance(metric, ReusableHoldoutMetric) or kind not in means:
        return kind.__name__
    if metric.dist_sync_on_step:
        return f"{kind.__name__}(dist_sync_on_step=True), which mixes the batches of ranks"
    average = getattr(metric, "average", "micro")
    if average != "micro":
        return f"{kind.__name__}(average={average!r})"
    others = {
        "ignore_index": None, "multidim_average": "global", "squared": True, "num_outputs": 1,
    }  # fmt: skip
    for option, allowed in others.items():
        if getattr(metric, option, allowed) != allowed:
            return f"{kind.__name__}({option}={getattr(metric, option)!r})"
    if statistic.kind == "zero_one" and kind not in accuracies:
        return f"{kind.__name__}, which does not count examples (kind='zero_one')"
    return None
