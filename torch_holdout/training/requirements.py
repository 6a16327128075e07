"""Checks of the Trainer, the module and the guard's arguments, made before anything runs."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from torch.utils.data import RandomSampler

from torch_holdout._shared.checks import require_instance, require_whole
from torch_holdout._shared.configurations import plain
from torch_holdout._shared.text import counted
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.protocol import Door
from torch_holdout.holdout.run import Run
from torch_holdout.statistics import Statistic

BUDGET_IN_BAR = "left"
# Lightning takes the first three for its own: `step` would even move every logger's time axis.
_TAKEN = frozenset({"step", "epoch", "v_num", BUDGET_IN_BAR})


def require_whole_loader(trainer: Any, stage: str) -> None:
    """Raise if the Trainer evaluates only a part of the holdout, or publishes nothing."""
    name = "limit_val_batches" if stage == "validate" else "limit_test_batches"
    limit = getattr(trainer, name)
    shortened = {
        "barebones": bool(trainer.barebones),
        "fast_dev_run": bool(trainer.fast_dev_run),
        "overfit_batches": trainer.overfit_batches != 0,
        name: not (isinstance(limit, float) and limit == 1.0),
    }
    if problems := [option for option, on in shortened.items() if on]:
        raise InvalidArgumentError(
            f"Expected the whole holdout in every evaluation, but the Trainer has "
            f"{', '.join(problems)} set, which evaluates only a part of it or publishes nothing. "
            f"Remove the option, or the guard for this trial run. Nothing was charged."
        )


def step_of(stage: str) -> str:
    """Return the name of a stage's step."""
    return "validation_step" if stage == "validate" else "test_step"


def require_own_examples(trainer: Any) -> None:
    """Raise if several ranks would evaluate the same examples."""
    sampling = getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}
    parts = sampling.get("num_replicas", trainer.world_size)
    if parts != trainer.world_size:
        raise InvalidArgumentError(
            f"Expected each of {trainer.world_size} ranks to evaluate examples of its own, but "
            f"{type(trainer.strategy).__name__} cuts the data into {parts}: ranks that share a "
            f"model's layers (tensor parallel) see the same. Use data-parallel ranks only. Nothing "
            f"was charged."
        )


def require_one_process(trainer: Any) -> None:
    """Raise if a trial of a sweep has several ranks: which of them may end it is not settled."""
    if trainer.world_size > 1:
        raise InvalidArgumentError(
            f"Expected trials of one process, but this Trainer has {trainer.world_size}: ending a "
            f"trial under DDP is not supported. Use devices=1. Nothing was charged."
        ) from None


def require_loggable(names: Iterable[str]) -> None:
    """Raise if Lightning or the guard logs something else under a statistic's name."""
    for name in names:
        if name in _TAKEN or name.startswith("holdout/") or "/dataloader_idx_" in name:
            raise InvalidArgumentError(
                f"Expected statistics' names that are free in the logs, but got {name!r}. Names "
                f"that start with 'holdout/', names with '/dataloader_idx_' and {sorted(_TAKEN)} "
                f"belong to the guard or to Lightning. Name it e.g. 'val_loss' in the holdout."
            )


def require_batches(step: Callable[..., Any]) -> None:
    """Raise if a step fetches its batches itself."""
    if "dataloader_iter" in inspect.signature(step).parameters:
        raise InvalidArgumentError(
            "Expected a step that takes a batch, but this one takes `dataloader_iter`, which hides "
            "which loader a batch is from. Use step(self, batch, batch_idx)."
        )


def require_step_function(step: object) -> None:
    """Raise unless ``step`` can be called as ``step(module, batch, batch_idx)``."""
    wanted = (
        "Expected `step` to be a function step(module, batch, batch_idx) that returns {statistic: "
        "per-example values}, but got"
    )
    if not callable(step):
        raise InvalidArgumentError(f"{wanted} {type(step).__name__}.")
    try:
        inspect.signature(step).bind(None, None, 0)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{wanted} one that cannot be called with these three: {error}."
        ) from None
    except ValueError:  # built in: it has no signature
        return


