"""What a sealed run refuses in a Trainer, each with the line to write instead.

Values stay hidden until closing, so nothing may decide by them but the guard itself; and once the
run has stopped, no evaluation may follow.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch_holdout._shared.checks import require_instance, shown
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.holdout.protocol import Door
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.mechanisms import Patience
from torch_holdout.training.runs import add_note

EVALUATIONS_IN_BAR = "sealed"
_TUNERS = ("LearningRateFinder", "BatchSizeFinder")
_AVERAGES = ("StochasticWeightAveraging", "WeightAveraging")
_FREE = "Nothing was charged."


class Words(NamedTuple):
    """How the training loop is called that a sealed run belongs to; the default is Lightning's."""

    fit: str = "trainer.fit(...)"
    resume: str = "trainer.fit(..., ckpt_path=...)"
    validate: str = "trainer.validate()"
    keep: str = "HoldoutGuard(..., keep=folder)"
    anew: str = (
        "load them (net = Net.load_from_checkpoint(...)) and call trainer.fit(net, ...) without "
        "ckpt_path"
    )


LIGHTNING = Words()


def require_sealed_arguments(
    holdout: Door,
    *,
    stop: Patience | None,
    keep: Any,
    restore: bool,
    stage: str,
    on_exhausted: str,
) -> None:
    """Raise unless a guard's arguments fit its holdout: one that is sealed, or shows values."""
    require_instance("restore", restore, bool)
    if stop is not None:
        require_instance("stop", stop, Patience)
    if stop is not None and stop.statistic not in holdout.statistics:
        raise InvalidArgumentError(
            f"Expected stop= to name one of the statistics {list(holdout.statistics)}, but got "
            f"{shown(stop.statistic)}. Write stop=th.Patience({next(iter(holdout.statistics))!r}, "
            f"patience={stop.patience})."
        )
    if holdout.mechanism.shows_values:  # a planned holdout is attached to its account here
        if stop is not None or keep is not None:
            what = "stop" if stop is not None else "keep"
            raise InvalidArgumentError(
                f"Expected {what}= for a sealed holdout only, but {holdout.name!r} answers with "
                f"values, which EarlyStopping and ModelCheckpoint read as usual. Leave it out, or "
                f"make the holdout with mechanism=th.Sealed(evaluations=...)."
            )
        return
    if stage != "validate":
        raise InvalidArgumentError(
            f"Expected stage='validate', because a sealed holdout is evaluated in the run of a "
            f"fit, but got {stage!r}. For one final number write `with holdout.run() as run: "
            f"run.evaluate({{name: sums}}, query=...)` and holdout.close()."
        )
    if on_exhausted != "stop":
        raise InvalidArgumentError(
            f"Expected on_exhausted to be left out, because a sealed holdout has no answer to "
            f"repeat: a fit is refused before it begins when no run is left. Got {on_exhausted!r}."
        )
    if EVALUATIONS_IN_BAR in holdout.statistics:
        raise InvalidArgumentError(
            f"Expected statistics' names that are free in the progress bar, but "
            f"{EVALUATIONS_IN_BAR!r} counts the evaluations there. Name it e.g. 'val_loss'."
        )


def sealed_keys(holdout: Door, loader: int) -> set[str]:
    """Return the names under which Lightning would know a sealed statistic."""
    forms = ("{}", "{}_epoch", "{}_step", f"{{}}/dataloader_idx_{loader}")
    return {form.format(name) for name in holdout.statistics for form in forms}


def require_no_watchers(callbacks: Iterable[Any], holdout: Door, loader: int = 0) -> None:
    """Raise if a callback reads a sealed statistic: there is no value under its name."""
    names = sealed_keys(holdout, loader)
    for callback in callbacks:
        watched = _watched(callback) & names
        if watched:
            kind, name = type(callback).__name__, min(watched)
            raise InvalidArgumentError(
                f"Expected no callback to read {name!r}, because holdout {holdout.name!r} is "
                f"sealed: nothing is logged under that name before it is closed. But {kind} "
                f"does. {_instead(callback, name, holdout)} {_FREE}"
            )


def require_no_plateaus(trainer: Any, holdout: Door, loader: int = 0) -> None:
    """Raise if a scheduler reads a sealed statistic; schedulers are known when a fit starts."""
    names = sealed_keys(holdout, loader)
    for config in getattr(trainer.strategy, "lr_scheduler_configs", ()):
        if config.monitor in names:
            raise InvalidArgumentError(
                f"Expected no scheduler to read {config.monitor!r}, because holdout "
                f"{holdout.name!r} is sealed: nothing is logged under that name before it is "
                f"closed. But {type(config.scheduler).__name__} does. Use a schedule that reads no "
                f"value, e.g. torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max), or let "
                f'it read a display set, e.g. "monitor": "display_loss/dataloader_idx_1" with '
                f"HoldoutGuard(..., public_dataloaders=(1,)). {_FREE}"
            )


def require_stoppable(trainer: Any, stop: Patience) -> None:
    """Raise if the Trainer would go on after the run has stopped."""
    for name in ("min_epochs", "min_steps"):
        least = getattr(trainer.fit_loop, name, None)
        if least and not (name == "min_epochs" and trainer.fit_loop.min_steps):
            number = least if name == "min_epochs" else "..."
            raise InvalidArgumentError(
                f"Expected the Trainer to end when the run stops, but {name}={least} would go on, "
                f"and a stopped run is never evaluated again. Leave it out, and write "
                f"stop=th.Patience({stop.statistic!r}, patience={stop.patience}, after={number}): "
                f"the first passes take no part. {_FREE}"
            )


