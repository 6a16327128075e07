"""All members of an ensemble in one fit, against one fit each; and the step by itself.

One thread, CPU time. A peer fits a few members only: each costs the same.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from _measure import asked_quick, medians, report, timed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch_holdout.prediction import Partition
from torch_holdout.prediction.ensemble.members import Steps, stack_members
from torch_holdout.prediction.lightning import PartitionedDataModule, PartitionedEnsemble

MEMBERS, BATCH, STEPS, EPOCHS = 50, 16, 20, 5
SHOWN = 8  # sequential fits that are timed
ADAM = partial(torch.optim.Adam, lr=1e-3)
Case = tuple[Callable[[], nn.Module], tuple[int, ...]]


def mlp() -> nn.Module:
    """784-64-10."""
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 36, 10),
    )  # fmt: skip


class Single(pl.LightningModule):
    """One member, the plain way."""

    def __init__(self, model_fn: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.model = model_fn()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        return cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam, as the ensemble does."""
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)


def trainer() -> pl.Trainer:
    """Return a Trainer without extras."""
    return pl.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def data(shape: tuple[int, ...]) -> TensorDataset:
    """Return records: one epoch is ``STEPS`` batches of every member."""
    generator = torch.Generator().manual_seed(0)
    size = MEMBERS * BATCH * STEPS
    return TensorDataset(
        torch.randn(size, *shape, generator=generator),
        torch.randint(10, (size,), generator=generator),
    )


def ours(case: Case, records: TensorDataset) -> None:
    """Fit all members at once."""
    parts = Partition(num_parts=MEMBERS, key="index", seed=7)
    ensemble = PartitionedEnsemble(case[0], parts, loss=cross_entropy, optimizer=ADAM)
    datamodule = PartitionedDataModule(records, parts, batch_size=BATCH, steps_per_epoch=STEPS)
    trainer().fit(ensemble, datamodule=datamodule)


def loaders(records: TensorDataset) -> Iterator[DataLoader[Any]]:
    """Return the batches of a few members."""
    for member in range(SHOWN):
        part = Subset(records, range(member, len(records), MEMBERS))
        yield DataLoader(part, batch_size=BATCH, shuffle=True, drop_last=True)


def lightning_fits(case: Case, records: TensorDataset) -> None:
    """Fit a few members one after the other."""
    for loader in loaders(records):
        trainer().fit(Single(case[0]), loader)


def plain_fits(case: Case, records: TensorDataset) -> None:
    """Fit a few members one after the other, without Lightning."""
    for loader in loaders(records):
        model = case[0]()
        optimizer = ADAM(model.parameters(), fused=True)
        for _ in range(EPOCHS):
            for x, y in loader:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()


def stacked_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return one training step of the ensemble, without Trainer and loader."""
    members = stack_members(mlp, MEMBERS, seed=0)
    optimizer = ADAM(members.parameters(), fused=True)
    steps = Steps(template=members, loss=cross_entropy, backend="vmap")

    def step() -> None:
        optimizer.zero_grad()
        steps.losses(x, y, "step").sum().backward()
        optimizer.step()

    return step


def handwritten_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return the same step with baddbmm."""
    first, second = nn.Linear(784, 64), nn.Linear(64, 10)
    weights = [
        nn.Parameter(tensor.detach().expand(MEMBERS, *tensor.shape).contiguous())
        for tensor in (first.weight.T, first.bias[None], second.weight.T, second.bias[None])
    ]
    optimizer = ADAM(weights, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        hidden = torch.baddbmm(weights[1], x, weights[0]).relu()
        output = torch.baddbmm(weights[3], hidden, weights[2])
        losses = cross_entropy(output.flatten(0, 1), y.flatten(), reduction="none")
        losses.view(MEMBERS, BATCH).mean(dim=1).sum().backward()
        optimizer.step()

    return step


def compare(
    case: str, sides: dict[str, Callable[[], None]], steps: list[int], repetitions: int
) -> None:
    """Print one JSON line for each peer, in CPU time of a member's step; ours is the first side."""
    actions = (timed(action, time.process_time) for action in sides.values())
    times = medians(*actions, repetitions=repetitions)
    ours, *others = (1e6 * found / count for found, count in zip(times, steps, strict=True))
    unit = "CPU us per member and step"
    for peer, theirs in zip(list(sides)[1:], others, strict=True):
        report("ensemble_training", case=case, peer=peer, ours=ours, theirs=theirs, unit=unit)


def main() -> None:
    """Print one JSON line for each comparison."""
    repetitions = 1 if asked_quick(__doc__) else 5
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    cases: dict[str, Case] = {"MLP 784-64-10": (mlp, (784,)), "CNN, 2 conv": (cnn, (1, 28, 28))}
    for name, case in cases.items():
        records = data(case[1])
        sides = {
            "ours": partial(ours, case, records),
            "Lightning, one fit each": partial(lightning_fits, case, records),
            "a plain loop for each": partial(plain_fits, case, records),
        }
        steps = [count * STEPS * EPOCHS for count in (MEMBERS, SHOWN, SHOWN)]
        case_name = f"{name}, {MEMBERS} members, {STEPS * EPOCHS} steps"
        compare(case_name, sides, steps, repetitions)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MEMBERS, BATCH, 784, generator=generator)
    y = torch.randint(10, (MEMBERS, BATCH), generator=generator)
    step = {"ours": stacked_step(x, y), "by hand, baddbmm": handwritten_step(x, y)}
    compare(f"MLP step alone, {MEMBERS} members", step, [MEMBERS, MEMBERS], 10 * repetitions)


if __name__ == "__main__":
    main()
