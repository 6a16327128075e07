"""Public numbers among Lightning's results of an evaluation: for callbacks, loggers and bars."""

from collections.abc import Collection, Mapping
from typing import Any, final

import torch
from torch import Tensor

Kinds = dict[str, dict[str, Any]]  # as Lightning sorts them: "callback", "log" and "pbar"


def show_numbers(trainer: Any, numbers: Mapping[str, float], in_bar: Collection[str]) -> None:
    """Show numbers that every rank has, until Lightning resets the results of the evaluation.

    Whole numbers stay whole. ``LightningModule.log`` would make a metric of each, and walk and copy
    all that metric keeps, twice: for six numbers as long as for ten batches with ``self.log``.
    """
    tensors = {name: _as_tensor(value) for name, value in numbers.items()}
    bar = {name: tensors[name].item() for name in in_bar}
    _Shown.among(trainer._results).add({"callback": tensors, "log": tensors, "pbar": bar})
    # Lightning leaves results out where a module of the user's has logged none.
    trainer.callback_metrics.update(tensors)
    trainer.logged_metrics.update(tensors)
    trainer.progress_bar_metrics.update(bar)


def _as_tensor(value: float) -> Tensor:
    whole = isinstance(value, int)  # flags are 0 and 1
    return torch.tensor(value, dtype=torch.int64 if whole else torch.float64)


@final
class _Shown:
    """Stands for two methods of a result collection: ``metrics``, and ``reset``, which ends that.

    While an evaluation runs the collection has its own: they are called for every batch.
    """

    def __init__(self, results: Any) -> None:
        self._results = results
        self._numbers: Kinds = {}

    @classmethod
    def among(cls, results: Any) -> "_Shown":
        """Return what is shown among results; several guards share it."""
        shown = getattr(vars(results).get("metrics"), "__self__", None)
        if not isinstance(shown, cls):
            shown = cls(results)
            vars(results).update(metrics=shown.metrics, reset=shown.reset)
        return shown

    def add(self, numbers: Kinds) -> None:
        """Show more numbers."""
        for kind, own in numbers.items():
            self._numbers.setdefault(kind, {}).update(own)

    def metrics(self, on_step: bool) -> Kinds:
        """Return Lightning's results, and the numbers among those of the whole evaluation."""
        found: Kinds = type(self._results).metrics(self._results, on_step)
        if not on_step and self._results.dataloader_idx is None:
            for kind, own in self._numbers.items():
                found[kind].update(own)
        return found

    def reset(self, metrics: bool | None = None, fx: str | None = None) -> None:
        """Reset Lightning's results; with all of them the numbers go."""
        if metrics is None and fx is None:
            del vars(self._results)["metrics"], vars(self._results)["reset"]
        type(self._results).reset(self._results, metrics, fx)
