"""A guarded validation epoch against plain ``self.log`` and ``MeanMetric``; one thread.

A holdout of 100,000 examples and a small MLP, evaluated by ``Trainer.validate``; and one of 5,000,
where what an evaluation costs whatever its size stands out. Guarded, an epoch also takes the
training value of a tenth as many examples, two fingerprints and one ledger transaction.
The guard's two nets (what is logged; marked tensors) are compared with the guard without them, and
that with itself (A/A), in turns; the data check is apart, because these batches have no records.
"""

import logging
import statistics
import tempfile
import time
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

HOLDOUT, SMALL = 100_000, 5_000


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


class WithoutNets(HoldoutGuard):
    """The guard, but nothing is looked at and Lightning's results are not trapped."""

    _looks = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Take the traps away again."""
        super().setup(trainer, pl_module, stage)
        saved = self._joined()._interception._saved
        for owner, name, before in [each for each in saved if isinstance(each[0], dict)]:
            saved.remove((owner, name, before))
            delattr(owner, name)


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


def guarded(kind: type[HoldoutGuard], size: int, batch: int, folder: str, name: str) -> Epoch:
    """Return a guarded epoch with an account of its own; a tenth of the size is for guesses."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{folder}/{name}.db",
        name=name,
        size=size,
        statistics={"val_loss": th.BoundedMean(0.0, 5.0)},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.001, guess="train"),
        budget=10_000,
    )
    guard = kind(holdout, guess_dataloaders=loader(size // 10, batch))
    return Epoch(Guarded(), loader(size, batch), [guard])


def contenders(size: int, batch: int, folder: str) -> dict[str, Epoch]:
    """Return what is compared, by name."""
    data = loader(size, batch)
    return {
        "guarded": guarded(HoldoutGuard, size, batch, folder, "bench"),
        "self.log": Epoch(Plain(), data, []),
        "MeanMetric": Epoch(WithMetric(), data, []),
    }


def silence() -> None:
    """Keep Lightning's advice out of the output."""
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def compare(case: str, size: int, batch: int, repetitions: int) -> None:
    """Print the guarded epoch against the others, in turns: time, and the processor's of it."""
    with tempfile.TemporaryDirectory() as folder:
        epochs = contenders(size, batch, folder)
        rounds = [[both(epoch) for epoch in epochs.values()] for _ in range(1 + repetitions)]
    for place, (what, unit) in enumerate((("", "s"), (", processor time", "CPU s"))):
        ours, *others = (
            statistics.median(took[place] for took in each)
            for each in zip(*rounds[1:], strict=True)
        )
        for peer, theirs in zip(list(epochs)[1:], others, strict=True):
            case_name = f"{case}{what}"
            report(
                "validation_epoch", case=case_name, peer=peer, ours=ours, theirs=theirs, unit=unit
            )


def both(epoch: Epoch) -> tuple[float, float]:
    """Run an epoch; return how long it took, and how long the processor worked."""
    start, computed = time.perf_counter(), time.process_time()
    epoch()
    return time.perf_counter() - start, time.process_time() - computed


def main() -> None:
    """Print one JSON line per comparison."""
    quick = asked_quick(__doc__)
    silence()
    torch.set_num_threads(1)
    for batch, repetitions in ((500, 21), (64, 11)):
        repetitions = 3 if quick else repetitions
        compare(f"{SMALL:,} examples, batch={batch}", SMALL, batch, repetitions)
    for batch, repetitions in ((500, 11), (64, 7)):
        size = 10_000 if quick else HOLDOUT
        compare(f"{size:,} examples, batch={batch}", size, batch, 3 if quick else repetitions)
        with tempfile.TemporaryDirectory() as folder:
            kinds = {"nets": HoldoutGuard, "without": WithoutNets, "again": WithoutNets}
            same = [guarded(kind, size, batch, folder, name) for name, kind in kinds.items()]
            nets, without, again = medians(
                *map(timed, same), repetitions=3 if quick else 2 * repetitions
            )
        report(
            "validation_epoch",
            case=f"both nets, {size:,} examples, batch={batch}",
            peer="the guard without them",
            ours=nets,
            theirs=without,
            unit="s",
            same_against_itself=round(again / without, 4),
        )


if __name__ == "__main__":
    main()
