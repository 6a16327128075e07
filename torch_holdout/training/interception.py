"""A LightningModule during a guarded run: its step and ``log`` replaced, its metrics watched."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch import nn
from torchmetrics import Metric

from torch_holdout._shared.tracebacks import shed
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.training.metric import ReusableHoldoutMetric

_LONGEST = 1000  # how far a plain list or dictionary is searched
_ABSENT = object()
Step = Callable[..., Any]


class Interception:
    """Wraps a module's step and traps ``self.log``, of the module and of every other callback.

    Args:
        module: The LightningModule.
        callbacks: The Trainer's other callbacks; Lightning gave each a ``log`` of its own.
        step: Name of the wrapped method, ``validation_step`` or ``test_step``.
        on_step: Called as ``on_step(original, args, kwargs)`` instead of the step.
        on_log: Called with the key and the value before anything is logged; false drops it.
    """

    def __init__(
        self,
        module: Any,
        callbacks: list[Any],
        *,
        step: str,
        on_step: Callable[[Step, tuple[Any, ...], dict[str, Any]], Any],
        on_log: Callable[[str, Any], bool],
    ) -> None:
        if isinstance(vars(module).get(step), _Replacement):
            raise InvalidArgumentError(
                f"Expected a module that no other guarded run uses, but {type(module).__name__} is "
                f"in one that has not ended. Start this run after it, or with a copy of the "
                f"module. Nothing was charged."
            )
        self._saved: list[tuple[Any, str, Any]] = []
        self._open = False
        original_step: Step = getattr(module, step)
        self.log: Step = module.log

        def wrapped_step(*args: Any, **kwargs: Any) -> Any:
            return on_step(original_step, args, kwargs)

        def trapped_log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            if self._open or on_log(name, value):
                self.log(name, value, *args, **kwargs)

        trap = _Replacement(module, "log", trapped_log)
        self._replace(module, step, _Replacement(module, step, wrapped_step))
        for owner in (module, *callbacks):
            self._replace(owner, "log", trap)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Let everything be logged, while data that is declared public is evaluated."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def restore(self) -> None:
        """Put everything back as it was."""
        while self._saved:
            owner, name, before = self._saved.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _replace(self, owner: Any, name: str, replacement: Step) -> None:
        self._saved.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, replacement)


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
        """Accept all updates so far: they were not made with holdout data."""
        self._counts = {name: metric.update_count for name, metric in self._metrics.items()}

    def touched(self) -> list[str]:
        """Return the names of the metrics that were updated since they were counted."""
        return [n for n, m in self._metrics.items() if m.update_count > self._counts[n]]

    def reset(self, names: list[str]) -> None:
        """Reset the named metrics."""
        for name in names:
            self._metrics[name].reset()
        self.count()


def _metrics_of(owners: list[Any]) -> dict[str, Metric]:
    """Return the metrics that are not ours, each once, also from lists and dictionaries."""
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


class _Replacement:
    """A method put on an instance. Copies of the instance get their own plain method back."""

    def __init__(self, module: nn.Module, name: str, function: Step) -> None:
        self._module = module
        self._name = name
        self._function = function
        # Lightning looks at the signature through __wrapped__.
        functools.update_wrapper(self, getattr(module, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        except BaseException as error:
            raised = shed(error)  # some loggers print what frames hold
        del args, kwargs
        raise raised

    def __deepcopy__(self, memo: dict[int, Any]) -> Step:
        return _method(memo.get(id(self._module), self._module), self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _method, (self._module, self._name)


def _method(module: nn.Module, name: str) -> Step:
    return types.MethodType(getattr(type(module), name), module)