def require_no_tuners(callbacks: Iterable[Any]) -> None:
    """Raise if a tuner would run the module inside the fit of a sealed run."""
    if (tuner := _of_kind(callbacks, _TUNERS)) is not None:
        raise InvalidArgumentError(
            f"Expected no tuner in the fit of a sealed run, but got {tuner}. Tune first, with a "
            f"Trainer that has no guard: Tuner(L.Trainer(...)).lr_find(net, train_loader). {_FREE}"
        )


def require_no_averaging(callbacks: Iterable[Any]) -> None:
    """Raise if averaged weights would be written over the best ones, or the other way round."""
    if (average := _of_kind(callbacks, _AVERAGES)) is not None:
        raise InvalidArgumentError(
            f"Expected one source of the module's last weights, but {average} puts averaged ones "
            f"there when training ends, and the guard the best ones. Write HoldoutGuard(..., "
            f"restore=False): the best weights are in guard.best_model_path then. {_FREE}"
        )


def require_one_restorer(guards: Iterable[Any]) -> None:
    """Raise if two guards would put different weights into the module."""
    names = [guard.holdout.name for guard in guards if guard.stop is not None and guard.restore]
    if len(names) > 1:
        raise InvalidArgumentError(
            f"Expected one guard to put its best weights back, but those of {names} would. Give "
            f"all but one restore=False. {_FREE}"
        )


def explain_missing_value(error: BaseException, holdout: Door, loader: int) -> None:
    """Note on a KeyError that it asks for a value which is sealed, e.g. in callback_metrics."""
    if holdout.mechanism.shows_values or not isinstance(error, KeyError):
        return
    name = error.args[0] if error.args else None
    if isinstance(name, str) and name in sealed_keys(holdout, loader):
        add_note(
            error,
            f"Nothing is logged as {name!r}, because holdout {holdout.name!r} is sealed: "
            f"its values are shown by holdout.close(). Let the guard decide (stop=th.Patience(...)"
            f"), or read what a display set logs.",
        )


def no_run_to_validate(holdout: Door, words: Words = LIGHTNING) -> HoldoutError:
    """Return the error for an evaluation outside a run."""
    return HoldoutError(
        f"Expected {words.validate} on weights that {words.fit} has evaluated before, but it "
        f"has evaluated none: holdout {holdout.name!r} is sealed, and is evaluated in the run of a "
        f"fit. Write {words.fit}, or `with holdout.run() as run: run.evaluate({{name: sums}}, "
        f"query=...)`; values are shown by holdout.close(). {_FREE}"
    )


def ended_with(outcome: Outcome, path: str | None, words: Words = LIGHTNING) -> HoldoutError:
    """Return the error for a checkpoint whose run has ended."""
    best = "" if outcome.best_evaluation is None else f"; the best is {outcome.best_evaluation}"
    where = (
        ""
        if path is None
        else f", and its best weights, for net.load_state_dict(torch.load(path)), are in {path}"
    )
    return HoldoutError(
        f"Expected the checkpoint of an open run, but its run has ended: {ending(outcome)}{best}"
        f"{where}. An ended run is never resumed. To train on from these weights {words.anew}: "
        f"that is a new run. {_FREE}"
    )


def ending(outcome: Outcome) -> str:
    """Say how a run ended.

    Example:
        >>> ending(Outcome(best_evaluation=31, stopped_at=41, reason="patience", evaluations=41,
        ...                passes=41, price=5.99))
        'stopped by patience at evaluation 41'
    """
    if outcome.reason == "patience":
        number = outcome.evaluations
        of = "" if number == outcome.passes else f" (pass {outcome.passes})"
        return f"stopped by patience at evaluation {number}{of}"
    return f"{outcome.reason} after {outcome.evaluations} evaluations"


def _watched(callback: Any) -> set[str]:
    """Return what a callback says that it reads: ``monitor``, also in a file's name."""
    monitor = getattr(callback, "monitor", None)
    watched = {monitor} if isinstance(monitor, str) else set()
    filename = getattr(callback, "filename", None)
    if isinstance(filename, str):
        fields = (part.split("}")[0] for part in filename.split("{")[1:])
        watched |= {part.split(":")[0] for part in fields}
    return watched


def _instead(callback: Any, name: str, holdout: Door) -> str:
    patience = getattr(callback, "patience", None)
    if isinstance(patience, int):
        statistic = name if name in holdout.statistics else next(iter(holdout.statistics))
        least = abs(getattr(callback, "min_delta", 0.0))
        delta = f", min_delta={least}" if least else ""
        return (
            f"Remove it, and let the guard stop: HoldoutGuard(holdout, stop=th.Patience("
            f"{statistic!r}, patience={max(patience, 1)}{delta})). Or stop by a display set: "
            f'EarlyStopping("display_loss/dataloader_idx_1") with public_dataloaders=(1,).'
        )
    if hasattr(callback, "save_top_k"):
        return (
            "The guard keeps the best weights itself, in guard.best_model_path: remove it, or, for "
            "checkpoints to resume from, write ModelCheckpoint(save_last=True) without monitor=."
        )
    return "Remove it, or let it read a display set (public_dataloaders=(1,))."


def _of_kind(callbacks: Iterable[Any], kinds: tuple[str, ...]) -> str | None:
    """Return the class of the first callback of some kinds, of either Lightning package."""
    for callback in callbacks:
        if any(base.__name__ in kinds for base in type(callback).__mro__):
            return type(callback).__name__
    return None
