"""A guarded validation epoch against plain ``self.log`` and ``MeanMetric``; one thread.

A holdout of 100,000 examples and a small MLP, evaluated by ``Trainer.validate``. Guarded, an epoch
also takes the training value of 10,000 more examples, two fingerprints and one ledger transaction.
"""

import logging
import tempfile
import warnings
from typing import Any

import torch
import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_holdout.pytorch_lightning import HoldoutGuard
from torchmetrics import MeanMetric

import pytorch_lightning as pl

HOLDOUT = 100_000


class Net(pl.LightningModule):
    """A classifier; subclasses differ in what they do with the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss of every example."""
        return functional.cross_entropy(self.layers(batch[0]), batch[1], reduction="none")


class Plain(Net):
    """What people write today."""

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Log the batch mean."""
        self.log("val_loss", self.losses(batch).mean())


class WithMetric(Net):
    """The same with a torchmetrics metric."""

    def __init__(self) -> None:
        super().__init__()
        self.metric = MeanMetric()

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Update and log the metric."""
        self.metric.update(self.losses(batch))
        self.log("val_loss", self.metric)


class Guarded(Net):
    """Per-example values for the guard."""

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> dict[str, Tensor]:
        """Return the loss of every example."""
        return {"val_loss": self.losses(batch)}


def loader(size: int, batch: int) -> Any:
    """Return batches that are ready, so that only the evaluation is timed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 32, generator=generator)
    y = torch.randint(10, (size,), generator=generator)
    return DataLoader(list(zip(x.split(batch), y.split(batch), strict=True)), batch_size=None)


class Epoch:
    """A module, its batches and a Trainer: what evaluates once when called."""

    def __init__(self, module: Net, data: Any, callbacks: list[Any]) -> None:
        self.module, self.data = module, data
        self.trainer = pl.Trainer(
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            devices=1,
            callbacks=callbacks,
        )

    def __call__(self) -> None:
        """Evaluate other weights than the last time: a new query."""
        with torch.no_grad():
            self.module.layers[0].bias[0] += 1e-3
        self.trainer.validate(self.module, self.data, verbose=False)


def contenders(size: int, batch: int, folder: str) -> dict[str, Epoch]:
    """Return what is compared, by name; a tenth of the size gives the training value."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{folder}/holdout.db",
        name="bench",
        size=size,
        statistics={"val_loss": th.BoundedMean(0.0, 5.0)},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.001, guess="train"),
        budget=10_000,
    )
    guard = HoldoutGuard(holdout, guess_dataloaders=loader(size // 10, batch))
    data = loader(size, batch)
    return {
        "guarded": Epoch(Guarded(), data, [guard]),
        "self.log": Epoch(Plain(), data, []),
        "MeanMetric": Epoch(WithMetric(), data, []),
    }


def silence() -> None:
    """Keep Lightning's advice out of the output."""
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def main() -> None:
    """Print one JSON line per comparison."""
    quick = asked_quick(__doc__)
    silence()
    torch.set_num_threads(1)
    for batch, repetitions in ((500, 11), (64, 7)):
        with tempfile.TemporaryDirectory() as folder:
            epochs = contenders(10_000 if quick else HOLDOUT, batch, folder)
            ours, *others = medians(
                *map(timed, epochs.values()), repetitions=3 if quick else repetitions
            )
        for peer, theirs in zip(list(epochs)[1:], others, strict=True):
            report(
                "validation_epoch",
                case=f"batch={batch}",
                peer=peer,
                ours=ours,
                theirs=theirs,
                unit="s",
            )


if __name__ == "__main__":
    main()
