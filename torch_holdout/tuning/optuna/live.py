"""A trial of a study on a holdout that answers with values: it tells the study the answers."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, final

from torch_holdout._shared.checks import require_flag, require_instance, require_whole
from torch_holdout._shared.configurations import plain
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError, PartialPassError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.training.metric import take_problem
from torch_holdout.tuning.claims import points_here
from torch_holdout.tuning.optuna.studies import GUESSED, end, optuna, prune, require_trial, stop
from torch_holdout.tuning.reporting import (
    asked_twice,
    one_statistic,
    reporting_callback,
    require_sanity_check,
    require_shared,
    tells_the_value,
    told_value,
)


def listed_statistics(
    holdout: ReusableHoldout, statistic: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Return the statistics a study is about: one, or one for each objective."""
    statistic = plain(statistic)
    if isinstance(statistic, list | tuple) and statistic:
        return tuple(one_statistic(holdout, name) for name in statistic)
    return (one_statistic(holdout, statistic if isinstance(statistic, str) else None),)


def require_directions(study: optuna.Study, holdout: ReusableHoldout, names: Sequence[str]) -> None:
    """Raise unless a study searches in the direction that is better for its statistics."""
    wanted = [f"{holdout.statistics[name].mode}imize" for name in names]
    directions = [direction.name.lower() for direction in study.directions]
    if directions != wanted:
        one = len(wanted) == 1
        option = f"direction={wanted[0]!r}" if one else f"directions={wanted}"
        better = [holdout.statistics[name].mode for name in names]
        raise InvalidArgumentError(
            f"Expected a study with direction {wanted[0] if one else wanted!r}, because better is "
            f"{better[0] if one else better} for {names[0] if one else list(names)!r}, but it has "
            f"{directions}. Use optuna.create_study({option})."
        )


@final
class SharedTrial:
    """The trial inside ``sharing``: tells the study the trial's answers.

    Example:
        >>> import torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> with sharing(optuna.create_study(direction="maximize").ask(), holdout) as shared:
        ...     shared
        SharedTrial(trial=0, statistic='val_acc')
    """

    def __init__(
        self,
        trial: optuna.Trial,
        holdout: ReusableHoldout,
        statistic: str | Sequence[str],
        *,
        every: bool = False,
    ) -> None:
        require_trial(trial)
        require_instance("holdout", holdout, ReusableHoldout)
        require_flag("every", every)
        self._trial = trial
        self._holdout = holdout
        self._statistics = listed_statistics(holdout, statistic)
        self._every = every
        self._account = holdout.account
        self._values: dict[str, float] = {}
        self._released: set[str] = set()  # statistics of which a release was told
        self._asked: dict[str, int | None] = {}  # where the one question is in the ledger
        self._step = -1

    @property
    def value(self) -> float:
        """The value the trial was last told; without one the trial is pruned, and says why.

        Never a stale one. It is what the sampler learns from; what may be claimed of the study is
        ``claim(study, holdout)``. If a pass of the trial was not the whole holdout, that is raised.
        """
        return self.values[0]

    @property
    def values(self) -> list[float]:
        """The values of all objectives, as ``value``."""
        if set(self._values) != set(self._statistics):
            self._end_without_value()
        return [self._values[name] for name in self._statistics]

    def pruning(self, guard: Any) -> Any:
        """Return a callback that reports each answer of a ``HoldoutGuard`` and prunes by it.

        It belongs to the guard's own Lightning package and takes the place of Optuna's
        ``PyTorchLightningPruningCallback``. It reports validations of ``trainer.fit`` and of
        ``trainer.validate``. One process per trial: DDP is refused.
        """
        require_shared(guard, self._holdout)

        def tell(trainer: Any) -> None:
            # The epoch, unless there are several validations in one.
            step = max(trainer.current_epoch, self._step + 1)
            self.report({name: guard.answers[name] for name in self._statistics}, step)

        return reporting_callback("HoldoutPruning", guard, tell, every=self._every)

    def report(self, answer: Answer | Mapping[str, Answer | None] | None, step: int) -> None:
        """Tell the study an answer, e.g. ``metric.answer`` in a plain loop; prune if it says so.

        Args:
            answer: From ``ReusableHoldoutMetric`` or ``holdout.release``; with several objectives
                by statistic. None is ignored in a Trainer's sanity check only.
            step: How far the trial is, comparable between trials.

        Raises:
            optuna.TrialPruned: If the pruner says so, with ``every=True``, or the answer is stale.
            PartialPassError: If there is no answer, with the reason.
            InvalidArgumentError: If it answers a second question, without ``every=True``.
        """
        answers = answer if isinstance(answer, Mapping) else {self._statistics[0]: answer}
        for name, each in answers.items():
            if each is None:
                require_sanity_check(name)
                return
            require_instance("answer", each, Answer)
            if name not in self._statistics:
                raise InvalidArgumentError(
                    f"Expected answers about {list(self._statistics)}, which the study is about, "
                    f"but got one about {name!r}."
                )
        require_whole("step", step, 0, 2**62)
        self._step = int(step)
        for name, each in answers.items():
            if each is not None:
                self._tell(name, each, self._step)

    def _tell(self, name: str, answer: Answer, step: int) -> None:
        holdout, trial = self._holdout, self._trial
        if points_here(answer, holdout, name):
            # A pointer only: the value is read from the ledger.
            key = f"torch_holdout:{name}:{answer.position}"
            mark = {"trial": trial.number, "step": step, "account": self._account}
            trial.set_user_attr(key, mark)
        value = told_value(holdout, name, answer)
        if answer.kind == "exhausted" or value is None:
            end(trial, holdout, f" Its value at step {step} is stale: not reported.")
        if answer.budget_left == 0:
            stop(trial.study)
        self._require_once(name, answer)
        if tells_the_value(holdout.mechanism, answer):
            self._released.add(name)
            self._learn(name, value, step)
            # A trial that asks once has ended with its answer: nothing is saved by pruning it.
            if self._every and len(self._statistics) == 1 and trial.should_prune():
                kind = "released value" if answer.is_release else "guess near the holdout's value"
                prune(trial, f"Pruned at step {step} by the study's pruner, which read a {kind}.")
            return
        trial.set_user_attr(
            GUESSED,
            f"At step {step} the holdout said only that {name} is not better than the best so far "
            f"by more than a step: told to the study as one step worse than the best.",
        )
        if name not in self._released:  # the trial's own release says more
            self._learn(name, value, step)

    def _learn(self, name: str, value: float, step: int) -> None:
        self._values[name] = value
        if len(self._statistics) == 1:  # Optuna prunes by one objective only
            self._trial.report(value, step)

    def _require_once(self, name: str, answer: Answer) -> None:
        if not self._every and self._asked.setdefault(name, answer.position) != answer.position:
            raise asked_twice(self._holdout, name, "trial")

    def _end_without_value(self) -> NoReturn:
        if problem := take_problem():
            raise PartialPassError(problem)
        reason = (
            "The holdout published no value for this trial: it ended before its first validation, "
            "or nothing was reported (shared.pruning(guard), or shared.report(metric.answer, step))"
        )
        warnings.warn(f"Trial {self._trial.number}: {reason}.", HoldoutWarning, stacklevel=4)
        prune(self._trial, f"Pruned: {reason}.")

    def __repr__(self) -> str:
        named = self._statistics[0] if len(self._statistics) == 1 else self._statistics
        return f"SharedTrial(trial={self._trial.number}, statistic={named!r})"
