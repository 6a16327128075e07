"""A LightningModule during a guarded run: its step and ``log`` replaced, its metrics watched."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn
from torchmetrics import Metric

from torch_holdout._shared.tracebacks import with_empty_frames
from torch_holdout.errors import InvalidArgumentError, UnguardedLogError
from torch_holdout.training.metric import ReusableHoldoutMetric

_LONGEST = 1000  # how far a plain list or dictionary is searched
_LIGHTNING = ("lightning", "pytorch_lightning", "torch_holdout")
_ABSENT = object()
Step = Callable[..., Any]


class Interception:
    """Wraps a module's step and batch hooks, and traps everything that is logged.

    All ways to log end in Lightning's results, so those are trapped. ``module.log`` and Lightning's
    checks of the value are trapped too: their errors would quote it.

    Args:
        module: The LightningModule.
        callbacks: The Trainer's other callbacks; Lightning gave each a ``log`` of its own.
        results: The result collections of the Trainer's loops.
        step: Name of the wrapped method, ``validation_step`` or ``test_step``.
        on_step: Called as ``on_step(original, args, kwargs)`` instead of the step.
        datamodule: The run's, if it has one; it may have hooks that get the batch too.
        on_hook: Called instead of a hook that gets the batch, with the original, its arguments,
            where ``batch`` and ``loader`` are among them, whether the result is ``used``, and
            ``what`` it is called.
        on_log: Called with the key and the value before anything is logged; false drops it.
        on_take: Called before that with the key, the value and the other arguments; if it returns
            true, the value went to a guard and to nobody else.
    """

    def __init__(
        self,
        module: Any,
        callbacks: list[Any],
        *,
        results: list[Any],
        step: str,
        on_step: Callable[[Step, tuple[Any, ...], dict[str, Any]], Any],
        datamodule: Any,
        on_hook: Callable[..., Any],
        on_log: Callable[[str, Any], bool],
        on_take: Callable[[str, Any, dict[str, Any]], bool],
    ) -> None:
        if isinstance(vars(module).get(step), _Replacement):
            raise InvalidArgumentError(
                f"Expected a module that no other guarded run uses, but {type(module).__name__} is "
                f"in one that has not ended. Start this run after it, or with a copy of the "
                f"module. Nothing was charged."
            )
        self._saved: list[tuple[Any, str, Any]] = []
        self._open = False
        self._heard: Callable[[str, bool], None] | None = None
        self._on_log = on_log
        self._on_take = on_take
        self._log: Step = module.log
        self._replace(module, step, module, on_step)
        self._hook_wrapper = partial(self._wrap_hooks, step.removesuffix("_step"), on_hook)
        for owner in (module, *callbacks):
            self._replace(owner, "log", module, self._trapped_log)
        self.wrap_hooks([module, *callbacks, datamodule])
        for check in ("to_tensor", "check_allowed", "check_not_nested"):
            name = f"_LightningModule__{check}"
            if hasattr(module, name):
                self._replace(module, name, module, self._trapped_check)
        for collection in results:
            self._replace(collection, "log", collection, self._trapped_result)

    def wrap_hooks(self, owners: list[Any]) -> None:
        """Wrap the hooks that get a batch, of those who came since the last time too."""
        for owner in owners:
            if owner is not None:
                self._hook_wrapper(owner)

    def skip(self, owner: Any, hook: str, skips: Callable[[tuple[Any, ...]], bool]) -> bool:
        """Leave a hook of the user's out where ``skips(arguments)``; return if there is one."""
        original = getattr(owner, hook, None)
        if original is None or not _is_users(original):
            return False
        self._replace(owner, hook, owner, partial(_unless, skips))
        return True

    def stand_in(self, owner: Any, step: str) -> None:
        """Let Lightning see a step that takes a batch, its number and its loader's.

        For a module that has no step, or one of another signature, if none of its own is called.
        """
        functools.update_wrapper(vars(owner)[step], _any_step)

    def log(self, name: str, value: Any, **options: Any) -> None:
        """Log a guarded value, past the trap."""
        with self.opened():
            self._log(name, value, **options)

    @contextlib.contextmanager
    def opened(self, heard: Callable[[str, bool], None] | None = None) -> Iterator[None]:
        """Let everything be logged: guarded values, or while public data is evaluated.

        ``heard`` is told each key of the module's, and whether its loader's number is added.
        """
        before, self._open, self._heard = self._open, True, heard
        try:
            yield
        finally:
            self._open, self._heard = before, None

    def restore(self) -> None:
        """Put everything back as it was."""
        while self._saved:
            owner, name, before = self._saved.pop()
            if before is _ABSENT:
                vars(owner).pop(name, None)
            else:
                vars(owner)[name] = before

    def _trapped_log(self, original: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name, value = _named(args, kwargs)
        if self._open and self._heard is not None:
            self._heard(name, bool(kwargs.get("add_dataloader_idx", True)))
        if not self._open and self._on_take(name, value, _options(args, kwargs)):
            return
        if self._open or self._on_log(name, value):
            self._log(*args, **kwargs)

    def _trapped_check(self, original: Step, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Refuse before Lightning looks at the value; a dropped one is replaced."""
        value, name = args[0], next((part for part in args[1:] if isinstance(part, str)), "")
        if self._open or isinstance(value, Metric) or self._on_log(name, value):
            return original(*args, **kwargs)
        return torch.zeros(())

    def _trapped_result(self, original: Step, args: tuple[Any, ...], kwargs: Any) -> None:
        name, value = _named(args[1:], kwargs)  # the hook's name is the first
        if not self._open and self._on_take(name, value, kwargs):
            return
        if self._open or self._on_log(name, value):
            original(*args, **kwargs)

    def _wrap_hooks(self, stage: str, on_hook: Callable[..., Any], owner: Any) -> None:
        """Wrap those hooks that get a batch and are not Lightning's own."""
        # Where the batch and the loader's number are; callbacks get Trainer and module first.
        first = 0 if hasattr(owner, "on_after_batch_transfer") else 2
        for hook, batch, loader, used in (
            (f"on_{stage}_batch_start", first, first + 2, False),
            (f"on_{stage}_batch_end", first + 1, first + 3, False),
            ("on_before_batch_transfer", 0, 1, True),
            ("transfer_batch_to_device", 0, 2, True),
            ("on_after_batch_transfer", 0, 1, True),
        ):
            original = getattr(owner, hook, None)
            if original is None or isinstance(original, _Replacement):
                continue
            if _is_users(original):
                what = f"{type(owner).__name__}.{hook}"
                facts = {"batch": batch, "loader": loader, "used": used, "what": what}
                self._replace(owner, hook, owner, partial(_with_facts, on_hook, facts))

    def _replace(self, owner: Any, name: str, origin: Any, function: Callable[..., Any]) -> None:
        self._saved.append((owner, name, vars(owner).get(name, _ABSENT)))
        # Past the class's own rules about attributes.
        vars(owner)[name] = _Replacement(origin, name, function)


def _is_users(method: Any) -> bool:
    """Whether a hook is not Lightning's own empty one."""
    home = str(getattr(getattr(method, "__func__", method), "__module__", ""))
    return home.split(".")[0] not in _LIGHTNING


def _unless(
    skips: Callable[[tuple[Any, ...]], bool],
    original: Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    return None if skips(args) else original(*args, **kwargs)


def _any_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    """Stand for a step whose place a guard's ``step=`` takes."""


def _with_facts(
    on_hook: Callable[..., Any],
    facts: dict[str, Any],
    original: Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if len(args) <= facts["batch"]:  # the user's own call, by keyword
        return original(*args, **kwargs)
    return on_hook(functools.partial(original, **kwargs), args, **facts)


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """Return the key and the value of a call of ``log(name, value, ...)``."""
    given = dict(zip(("name", "value"), args, strict=False)) | kwargs
    return str(given.get("name", "")), given.get("value")


_LOG_ARGUMENTS = (  # of ``LightningModule.log``, in order
    "name", "value", "prog_bar", "logger", "on_step", "on_epoch", "reduce_fx", "enable_graph",
    "sync_dist", "sync_dist_group", "add_dataloader_idx", "batch_size",
)  # fmt: skip


def _options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of ``log`` by name."""
    return dict(zip(_LOG_ARGUMENTS, args, strict=False)) | kwargs


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

    def __init__(self, owners: list[Any], public: Sequence[str] = ()) -> None:
        named = _metrics_of(owners)
        self.metrics = {n: m for n, m in named.items() if n.rpartition(".")[2] not in public}
        self.count()

    def count(self) -> None:
        """Accept all updates so far: they were not made with holdout data."""
        self._counts = {name: metric.update_count for name, metric in self.metrics.items()}

    def touched(self) -> list[str]:
        """Return the names of the metrics that were updated since they were counted."""
        touched = []
        for name, metric in self.metrics.items():
            if metric.update_count < self._counts[name]:
                self._counts[name] = 0  # it was reset since
            if metric.update_count > self._counts[name]:
                touched.append(name)
        return touched

    def refuse(
        self, *, drop: bool, warn: Callable[[str], None], touched: list[str] | None = None
    ) -> None:
        """Raise if metrics were updated, or reset them and warn: they could be read raw.

        ``touched`` are those that were found already, and put back.
        """
        emptied = touched is not None
        touched = self.touched() if touched is None else touched
        if not touched:
            return
        if not drop:
            raise UnguardedLogError(
                f"Expected no other metric to be updated on the holdout, but these were: "
                f"{touched}. Register them as statistics of the holdout, define a `holdout_step` "
                f"(or HoldoutGuard(..., step=fn)) that leaves them alone, or pass "
                f"unguarded='drop'."
            )
        for name in () if emptied else touched:
            self.metrics[name].reset()
        self.count()
        warn(f"metrics {touched} were reset after each batch of the holdout")


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

    def __init__(self, origin: Any, name: str, function: Callable[..., Any]) -> None:
        original = getattr(origin, name)
        # Lightning looks at the signature through __wrapped__. First: what is replaced may be
        # another replacement, whose own attributes are copied.
        functools.update_wrapper(self, original)
        self._origin = origin
        self._name = name
        self._function = function
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = [args, kwargs]
        del args, kwargs  # an error's traceback shows this frame
        return with_empty_frames(
            lambda: self._function(self._original, kwargs=call.pop(), args=call.pop())
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Step:
        return _method(memo.get(id(self._origin), self._origin), self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _method, (self._origin, self._name)


def _method(origin: Any, name: str) -> Step:
    method: Step = inspect.getattr_static(type(origin), name).__get__(origin, type(origin))
    return method
