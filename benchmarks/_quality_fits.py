"""The ways of ``quality.py``: the same training, stopped and chosen by other things."""

import logging
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
import torch_holdout as th
from _quality_tasks import Examples, Task, loader
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor
from torch_holdout.holdout.closing import ClosedValue
from torch_holdout.mechanisms import Mechanism
from torch_holdout.pytorch_lightning import HoldoutGuard

import pytorch_lightning as pl

EPOCHS = 200  # also the evaluations that a sealed run plans
PATIENCE, DISPLAY_PATIENCE, PRIVATE_PATIENCE = 10, 20, 20
RELEASES, RUNS, DISPLAY = 20, 20, 0.2
NAME, SHOWN = "val", "display"
Weights = dict[str, Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The model that one way has chosen.

    Attributes:
        weights: Its parameters.
        epochs: How long the fit ran.
        certified: Half-width before closing, normalised; None for raw values.
        closed: The chosen model's value and interval after closing; None if it has none.
    """

    weights: Weights
    epochs: int
    certified: float | None = None
    closed: ClosedValue | None = None


class Net(pl.LightningModule):
    """The task's network; plain code logs the mean of the clipped values of the holdout."""

    def __init__(self, task: Task, inputs: int) -> None:
        super().__init__()
        self.task = task
        self.layers = task.network(inputs)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        return self.task.loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> Any:
        """Log the raw mean."""
        self.log(NAME, self.task.mean(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.task.rate)


class Guarded(Net):
    """The same for a guard; a second loader is a display, whose mean may be watched."""

    def validation_step(
        self, batch: tuple[Tensor, Tensor], _: int, dataloader_idx: int = 0
    ) -> dict[str, Tensor] | None:
        """Return the holdout's values, or log the display's mean."""
        outputs = self.layers(batch[0])
        if dataloader_idx == 0:
            return {NAME: self.task.values(outputs, batch[1])}
        self.log(SHOWN, self.task.mean(outputs, batch[1]), add_dataloader_idx=False)
        return None


class Fresh(pl.Callback):
    """Record the value on fresh examples after every epoch, for the oracle alone."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.values: list[float] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate; nothing of it goes back into training."""
        self.values.append(fresh_value(pl_module, self.examples))


@final
class Setting:
    """A task with one seed: its data, and a fresh start of the same training for every way."""

    def __init__(self, task: Task, seed: int, epochs: int, folder: Path) -> None:
        self.task, self.seed, self.epochs, self.folder = task, seed, epochs, folder
        self.train, self.holdout, self.fresh = task.parts(seed)
        self._ways = 0

    def net(self, kind: type[Net]) -> Net:
        """Return the network with the same initial weights every time."""
        torch.manual_seed(self.seed)
        return kind(self.task, self.train.x.shape[1])

    def place(self) -> Path:
        """Return a new folder."""
        self._ways += 1
        return self.folder / str(self._ways)

    def account(self, mechanism: Mechanism, *, size: int, budget: int) -> th.ReusableHoldout:
        """Return a new account with one statistic."""
        return th.ReusableHoldout(
            f"sqlite:///{self.place()}.db", name="holdout", size=size, mechanism=mechanism,
            statistics={NAME: self.task.statistic}, budget=budget,
        )  # fmt: skip

    def fit(self, net: Net, callbacks: list[Any], validation: Any, train: Any = None) -> pl.Trainer:
        """Train with the same order of batches every time."""
        saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
        train = self.train if train is None else train
        trainer = pl.Trainer(
            max_epochs=self.epochs, callbacks=callbacks, default_root_dir=self.place(),
            accelerator="cpu", devices=1, logger=False, enable_checkpointing=saves,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(net, loader(train, self.task.batch, seed=self.seed), validation)
        return trainer

    def watchers(self, name: str, patience: int, min_delta: float = 0.0) -> list[Any]:
        """Return the two callbacks that people take."""
        mode = self.task.statistic.mode
        return [
            EarlyStopping(name, patience=patience, min_delta=min_delta, mode=mode),
            ModelCheckpoint(self.place(), monitor=name, mode=mode, save_weights_only=True),
        ]


def oracle(setting: Setting) -> list[float]:
    """Return the fresh value of every epoch, of training that nothing stops."""
    fresh = Fresh(setting.fresh)
    setting.fit(setting.net(Net), [fresh], None)
    return fresh.values


def raw(setting: Setting) -> Chosen:
    """EarlyStopping and ModelCheckpoint on plain logged values."""
    watchers = setting.watchers(NAME, PATIENCE)
    trainer = setting.fit(setting.net(Net), watchers, loader(setting.holdout))
    return Chosen(weights=_saved(watchers[1]), epochs=trainer.current_epoch)


def live(setting: Setting) -> Chosen:
    """The same callbacks on the values of a plan: 20 releases, its patience and min_delta."""
    size = len(setting.holdout)
    plan = th.plan(size=size, queries=EPOCHS, budget=RELEASES)
    holdout = setting.account(plan.mechanism, size=size, budget=plan.budget)
    watchers = setting.watchers(NAME, plan.patience, plan.min_delta * setting.task.range)
    guard = HoldoutGuard(holdout)
    validation = loader(setting.holdout)
    trainer = setting.fit(setting.net(Guarded), [guard, *watchers], validation)
    certified = holdout.certificate().tolerance
    return Chosen(weights=_saved(watchers[1]), epochs=trainer.current_epoch, certified=certified)


def sealed(setting: Setting) -> Chosen:
    """One sealed run, stopped by the guard; the interval is that of its best evaluation."""
    return _sealed(setting, th.Sealed(evaluations=EPOCHS), PATIENCE)


def private(setting: Setting) -> Chosen:
    """One sealed run whose stop and choice cost epsilon 1; closing shows no value of it."""
    return _sealed(setting, th.Sealed(evaluations=EPOCHS, epsilon=1.0), PRIVATE_PATIENCE)


def display(setting: Setting) -> Chosen:
    """One of 20 runs that a fifth of the holdout stops; the best of the rest, at closing."""
    shown, rest = th.split(setting.holdout, display=DISPLAY, seed=setting.seed)
    holdout = setting.account(th.Sealed(evaluations=EPOCHS), size=len(rest), budget=RUNS)
    mode = setting.task.statistic.mode
    stopping = EarlyStopping(SHOWN, patience=DISPLAY_PATIENCE, mode=mode)
    guard = HoldoutGuard(holdout, public_dataloaders=(1,))
    net = setting.net(Guarded)
    trainer = setting.fit(net, [guard, stopping], [loader(rest), loader(shown)])
    certified = holdout.certificate().tolerance
    best = holdout.close().load_best(net)
    return Chosen(
        weights=copied(net), epochs=trainer.current_epoch, certified=certified, closed=best
    )


WAYS: dict[str, Callable[[Setting], Chosen]] = {
    "raw values": raw,
    "live plan": live,
    "sealed": sealed,
    "sealed, epsilon 1": private,
    "display-stopped": display,
}


def fresh_value(net: Any, examples: Examples) -> float:
    """Return the mean of the clipped values on fresh examples."""
    with torch.no_grad():
        return float(net.task.mean(net.layers(examples.x), examples.y))


def quietly(folder: str | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Use one thread, silence what fits say, and return a folder for their files."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "lightning_fabric", "torch_holdout"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return tempfile.TemporaryDirectory(dir=folder)


def fresh_query(size: int, failure: float = 0.05) -> float:
    """Return the half-width of one query asked once: Hoeffding, normalised."""
    return math.sqrt(math.log(2 / failure) / (2 * size))


def _sealed(setting: Setting, mechanism: th.Sealed, patience: int) -> Chosen:
    holdout = setting.account(mechanism, size=len(setting.holdout), budget=1)
    guard = HoldoutGuard(holdout, stop=th.Patience(NAME, patience))
    net = setting.net(Guarded)
    trainer = setting.fit(net, [guard], loader(setting.holdout))
    certified = holdout.certificate().tolerance
    closing = holdout.close()
    number = guard.outcome.best_evaluation if guard.outcome else None
    best = next((v for v in closing.values if v.evaluation == number), None)
    return Chosen(
        weights=copied(net), epochs=trainer.current_epoch, certified=certified, closed=best
    )


def _saved(checkpoint: ModelCheckpoint) -> Weights:
    content = torch.load(checkpoint.best_model_path, map_location="cpu", weights_only=True)
    weights: Weights = content["state_dict"]
    return weights


def copied(net: Net) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