def require_one_step(module: Any) -> None:
    """Raise if a module brings a ``holdout_step`` although the guard was given ``step=``."""
    if hasattr(module, "holdout_step"):
        raise InvalidArgumentError(
            f"Expected one step for the holdout, but {type(module).__name__} defines "
            f"`holdout_step` and the guard was given step=. Leave one of them out. Nothing was "
            f"charged."
        )


def shuffles(loader: Any) -> bool:
    """Whether a loader is known to change the dataset's order."""
    sampler = getattr(loader, "sampler", None)
    return isinstance(sampler, RandomSampler) or bool(getattr(sampler, "shuffle", False))


def require_in_order(loader: Any, statistics: Mapping[str, Statistic]) -> None:
    """Raise if a loader shuffles although blocks are cut by the examples' numbers."""
    ordered = {name: each for name, each in statistics.items() if each.needs_order}
    if ordered and shuffles(loader):
        blocks = all(statistic.cuts_blocks for statistic in ordered.values())
        reason = f"the blocks of {list(ordered)} are cut by the examples' numbers"
        if not blocks:
            reason = f"the rows of {list(ordered)} are told apart by their places"
        raise InvalidArgumentError(
            f"Expected a holdout loader that keeps the order, because {reason}, but it shuffles. "
            f"Use shuffle=False."
        )


def require_releases_left(holdout: Door) -> None:
    """Raise if the budget is spent before a fit begins."""
    if holdout.exhausted:
        raise BudgetExhaustedError(
            f"Expected holdout {holdout.name!r} to have releases left for a new fit, but "
            f"its budget ({counted(holdout.budget, 'release')}) is spent. Bring a fresh "
            f"holdout, or train without one."
        )


def in_this_process(holdout: Door) -> ReusableHoldout:
    """Return a holdout whose ledger is opened here; raise for a board in another process."""
    require_instance("holdout", holdout, ReusableHoldout)
    return cast(ReusableHoldout, holdout)


def budget_spent(holdout: Door) -> str:
    """Return the clause that begins every message about a spent budget."""
    unit = "release" if holdout.mechanism.shows_values else "run"
    return f"The budget of holdout {holdout.name!r} ({counted(holdout.budget, unit)}) is spent"


def checked_public(public: Sequence[str], statistics: Iterable[str]) -> tuple[str, ...]:
    """Return the public keys as a tuple, none of them a statistic."""
    keys = (public,) if isinstance(public, str) else plain(public)
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise InvalidArgumentError("Expected `public` to be keys, e.g. public=('lr',).")
    if own := [key for key in keys if key in set(statistics)]:
        raise InvalidArgumentError(
            f"Expected `public` keys that do not depend on the holdout, but {own} are its "
            f"statistics. Return their per-example values instead of logging them."
        )
    return tuple(keys)


def checked_indices(indices: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the public loaders as a tuple."""
    indices = plain(indices)
    if not isinstance(indices, list | tuple):
        raise InvalidArgumentError(
            "Expected `public_dataloaders` to be loaders' numbers, e.g. public_dataloaders=(1,)."
        )
    for index in indices:
        require_whole("public_dataloaders", index, 0, 10**6)
    return tuple(indices)


def listed(loaders: Any) -> Iterable[Any]:
    """Return loaders as a sequence, also a single one."""
    return loaders if isinstance(loaders, list | tuple) else [loaders]


def require_run(holdout: Door, run: Run | None) -> None:
    """Raise unless a metric of a sealed holdout has a run of it, and of another none."""
    if run is not None:
        require_instance("run", run, Run)
    if holdout.mechanism.shows_values and run is not None:
        raise InvalidArgumentError(
            f"Expected no `run`, because holdout {holdout.name!r} answers with values. Leave it "
            f"out, or make the holdout with mechanism=th.Sealed(...)."
        )
    if not holdout.mechanism.shows_values and run is None:
        raise InvalidArgumentError(
            f"Expected `run=holdout.run(...)`, because holdout {holdout.name!r} is sealed: each "
            f"pass belongs to a run. Metrics of one model share one run."
        )
    if run is not None and not run.belongs_to(holdout.address, holdout.name):
        raise InvalidArgumentError("Expected a run of this holdout, but got one of another.")
