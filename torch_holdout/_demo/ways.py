"""The same training three times: stopped by raw values, by guarded values, by a sealed run."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import torch_holdout as th
from torch_holdout._demo.digits import network, splits
from torch_holdout.holdout.closing import Closing

WORST = 5.0
PATIENCE, BUDGET = 12, 20
LOSS = "val_loss"


@final
@dataclass(frozen=True)
class Epoch:
    """What was published after an epoch, or after closing, with the loss on fresh data."""

    number: int
    published: float
    kind: str
    budget_left: int
    fresh: float


@final
@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to stop and to choose, and its result.

    Attributes:
        name: For the table.
        seen: What the Trainer could see.
        epochs: Those it trained for.
        chosen: The epoch it has chosen.
        low: The lower end of what is certified of the chosen model's loss; None if nothing is.
        high: The upper end.
        holdout: Its account; None for raw values.
        closing: What closing has shown, for the sealed way.
    """

    name: str
    seen: str
    epochs: list[Epoch]
    chosen: Epoch
    low: float | None = None
    high: float | None = None
    holdout: th.ReusableHoldout | None = field(default=None, repr=False)
    closing: Closing | None = field(default=None, repr=False)

    @property
    def distance(self) -> float | None:
        """How far the certified interval reaches from what is said; None without one."""
        if self.low is None or self.high is None:
            return None
        return max(self.high - self.chosen.published, self.chosen.published - self.low)

    def facts(self) -> dict[str, Any]:
        """Return the numbers, for JSON."""
        return {
            "name": self.name,
            "epochs": len(self.epochs),
            "chosen": self.chosen.number,
            "reported": self.chosen.published,
            "fresh": self.chosen.fresh,
            "certified": None if self.low is None else [self.low, self.high],
        }


def raw_way(training: "Training") -> Way:
    """Stop by plain values of the holdout, of which nothing can be certified."""

    def look(trainer: Any) -> tuple[float, str, int]:
        return float(trainer.callback_metrics[LOSS]), "raw", 0

    epochs = training.fit([training.stopping()], look)
    chosen = min(epochs, key=lambda epoch: epoch.published)
    return Way(name="raw values", seen="every value", epochs=epochs, chosen=chosen)


def live_way(training: "Training", ledger: str) -> Way:
    """Stop by guarded values: noisy and budgeted, and certified whatever is done with them.

    Threshold and noise were chosen on curves like these, among thresholds of .002 to .02 and noise
    of .0002 to .002. Over eight seeds of this demo the chosen model's loss on fresh data is .016
    above the best epoch's on average and .037 at most; with raw values .005 and .015.
    """
    from torch_holdout.pytorch_lightning import HoldoutGuard

    mechanism = th.Thresholdout(threshold=0.005, sigma=0.0005, guess="last")
    holdout = training.account(ledger, "digits-live", mechanism, BUDGET)
    guard = HoldoutGuard(holdout, run="demo, live")

    def look(trainer: Any) -> tuple[float, str, int]:
        answer = guard.answers[LOSS]
        return answer.value, answer.kind, answer.budget_left

    epochs = training.fit([guard, training.stopping()], look)
    chosen, distance = best_release(epochs), holdout.certificate().user_tolerance[LOSS]
    spent = BUDGET - holdout.budget_left
    return Way(
        name="guarded values",
        seen=f"{spent} of {BUDGET} releases",
        epochs=epochs,
        chosen=chosen,
        low=max(0.0, chosen.published - distance),
        high=min(WORST, chosen.published + distance),
        holdout=holdout,
    )


