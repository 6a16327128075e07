"""All members of an ensemble in one fit, against one Lightning fit each; and the step by itself."""

import argparse
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch_holdout.prediction import Partition
from torch_holdout.prediction.lightning import PartitionedDataModule, PartitionedEnsemble
from torch_holdout.prediction.members import Steps, stack_members

MEMBERS, BATCH, STEPS = 50, 16, 20
SHOWN = 8  # sequential fits that are timed; each costs the same
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
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def data(shape: tuple[int, ...]) -> TensorDataset:
    """Return records, about two epochs of batches' worth."""
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


def theirs(case: Case, records: TensorDataset) -> None:
    """Fit a few members one after the other."""
    for member in range(SHOWN):
        part = Subset(records, range(member, len(records), MEMBERS))
        loader = DataLoader(part, batch_size=BATCH, shuffle=True, drop_last=True)
        trainer().fit(Single(case[0]), loader)


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


def seconds(action: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    action()
    return time.process_time() - start


def medians(
    first: Callable[[], object], second: Callable[[], object], repetitions: int
) -> tuple[float, float]:
    """Time two actions in turns."""
    first(), second()
    pairs = [(seconds(first), seconds(second)) for _ in range(repetitions)]
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return mine, other


def report(case: str, peer: str, mine: float, other: float) -> None:
    """Print one JSON line, in microseconds of a member's step."""
    print(
        json.dumps(
            {
                "benchmark": "ensemble_training",
                "case": case,
                "peer": peer,
                "ratio": round(mine / other, 3),
                "better": "lower",
                "ours": round(1e6 * mine, 1),
                "theirs": round(1e6 * other, 1),
                "unit": "us per member and step",
            }
        )
    )


def main() -> None:
    """Print one JSON line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repetitions = 3 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    cases: dict[str, Case] = {"MLP 784-64-10": (mlp, (784,)), "CNN, 2 conv": (cnn, (1, 28, 28))}
    for name, case in cases.items():
        records = data(case[1])
        mine, other = medians(
            partial(ours, case, records), partial(theirs, case, records), repetitions
        )
        report(
            f"{name}, {MEMBERS} members, {STEPS} steps",
            "Lightning, one fit each",
            mine / (MEMBERS * STEPS),
            other / (SHOWN * STEPS),
        )
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MEMBERS, BATCH, 784, generator=generator)
    y = torch.randint(10, (MEMBERS, BATCH), generator=generator)
    mine, other = medians(stacked_step(x, y), handwritten_step(x, y), 10 * repetitions)
    report(
        f"MLP step alone, {MEMBERS} members", "by hand, baddbmm", mine / MEMBERS, other / MEMBERS
    )


if __name__ == "__main__":
    main()
