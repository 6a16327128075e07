"""``ReusableHoldoutMetric``: a torchmetrics metric whose value is an answer of the holdout."""

import math
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Literal, NoReturn, final

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.wrappers import BootStrapper

from torch_holdout._fingerprints.weights import WeightsFingerprint, weights_fingerprint
from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.checks import require_choice, require_instance
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutError,
    HoldoutWarning,
    PartialPassError,
)
from torch_holdout.holdout.protocol import Accumulator, Door, require_door
from torch_holdout.holdout.queries import require_eval
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.run import Run
from torch_holdout.training.first_look.marking import Look, is_marked
from torch_holdout.training.requirements import budget_spent, require_run

_FRAMES_TO_LOOK_AT = 8
_TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
_RESULTS = tuple(
    f"{package}.trainer.connectors.logger_connector.result"
    for package in ("lightning.pytorch", "pytorch_lightning")
)
_last_pass = threading.local()


@final
class ReusableHoldoutMetric(Metric):
    """Accumulate per-example values; ``compute`` asks the holdout, once per full pass.

    Works in a plain loop, through ``self.log(name, metric)`` and ``log_dict``, in a
    ``MetricCollection``, under clone, deepcopy, pickle, distributed evaluation and any precision.
    It has no torchmetrics state: ``state_dict`` is empty, metrics never share it, ``forward``
    returns None. A pass that is not the whole holdout computes NaN and charges nothing, with a
    warning that says why; silently only in the sanity check of a Lightning Trainer, which is never
    charged. ``metric.answer`` is None then, and ``metric.problem`` the reason. In a process group
    every rank must compute.

    Args:
        holdout: The account.
        name: Which of its statistics.
        model: The module the values come from; its weights name the query, so asking twice about
            the same weights is free. Without it every ``reset``..``compute`` is a new query.
        version: Whatever else decides the values (preprocessing, decoding, ...).
        on_exhausted: ``"raise"``, or ``"freeze"`` to repeat this metric's last answer (marked by
            ``metric.answer.kind == "exhausted"``, with a warning; NaN if there was none).
        run: For a sealed holdout, the run (``holdout.run(...)``) that its passes belong to; metrics
            of one model share it. ``compute()`` returns NaN then, ``metric.answer.kind`` is
            ``"sealed"``, and ``metric.stop`` says whether the run has stopped.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Thresholdout(threshold=0.1, sigma=0.0, guess="last"), budget=2)
        >>> metric = th.ReusableHoldoutMetric(holdout, "val_acc")
        >>> metric.update(torch.tensor([1, 0, 2, 2]), torch.tensor([1, 0, 2, 1]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
        >>> metric.answer
        Answer(value=0.75, kind='release', budget_left=1, source='release')
    """

    full_state_update = False
    is_differentiable = False
    problem: str | None = None
    stop = False  # whether the run of a sealed holdout has stopped
    _run: Run | None = None
    _last = float("nan")  # the last value that was answered
    _torn = False  # copied in the middle of a pass

    def __init__(
        self,
        holdout: Door,
        name: str,
        *,
        model: nn.Module | None = None,
        version: str = "",
        on_exhausted: Literal["raise", "freeze"] = "raise",
        run: Run | None = None,
    ) -> None:
        super().__init__(sync_on_compute=False)
        require_door("holdout", holdout)
        require_instance("version", version, str)
        require_choice("on_exhausted", on_exhausted, ("raise", "freeze"))
        if model is not None:
            require_instance("model", model, nn.Module)
        holdout.accumulator(name)  # raises for an unknown statistic
        require_run(holdout, run)
        self._run = run
        self.holdout = holdout
        self.statistic_name = name
        self.version = version
        self.on_exhausted = on_exhausted
        self.answer: Answer | None = None
        self._model = ModelReference(model)
        self._start_pass()

    def _start_pass(self) -> None:
        self._sums: Accumulator | None = None
        self._guess: Accumulator | None = None
        self._seen_weights: WeightsFingerprint | None = None
        self._cycle = fresh_secret(16).hex()
        self._resampled = False
        self._asked = False
        self._passed = float("nan")
        self._torn = False

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether the statistic is to be maximised."""
        return self.holdout.statistics[self.statistic_name].mode == "max"

    def update(self, *values: Any, **named: Any) -> None:
        """Add a batch: per-example values, or what the statistic's own function takes."""
        if Look.aside or is_marked((values, named)):  # a look, whose values are not used
            return
        if self._seen_weights is None and self._model.target is not None:
            self._seen_weights = self._look_at(self._model.target)
        if self._sums is None:
            # Once a pass: BootStrapper updates copies of its own, from their first batch on.
            self._resampled = _inside_bootstrap()
            self._sums = self._new_sums()
        self._asked = False
        self._sums.update(*values, **named)

    def update_train(self, *values: Any, **named: Any) -> None:
        """Add a batch of training examples, for a mechanism that compares with them."""
        if self._guess is None:
            # No rank drops padding here: the guess is public and need not be exact.
            self._guess = self.holdout.accumulator(self.statistic_name, role="guess")
        self._guess.update(*values, **named)

    def compute(self) -> Tensor:
        """Return the holdout's answer as a float64 tensor; ask at most once per pass."""
        if not self._asked:
            self._passed = self._ask()
            self._asked = True
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.tensor(self._passed, dtype=dtype, device=self.device)

    @without_frames
    def forward(self, *values: Any, **named: Any) -> None:
        """Update and return None: a single batch has no value."""
        self.update(*values, **named)

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        # Around torchmetrics' own wrapper, whose frame has the batch too.
        return without_frames(super()._wrap_update(update))

    # nn.Module's frames have the batch as well.
    __call__ = without_frames(Metric.__call__)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the released value, or the values given."""
        return self._plot(val, ax)

    def reset(self) -> None:
        """Forget the pass. Nothing is refunded."""
        super().reset()
        self._start_pass()

    def merge_state(self, incoming_state: Any) -> NoReturn:
        """Raise always: two partial sums of a holdout are not a pass."""
        raise HoldoutError(
            "Expected every pass to be accumulated by one metric; sealed sums cannot be merged. "
            "Update one ReusableHoldoutMetric with the whole holdout."
        )

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_sums", "_guess", "_seen_weights", "_cycle")
        state = {key: v for key, v in super().__getstate__().items() if key not in hidden}
        return state | {"_torn": self._torn or (self._sums is not None and not self._asked)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        asked, passed = state["_asked"], state["_passed"]
        super().__setstate__(state)
        self._start_pass()
        self._asked, self._passed = asked, passed  # an answer that has left may be shown again
        self._torn = state.get("_torn", False)
        if "_last" not in state and self.answer is not None:  # a pickle of an older version
            self._last = self.answer.value

    def _new_sums(self) -> Accumulator:
        # Not made with the metric: the process group may come later.
        rank, world = rank_and_world()
        return self.holdout.accumulator(self.statistic_name, rank=rank, world=world)

    def _look_at(self, model: nn.Module) -> WeightsFingerprint:
        require_eval(model)
        return weights_fingerprint(model, self.version)

    def _query(self) -> str | WeightsFingerprint:
        if self._model.target is None or self._seen_weights is None:
            # A forked process has its own passes, but the parent's cycle.
            return f"{self.version}|{self._cycle}|{os.getpid()}"
        return self._seen_weights.confirmed_by(self._look_at(self._model.target))

    def _ask(self) -> float:
        self.answer, self.problem = None, None
        if sanity_checking() or _sanity_checking(self._model.target):
            return float("nan")
        if self._resampled:
            return self._unanswered(
                "A bootstrap sample is not the holdout: an example drawn twice would count twice. "
                "Nothing was released or charged. Bootstrap unguarded metrics only."
            )
        try:
            answer = self._answered(self._sums or self._new_sums())
        except PartialPassError as error:
            torn = " This metric was copied or unpickled in the middle of a pass, whose sums are "
            torn += "never copied: call reset() and go over the whole holdout."
            return self._unanswered(f"{error}{torn if self._torn else ''}")
        if answer.kind == "exhausted":
            return self._exhausted(answer)
        self.answer, self._last = answer, answer.value
        _last_pass.problem = None
        return answer.value

    def _answered(self, sums: Accumulator) -> Answer:
        name, query = self.statistic_name, self._query()
        if self._run is None:
            return self.holdout.release(name, sums, query=query, guess=self._guess)
        if _logged_by_lightning():
            raise HoldoutError(
                f"Expected {name!r} of a sealed holdout not to be logged: it has no value, and the "
                f"NaN would stop EarlyStopping. Instead of self.log(name, metric) write, in "
                f"on_validation_epoch_end:\n"
                f"+    metric.compute(); self.trainer.should_stop |= metric.stop; metric.reset()\n"
                f"Nothing was evaluated."
            )
        self.stop = self._run.evaluate({name: sums}, query=query).stop
        return Answer(math.nan, "sealed", self.holdout.budget_left, statistic=name)

    def _unanswered(self, problem: str) -> float:
        """Warn why a pass got no answer, and keep the reason for callbacks that miss the answer."""
        self.problem = problem
        _last_pass.problem = problem
        warnings.warn(f"{problem} Computed NaN.", HoldoutWarning, stacklevel=5)
        return float("nan")

    def _exhausted(self, answer: Answer) -> float:
        self.problem = f"{budget_spent(self.holdout)}; {self.statistic_name!r} was not answered."
        if self.on_exhausted == "raise":
            raise BudgetExhaustedError(
                f"{self.problem} Stop here and report, pass on_exhausted='freeze' to repeat the "
                f"last answer, or bring a fresh holdout."
            )
        self.answer = Answer(self._last, "exhausted", answer.budget_left, None)
        warnings.warn(
            f"{self.problem} Its last answer is repeated; it is stale and certifies nothing.",
            HoldoutWarning,
            stacklevel=5,
        )
        return self._last


@final
class ModelReference:
    """Holds a module without registering it; follows a deepcopy that also copies the module."""

    def __init__(self, target: nn.Module | None, copied: dict[int, Any] | None = None) -> None:
        self._target = target
        self._copied = copied

    @property
    def target(self) -> nn.Module | None:
        """The module, or its copy: the module may be copied after the metric that refers to it."""
        if self._copied is not None:
            self._target = self._copied.get(id(self._target), self._target)
            self._copied = None
        return self._target

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelReference":
        return ModelReference(self.target, memo)

    def __getstate__(self) -> dict[str, Any]:
        return {"_target": self.target, "_copied": None}

    def __repr__(self) -> str:
        return f"<reference to {type(self.target).__name__}>"


def take_problem() -> str | None:
    """Return why this thread's last unanswered pass got no answer, once."""
    problem: str | None = vars(_last_pass).pop("problem", None)
    return problem


def sanity_checking() -> bool:
    """Whether this is called in the sanity check of a Lightning Trainer, of either package.

    Such a check may cover the whole holdout, and a metric in a helper has no Trainer to ask.
    """
    return any(
        code.co_name == "_run_sanity_check" and module in _TRAINERS for code, module in _callers()
    )


def _sanity_checking(model: nn.Module | None) -> bool:
    """Whether a Trainer runs this very model for its sanity check, in whatever thread."""
    return bool(getattr(getattr(model, "_trainer", None), "sanity_checking", False))


def _logged_by_lightning() -> bool:
    """Whether Lightning computes the metric to log it."""
    return any(module in _RESULTS for _, module in _callers())


def _inside_bootstrap() -> bool:
    """Whether torchmetrics' BootStrapper is calling, whose samples repeat examples."""
    near = islice(_callers(), _FRAMES_TO_LOOK_AT)
    return any(code is BootStrapper.update.__code__ for code, _ in near)


def _callers() -> Iterator[tuple[CodeType, str]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code, str(frame.f_globals.get("__name__"))
        frame = frame.f_back