def sealed_way(training: "Training", ledger: str) -> Way:
    """Stop by the guard, which shows nothing but that; closing then shows every value."""
    from torch_holdout.pytorch_lightning import HoldoutGuard

    mechanism = th.Sealed(evaluations=training.epochs)
    holdout = training.account(ledger, "digits-sealed", mechanism, 1)
    guard = HoldoutGuard(holdout, stop=th.Patience(LOSS, PATIENCE), run="demo, sealed")
    hidden = training.fit([guard], lambda _: (float("nan"), "sealed", 0))
    closing = holdout.close()
    values = closing.curve()
    epochs = [replace(e, published=v.value) for e, v in zip(hidden, values, strict=True)]
    number = (guard.outcome and guard.outcome.best_evaluation) or 1
    return Way(
        name="sealed run",
        seen="when it stopped",
        epochs=epochs,
        chosen=epochs[number - 1],
        low=values[number - 1].low,
        high=values[number - 1].high,
        holdout=holdout,
        closing=closing,
    )


def best_release(epochs: list[Epoch]) -> Epoch:
    """Return the epoch with the best *released* value: only releases may be claimed."""
    return min((e for e in epochs if e.kind == "release"), key=lambda epoch: epoch.published)


@final
class Training:
    """Data and a Trainer; every fit begins with the same weights and takes the same batches.

    Args:
        folder: For what the Trainer and the guard write: the best weights of a sealed run.
        epochs: The largest number of epochs.
        progress: Whether progress bars are shown.
        seed: Of the data, the weights and the batches.
    """

    def __init__(
        self, folder: str, *, epochs: int = 60, progress: bool = True, seed: int = 0
    ) -> None:
        self._folder, self.epochs, self._progress, self._seed = folder, epochs, progress, seed
        self._train, self._holdout, self._fresh = splits(seed)
        self._fingerprint = th.fingerprint(self._holdout)

    def account(self, ledger: str, name: str, mechanism: Any, budget: int) -> th.ReusableHoldout:
        """Return a new account with one statistic, the clipped loss."""
        return th.ReusableHoldout(
            ledger,
            name=name,
            size=len(self._holdout),
            statistics={LOSS: th.CrossEntropy(WORST)},
            mechanism=mechanism,
            budget=budget,
            fingerprint=self._fingerprint,
        )

    def stopping(self) -> Any:
        """Return the callback that raw and guarded values are read by."""
        from pytorch_lightning.callbacks import EarlyStopping

        return EarlyStopping(LOSS, patience=PATIENCE)

    def fit(self, callbacks: list[Any], look: Callable[[Any], tuple[float, str, int]]) -> Any:
        """Train; return what ``look`` saw after each epoch, with the loss on fresh data."""
        import pytorch_lightning as pl

        pl.seed_everything(self._seed, verbose=False)
        recorder = _recorder(pl, look, self._fresh)
        guarded = any(hasattr(callback, "holdout") for callback in callbacks)
        with _quiet():
            trainer = pl.Trainer(
                max_epochs=self.epochs,
                default_root_dir=self._folder,
                callbacks=[*callbacks, recorder],
                logger=False,
                enable_checkpointing=False,
                enable_model_summary=False,
                enable_progress_bar=self._progress,
                num_sanity_val_steps=0,
                accelerator="auto",
                devices=1,
            )
            trainer.fit(
                network(pl, guarded=guarded, worst=WORST),
                DataLoader(self._train, batch_size=50, shuffle=True),
                DataLoader(self._holdout, batch_size=len(self._holdout)),
            )
        return recorder.epochs


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep advice out of the demo's output, and leave everybody's loggers as they were."""
    names = ("pytorch_lightning", "lightning_fabric", "torch_holdout")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _recorder(pl: Any, look: Callable[[Any], tuple[float, str, int]], fresh: TensorDataset) -> Any:
    class Recorder(pl.Callback):  # type: ignore[misc]
        """Record what was published, and the loss on fresh data."""

        def __init__(self) -> None:
            self.epochs: list[Epoch] = []

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """Look once per epoch, after the guard has published."""
            x, y = (t.to(pl_module.device) for t in fresh.tensors)
            with torch.no_grad():
                losses = functional.cross_entropy(pl_module.layers(x), y, reduction="none")
            truth = float(losses.clamp(0, WORST).mean())
            self.epochs.append(Epoch(trainer.current_epoch + 1, *look(trainer), truth))

    return Recorder()
