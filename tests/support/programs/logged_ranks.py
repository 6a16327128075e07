"""What ranks of Lightning's DDP run: a module that logs its means, guarded by ``LoggedMean``.

``python logged_ranks.py folder 1,2 logged`` forks the ranks; each writes what it was told.
"""

import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard
from torchmetrics.classification import BinaryAccuracy

from support.programs import ddp_guard
from support.programs.ddp_guard import holdout, trainer_of

SIZE, BATCH = 120, 10
EXACT = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")


def loader(size=SIZE):
    x = torch.linspace(-1, 1, size)[:, None]
    return DataLoader(TensorDataset(x, (x[:, 0] > 0.3).long()), batch_size=BATCH)


class Logs(pl.LightningModule):
    """A mean as a tensor, and a metric that would be averaged over ranks."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.accuracy = BinaryAccuracy()

    def validation_step(self, batch, _):
        scores = self.scale * batch[0][:, 0]
        self.log("value", scores.abs().mean(), sync_dist=True, on_step=True, on_epoch=True)
        self.accuracy.update(scores.sigmoid(), batch[1])
        self.log("correct", self.accuracy)


class Counts(Logs):
    """The metric alone."""

    def validation_step(self, batch, _):
        self.accuracy.update((self.scale * batch[0][:, 0]).sigmoid(), batch[1])
        self.log("correct", self.accuracy)


def statistics(ranks):
    return {
        "value": th.LoggedMean(0.0, 1.0, batch_size=BATCH, ranks=ranks),
        "correct": th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one"),
    }


def account(folder, name, ranks, size=SIZE, **changes):
    facts = {"name": name, "size": size, "mechanism": EXACT, "grid": size * 65536}
    return holdout(folder, statistics=statistics(ranks), **{**facts, **changes})


def validated(world, guard, data, module=Logs, **options):
    try:
        trainer_of(world, [guard], **options).validate(module(), data, verbose=False)
    except th.HoldoutError as error:
        return f"{type(error).__name__}: {error}"
    return {name: (answer.value, answer.kind) for name, answer in guard.answers.items()}


def logged(rank, world, folder):
    """Shares of the ranks, copies on every rank, and what is refused on all of them."""
    found = {}
    shares = account(folder, "shares", world)
    found["shares"] = validated(world, HoldoutGuard(shares), loader())
    found["again"] = validated(world, HoldoutGuard(shares), loader())
    copies = account(folder, "copies", 1)
    found["copies"] = validated(
        world, HoldoutGuard(copies), loader(), use_distributed_sampler=False
    )
    others = account(folder, "others", 3 - world)
    found["other ranks"] = validated(world, HoldoutGuard(others), loader())
    counted = {"correct": statistics(1)["correct"]}
    padded = holdout(folder, name="padded", size=SIZE + 1, statistics=counted, mechanism=EXACT)
    found["padded"] = validated(world, HoldoutGuard(padded), loader(SIZE + 1), Counts)
    found["queries"] = [each.status().queries for each in (shares, copies, others, padded)]
    return found


if __name__ == "__main__":
    ddp_guard.SCENARIOS |= {"logged": logged}
    folder, worlds, scenario = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    print(json.dumps([ddp_guard.group_of(folder, int(n), scenario) for n in worlds]))
