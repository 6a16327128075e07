"""Checks of a ``HoldoutTrainer``'s arguments, made before anything is trained."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformers import EarlyStoppingCallback, Trainer
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.mechanisms import Patience
from torch_holdout.statistics import LoggedMean, Statistic

_FREE = "Nothing was charged."
_READERS = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


def require_own_loop(kind: type, base: type) -> None:
    """Raise if a subclass replaces the loop that keeps the holdout's values on the device."""
    for name in ("evaluation_loop",):
        if getattr(kind, name) is not getattr(base, name):
            raise InvalidArgumentError(
                f"Expected {kind.__name__} to leave `{name}` to HoldoutTrainer, because a loop of "
                f"its own would get the holdout's raw values. Put HoldoutTrainer first among the "
                f"bases, override `prediction_step` or `compute_loss`, or write values=. {_FREE}"
            )


def require_free_names(names: Iterable[str]) -> None:
    """Raise if the ``Trainer`` or the guard logs something else under a statistic's name."""
    taken = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "jit")
    for name in names:
        if name.removeprefix("eval_") in taken or name.startswith(("holdout/", "eval_holdout/")):
            raise InvalidArgumentError(
                f"Expected statistics' names that are free in the logs, but got {name!r}. Name it "
                f"e.g. 'loss' in the holdout: it is published as 'eval_loss'."
            )


def require_examples(statistics: Mapping[str, Statistic]) -> None:
    """Raise for statistics of logged means: a ``Trainer`` logs none for its batches."""
    logged = [name for name, each in statistics.items() if isinstance(each, LoggedMean)]
    if logged:
        raise InvalidArgumentError(
            f"Expected statistics of single examples, but {logged} are of what a Lightning module "
            f"logs for its batches (th.LoggedMean), which a Trainer does not. Register th."
            f"CrossEntropy, th.BoundedMean or th.ZeroOne: every example is a unit then. {_FREE}"
        )


def holdout_key(eval_dataset: Any, public_eval: Sequence[str]) -> str | None:
    """Return which key of several evaluation sets is the holdout; None for one set.

    Example:
        >>> holdout_key({"holdout": [1], "display": [2]}, ["display"])
        'holdout'
        >>> holdout_key([1], [])
    """
    if eval_dataset is None:
        raise InvalidArgumentError(
            f"Expected `eval_dataset` to be the holdout's examples, but got None. {_FREE}"
        )
    if not isinstance(public_eval, list | tuple):
        raise InvalidArgumentError(
            "Expected `public_eval` to be keys of eval_dataset, e.g. public_eval=('display',)."
        )
    if not isinstance(eval_dataset, dict):
        if public_eval:
            raise InvalidArgumentError(
                f"Expected `public_eval` with several evaluation sets, but eval_dataset is one: "
                f"the holdout. Write eval_dataset={{'holdout': ..., {public_eval[0]!r}: ...}}. "
                f"{_FREE}"
            )
        return None
    guarded = [key for key in eval_dataset if key not in public_eval]
    unknown = [key for key in public_eval if key not in eval_dataset]
    if len(guarded) != 1 or unknown:
        raise InvalidArgumentError(
            f"Expected one of the evaluation sets {list(eval_dataset)} to be the holdout and the "
            f"others in `public_eval`, but that leaves {guarded}, and {unknown} are not sets. "
            f"Name those that hold no record of the holdout's: public_eval="
            f"{tuple(list(eval_dataset)[1:])}. {_FREE}"
        )
    return str(guarded[0])


def require_size(dataset: Any, holdout: ReusableHoldout) -> None:
    """Raise if a dataset has another length than the holdout."""
    try:
        length = len(dataset)
    except TypeError:  # counted at the end of the pass
        return
    if length != holdout.size:
        raise PartialPassError(
            f"Expected the {holdout.size} examples of holdout {holdout.name!r}, but eval_dataset "
            f"has {length}. Evaluate every example of the holdout, or create it with "
            f"size=len(dataset). {_FREE}"
        )


def require_no_metrics(trainer: Any, has_public: bool) -> None:
    """Raise if functions would get raw predictions of the holdout."""
    if trainer.compute_metrics is not None and not has_public:
        raise InvalidArgumentError(
            f"Expected `values` instead of `compute_metrics`, because that gets all predictions "
            f"of the holdout and returns raw metrics. Return one value for each example of a "
            f"batch; the mean is taken, guarded and logged for you:\n"
            f"-    def compute_metrics(p):  # arrays of the whole set\n"
            f'-        return {{"accuracy": (p.predictions.argmax(-1) == p.label_ids).mean()}}\n'
            f"+    def values(p):  # tensors of one batch\n"
            f'+        return {{"accuracy": p.predictions.argmax(-1) == p.label_ids}}\n'
            f"+    HoldoutTrainer(..., values=values)\n"
            f"A metric that is not a mean over examples (F1, AUROC) is a th.Blockwise statistic. "
            f"For sets in `public_eval`, compute_metrics works as usual. {_FREE}"
        )
    if "loss" in trainer.args.include_for_metrics:
        raise InvalidArgumentError(
            f"Expected include_for_metrics without 'loss': that is the mean over a batch, and "
            f"`values` needs one for each example. Compute it from p.predictions with "
            f'reduction="none". {_FREE}'
        )


