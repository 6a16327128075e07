"""The guards of one stage of a Trainer, and the module they have intercepted together."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torchmetrics import Metric

from torch_holdout.errors import InvalidArgumentError, UnguardedLogError
from torch_holdout.training.advice import diff_for, public_advice
from torch_holdout.training.display import Display, sealed_name_logged
from torch_holdout.training.first_look.marking import is_marked
from torch_holdout.training.first_look.places import calling_place
from torch_holdout.training.interception import Interception, Step
from torch_holdout.training.logged_steps import logged_means, require_loggable_value
from torch_holdout.training.metric import ReusableHoldoutMetric

if TYPE_CHECKING:
    from torch_holdout.training.guard import HoldoutGuardHooks


_log = logging.getLogger("torch_holdout")


class GuardSession:
    """Routes batches and logs of one run to the guards of a stage.

    The first guard makes the session and the others share it. It is kept from setup to teardown,
    because a tuner takes the callbacks away while it runs the module.
    """

    def __init__(
        self, guards: Sequence["HoldoutGuardHooks"], trainer: Any, module: Any, step: str
    ) -> None:
        self._guards = guards
        places = [guard.dataloader_idx for guard in guards]
        holdouts = [guard.holdout.name for guard in guards]
        names = [name for guard in guards for name in guard.holdout.statistics]
        if any(len(set(each)) != len(each) for each in (places, names, holdouts)):
            raise InvalidArgumentError(
                f"Expected each guard to have its own loader, holdout and statistics' names, but "
                f"got loaders {places}, holdouts {holdouts} and statistics {names}."
            )
        self._interception = Interception(
            module,
            [callback for callback in trainer.callbacks if callback not in guards],
            results=_results_of(trainer),
            step=step,
            on_step=partial(self._route, trainer),
            datamodule=trainer.datamodule,
            on_hook=partial(self._hook, trainer),
            on_log=partial(self._may_log, trainer),
            on_take=self._take,
        )
        self._stand_in(trainer, module, step)
        self._display = Display(trainer, [guard.holdout for guard in guards])
        self.log = self._interception.log  # past the trap, for guarded values
        self.restore = self._interception.restore

    @property
    def has_several_guards(self) -> bool:
        """Whether logged names must contain the holdout's name."""
        return len(self._guards) > 1

    def require_guarded(self, loaders: int, stage: str) -> None:
        """Raise unless every loader is guarded or declared public."""
        present, guarded, public = set(range(loaders)), self._guarded_loaders(), self._public()
        if present - guarded - public or guarded - present:
            raise InvalidArgumentError(
                f"Expected every {stage} loader to have a guard or to be declared public, but "
                f"there are loaders {sorted(present)}, guards for {sorted(guarded)} and public "
                f"{sorted(public)}. Add HoldoutGuard(..., dataloader_idx=i), or "
                f"public_dataloaders=(i,) if loader i holds no holdout data."
            )

    def _route(
        self, trainer: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Hand a batch to the guard of its loader, or to the module if the loader is public."""
        if not _evaluating(trainer):
            return step(*args, **kwargs)  # the module calls its own step on training data
        index = self._loader_of(args, kwargs)
        for guard in self._guards:
            if guard.dataloader_idx == index:
                if guard._inside is not None:  # a guarded step calls the module's own
                    return step(*args, **kwargs)
                guard._guarded_step(trainer, step, args, kwargs)
                return None  # outputs would carry raw values to every callback
        with self._interception.opened(partial(self._display.hear, index)):
            output = step(*args, **kwargs)
        for guard in self._guards:
            guard._watch.count()  # a public loader may update the module's own metrics
        return output

    def _stand_in(self, trainer: Any, module: Any, step: str) -> None:
        """Leave out hooks of the module that read what its own step makes, and say so."""
        given = {guard.dataloader_idx for guard in self._guards if guard.step is not None}
        if not given:
            return
        if given == self._guarded_loaders() and not self._public():
            self._interception.stand_in(module, step)
        stage = step.removesuffix("_step")
        hooks = {
            f"on_{stage}_batch_end": lambda args: (args[3] if len(args) > 3 else 0) in given,
            f"on_{stage}_epoch_end": lambda args: True,
        }
        left_out = [
            f"{type(module).__name__}.{hook}"
            for hook, skips in hooks.items()
            if self._interception.skip(module, hook, skips)
        ]
        if left_out and trainer.is_global_zero:
            _log.warning(
                "HoldoutGuard(step=) takes the place of %s, so %s, which may read what that step "
                "returns or collects, will not be run. Hooks of callbacks are.",
                step,
                " and ".join(left_out),
            )

    def _take(self, name: str, value: Any, options: dict[str, Any]) -> bool:
        """Hand what a guarded step logs under a registered name to its guard alone."""
        for guard in self._guards:
            if guard._inside is not None and guard._inside.takes(name):
                guard._inside.take(name, value, options)
                return True
        return False

    def _hook(
        self,
        trainer: Any,
        hook: Step,
        args: tuple[Any, ...],
        *,
        batch: int,
        loader: int,
        used: bool,
        what: str,
    ) -> Any:
        """Show a hook of the user's marked data of a guarded loader, the first time."""
        index = args[loader] if len(args) > loader else 0
        for guard in self._guards:
            if guard.dataloader_idx == index and _evaluating(trainer):
                # A hook may change the batch that the step gets.
                used = used or not trainer.sanity_checking
                return guard._guarded_hook(trainer, hook, args, batch, what, used=used)
        return hook(*args)

    def wrap_new_hooks(self, trainer: Any) -> None:
        """Wrap hooks of callbacks that were added, or hooks that were replaced, since setup."""
        others = [callback for callback in trainer.callbacks if callback not in self._guards]
        self._interception.wrap_hooks([trainer.lightning_module, *others, trainer.datamodule])

    def _loader_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return which loader a batch is from; never guess between a public and a guarded one."""
        if "dataloader_idx" in kwargs or len(args) > 2:
            return int(kwargs.get("dataloader_idx", args[2] if len(args) > 2 else 0))
        if self._guarded_loaders() != {0} or self._public():
            raise InvalidArgumentError(
                "Expected to be told which loader each batch is from, but the step got no "
                "dataloader_idx. Give the loaders as a list (sequential), and the step a "
                "`dataloader_idx` argument."
            )
        return 0

    def _may_log(self, trainer: Any, name: str, value: Any) -> bool:
        """Whether a key may reach Lightning's results; raise or warn if it may not."""
        guards = self._guards
        if any(guard._inside is not None and guard._inside.takes(name) for guard in guards):
            require_loggable_value(name, value)  # before Lightning looks at it
            return True
        if self._display.is_sealed(name, value):
            if all(guard.unguarded == "drop" for guard in guards):
                guards[0]._warn_once(f"{name!r}, a sealed statistic, was logged and dropped")
                return False
            raise sealed_name_logged(name, str(calling_place()))
        public = any(name in guard.public for guard in guards)
        if not _evaluating(trainer) or public or isinstance(value, ReusableHoldoutMetric):
            return True
        hook = trainer.lightning_module._current_fx_name or "validation_step"
        if all(guard.unguarded == "drop" for guard in guards):
            guards[0]._warn_once(f"{name!r}, logged in {hook}, was dropped")
            return False
        # Only a value that is seen not to come from the batch can be public; a metric hides it.
        looked = all(guard._first_batches.looking for guard in guards)
        harmless = looked and not (is_marked(value) or isinstance(value, Metric))
        registered = any(name in guard.holdout.statistics for guard in guards)
        advice = public_advice([name] if harmless and not registered else [])
        if any(name in logged_means(guard.holdout.statistics) for guard in guards):
            advice = " A th.LoggedMean takes what the module's own step logs for each batch."
        raise UnguardedLogError(
            f"Expected nothing but guarded values during validation, but {name!r} was logged in "
            f"{hook} ({calling_place()}); its value is not shown here.{advice} "
            f"{diff_for(hook, name)}\n"
            f"A module that cannot be edited: a th.LoggedMean statistic takes what it logs for "
            f"each batch; HoldoutGuard(..., step=fn) takes the place of its step; "
            f"unguarded='drop' leaves out whatever else it logs."
        )

    def _guarded_loaders(self) -> set[int]:
        return {guard.dataloader_idx for guard in self._guards}

    def _public(self) -> set[int]:
        return {index for guard in self._guards for index in guard.public_dataloaders}


def _evaluating(trainer: Any) -> bool:
    return bool(trainer.sanity_checking or trainer.validating or trainer.testing)


def _results_of(trainer: Any) -> list[Any]:
    """Return where Lightning collects what is logged during evaluations."""
    loops = (trainer.fit_loop.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop)
    return [loop._results for loop in loops]
