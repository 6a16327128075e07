"""A guarded validation epoch against plain ``self.log``, in one run.

A holdout of 100,000 examples and a small MLP, evaluated by ``Trainer.validate``. Guarded, an epoch
also takes the training value of 10,000 examples, two fingerprints and one ledger transaction.
"""

import argparse
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_holdout as th
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_holdout.pytorch_lightning import HoldoutGuard
from torchmetrics import MeanMetric

import pytorch_lightning as pl

HOLDOUT, GUESS = 100_000, 10_000


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


def epoch(module: Net, data: Any, callbacks: list[Any]) -> Callable[[], float]:
    """Return a function that evaluates once and says how long it took."""
    trainer = pl.Trainer(
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        callbacks=callbacks,
    )

    def run() -> float:
        with torch.no_grad():
            module.layers[0].bias[0] += 1e-3  # other weights: a new query each time
        start = time.perf_counter()
        trainer.validate(module, data, verbose=False)
        return time.perf_counter() - start

    return run


def contenders(batch: int, folder: str) -> dict[str, Callable[[], float]]:
    """Return what is compared, by name."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{folder}/holdout{batch}.db",
        name="bench",
        size=HOLDOUT,
        statistics={"val_loss": th.BoundedMean(0.0, 5.0)},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.001, guess="train"),
        budget=10_000,
    )
    guard = HoldoutGuard(holdout, guess_dataloaders=loader(GUESS, batch))
    data = loader(HOLDOUT, batch)
    return {
        "guarded": epoch(Guarded(), data, [guard]),
        "self.log": epoch(Plain(), data, []),
        "MeanMetric": epoch(WithMetric(), data, []),
    }


def main() -> None:
    """Print one JSON line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="batch 500 only, few repetitions")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for batch in (500,) if quick else (500, 64):
        with tempfile.TemporaryDirectory() as folder:
            runs = contenders(batch, folder)
            for run in runs.values():
                run()
            rounds = [{n: run() for n, run in runs.items()} for _ in range(5 if quick else 11)]
        medians = {name: statistics.median(r[name] for r in rounds) for name in runs}
        for ours, theirs in (("guarded", "self.log"), ("MeanMetric", "self.log")):
            line = {
                "benchmark": "validation_epoch",
                "case": f"batch={batch}" if ours == "guarded" else f"batch={batch}, MeanMetric",
                "peer": theirs,
                "ratio": round(medians[ours] / medians[theirs], 3),
                "better": "lower",
                "ours": round(medians[ours], 4),
                "theirs": round(medians[theirs], 4),
                "unit": "s",
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