def require_own_loss(trainer: Any) -> None:
    """Raise if a loss of the user's own is trained: the holdout's would be another."""
    own = type(trainer).compute_loss is not Trainer.compute_loss
    if own or trainer.compute_loss_func is not None:
        what = "`compute_loss`" if own else "`compute_loss_func`"
        raise InvalidArgumentError(
            f"Expected `values`, because {what} computes a loss of its own, and the values of the "
            f"holdout would be of the plain cross-entropy. Return that loss for each example: "
            f"HoldoutTrainer(..., values=lambda p: {{'loss': my_loss(p.predictions, p.label_ids, "
            f"reduction='none')}}). {_FREE}"
        )


def require_evaluations(trainer: Any, stop: Patience | None) -> None:
    """Raise if nothing is evaluated that training could be stopped by."""
    if stop is not None and trainer.args.eval_strategy == IntervalStrategy.NO:
        raise InvalidArgumentError(
            f"Expected evaluations during training, because stop={stop!r} decides by them, but "
            f"eval_strategy is 'no'. Write TrainingArguments(eval_strategy='epoch'). {_FREE}"
        )


def require_supported(trainer: Any, holdout: ReusableHoldout) -> None:
    """Raise for settings under which a pass would not be the whole holdout or not be known."""
    args = trainer.args
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise InvalidArgumentError(
            f"Expected whole weights on every process, because they name the query, but DeepSpeed "
            f"or FSDP spreads them. Use data-parallel processes (torchrun). {_FREE}"
        )
    ordered = [name for name, each in holdout.statistics.items() if each.needs_order]
    if ordered and args.train_sampling_strategy == "group_by_length":
        raise InvalidArgumentError(
            f"Expected the holdout in its own order, because {ordered} need it, but "
            f"train_sampling_strategy='group_by_length' sorts evaluation sets too. Leave it out. "
            f"{_FREE}"
        )


def require_readable_names(
    trainer: Any, holdout: ReusableHoldout, stop: Patience | None, prefix: str
) -> None:
    """Raise if the best model, a scheduler or a callback would read a name without a value.

    ``prefix`` is what the holdout's values are published under, e.g. ``"eval_"``.
    """
    args = trainer.args
    readers = _readers(trainer)
    name = args.metric_for_best_model
    if name is None or not readers:
        return
    key = name if name.startswith("eval_") else f"eval_{name}"
    published = {
        each if each.startswith(prefix) else f"{prefix}{each}": each for each in holdout.statistics
    }
    public = prefix != "eval_" and key not in published  # a value of another evaluation set
    if not holdout.mechanism.shows_values and not public:
        raise _sealed_name(trainer, holdout, stop, name, readers)
    if key not in published and not public:
        raise InvalidArgumentError(
            f"Expected metric_for_best_model to name a statistic of the holdout, one of "
            f"{list(published)}, but got {name!r}, which {' and '.join(readers)} would read. "
            f"{_FREE}"
        )
    if key in published:
        _require_direction(args, holdout, published[key])


def _readers(trainer: Any) -> list[str]:
    """Return what reads ``metric_for_best_model`` after each evaluation."""
    args = trainer.args
    found = {
        "load_best_model_at_end": args.load_best_model_at_end,
        "save_strategy='best'": args.save_strategy == SaveStrategy.BEST,
        f"lr_scheduler_type={SchedulerType(args.lr_scheduler_type).value!r}": args.lr_scheduler_type
        in _READERS,
        "metric_for_best_model": args.metric_for_best_model is not None,
    }
    readers = [name for name, reads in found.items() if reads]
    callbacks = trainer.callback_handler.callbacks
    return readers + [type(c).__name__ for c in callbacks if isinstance(c, EarlyStoppingCallback)]


def _sealed_name(
    trainer: Any, holdout: ReusableHoldout, stop: Patience | None, name: str, readers: list[str]
) -> InvalidArgumentError:
    callbacks = trainer.callback_handler.callbacks
    patience = next(
        (c.early_stopping_patience for c in callbacks if isinstance(c, EarlyStoppingCallback)), 5
    )
    statistic = name.removeprefix("eval_")
    statistic = statistic if statistic in holdout.statistics else next(iter(holdout.statistics))
    instead = (
        f"Leave {' and '.join(readers)} out and let the holdout stop: HoldoutTrainer(..., "
        f"stop=th.Patience({statistic!r}, patience={patience})) ends training and puts the best "
        f"weights back"
    )
    if stop is not None:
        instead = f"stop={stop!r} stops training and puts the best weights back: leave them out"
    return InvalidArgumentError(
        f"Expected nothing to read {name!r}, because holdout {holdout.name!r} is sealed: nothing "
        f"is published under that name before it is closed. But {' and '.join(readers)} would. "
        f"{instead}; or let them read a set of its own, eval_dataset={{'holdout': ..., 'display': "
        f"...}} with public_eval=('display',) and metric_for_best_model='eval_display_loss'. "
        f"{_FREE}"
    )


def _require_direction(args: Any, holdout: ReusableHoldout, statistic: str) -> None:
    larger = holdout.statistics[statistic].mode == "max"
    if args.greater_is_better is not None and bool(args.greater_is_better) != larger:
        raise InvalidArgumentError(
            f"Expected greater_is_better={larger}, because {statistic!r} is registered with "
            f"mode={holdout.statistics[statistic].mode!r}, but got {args.greater_is_better} (the "
            f"Trainer takes True for names that do not end in 'loss'). {_FREE}"
        )
