"""Metrics of a module and of its callbacks, from which the holdout could be read raw."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import nn
from torchmetrics import Metric

from torch_holdout.training.metric import ReusableHoldoutMetric

_LONGEST = 1000  # how far a plain list or dictionary is searched


class MetricWatch:
    """Notices which metrics of a module and of its callbacks are updated.

    Example:
        >>> from torchmetrics import MeanMetric
        >>> module = nn.ModuleDict({"mean": MeanMetric()})
        >>> watch = MetricWatch([module])
        >>> module["mean"].update(0.5)
        >>> watch.touched()
        ['ModuleDict.mean']
    """

    def __init__(self, owners: list[Any]) -> None:
        self._metrics = _metrics_of(owners)
        self.count()

    def count(self) -> None:
        """Take the metrics as they are: what has been added so far is not the holdout."""
        self._counts = {name: metric.update_count for name, metric in self._metrics.items()}

    def touched(self) -> list[str]:
        """Name the metrics that were updated since they were counted."""
        return [n for n, m in self._metrics.items() if m.update_count > self._counts[n]]

    def reset(self, names: list[str]) -> None:
        """Empty some of them."""
        for name in names:
            self._metrics[name].reset()
        self.count()


def _metrics_of(owners: list[Any]) -> dict[str, Metric]:
    """Find the metrics that are not ours, each once, also in plain lists and dictionaries."""
    by_identity: dict[int, tuple[str, Metric]] = {}
    for owner in owners:
        places = {type(owner).__name__: owner} if isinstance(owner, nn.Module) else {}
        places |= {f"{type(owner).__name__}.{key}": value for key, value in vars(owner).items()}
        for place, value in places.items():
            for path, metric in _metrics_in(value, place):
                by_identity.setdefault(id(metric), (path, metric))
    return dict(by_identity.values())


def _metrics_in(value: Any, path: str, depth: int = 2) -> Iterator[tuple[str, Metric]]:
    if isinstance(value, nn.Module):
        for name, module in value.named_modules():
            if isinstance(module, Metric) and not isinstance(module, ReusableHoldoutMetric):
                yield f"{path}.{name}".rstrip("."), module
    elif isinstance(value, dict | list | tuple) and depth:
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in islice(parts, _LONGEST):
            yield from _metrics_in(part, f"{path}[{key!r}]", depth - 1)
