"""Names in the logs next to a sealed holdout: which may be watched, and which stay free."""

import logging
from collections.abc import Iterable
from typing import Any, final

from torch_holdout.errors import HoldoutError, UnguardedLogError
from torch_holdout.holdout.protocol import Door
from torch_holdout.training.metric import ReusableHoldoutMetric

_log = logging.getLogger("torch_holdout")


@final
class Display:
    """What public loaders log while a sealed holdout is silent.

    Says once for each key by which name callbacks can monitor it: Lightning adds the number of the
    loader.

    Args:
        trainer: Its callbacks may monitor a key.
        holdouts: Those of all guards; without a sealed one nothing is said.
    """

    def __init__(self, trainer: Any, holdouts: Iterable[Door]) -> None:
        sealed = [holdout for holdout in holdouts if not holdout.mechanism.shows_values]
        self._trainer = trainer
        self._names = {name for holdout in sealed for name in holdout.statistics}
        self._heard: set[str] = set()

    def is_sealed(self, name: str, value: Any = None) -> bool:
        """Whether a key, or what is logged under it, is a sealed statistic."""
        metric = isinstance(value, ReusableHoldoutMetric)
        return name in self._names or (metric and not value.holdout.mechanism.shows_values)

    def hear(self, loader: int, name: str, numbered: bool) -> None:
        """Say how to monitor what a public loader logs; raise if it takes a sealed name."""
        key = f"{name}/dataloader_idx_{loader}" if numbered else name
        if not self._names or key in self._heard:
            return
        if key in self._names:
            raise sealed_name_logged(name, f"for public loader {loader}")
        self._heard.add(key)
        if not self._trainer.is_global_zero:
            return
        watchers = [
            type(callback).__name__
            for callback in self._trainer.callbacks
            if numbered and getattr(callback, "monitor", None) == name
        ]
        if watchers:
            _log.warning(
                "%s monitors %r, but loader %d logs %r. Monitor that name, or write "
                "self.log(%r, ..., add_dataloader_idx=False).",
                ", ".join(watchers),
                name,
                loader,
                key,
                name,
            )
        else:
            _log.info("What loader %d shows may be watched: monitor=%r.", loader, key)


def sealed_name_logged(name: str, place: str) -> HoldoutError:
    """Return the error for a key that belongs to a sealed statistic."""
    return UnguardedLogError(
        f"Expected nothing to be logged as {name!r}, because that statistic is sealed: it has no "
        f"value before holdout.close(), and callbacks would take another one for it. But it was "
        f"logged ({place}); its value is not shown here. Return per-example values from the step "
        f"for the holdout, and log others under another name, e.g. self.log('display_loss', ...) "
        f"or self.log('train_loss', ...)."
    )
