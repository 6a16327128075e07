"""Sensitive tables: all visits of a patient protected together.

Visits are spread over members by patient, so a patient is in one part whatever the number of
visits, and the promise is for adding or removing a whole patient. A service then answers questions
until its budget is gone; asking again about the same visit is free and gives the same answer.

    python examples/sensitive_records.py     # about ten seconds
    python examples/sensitive_records.py --ledger private.db

Look at who is protected (a user, not a record) and at the last line: a batch beyond the budget gets
no answer at all. Leaves no files, but the ledger if you name one; with it a second run goes on with
what the first has left.
"""

import argparse
from functools import partial

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional
from torch_holdout.prediction import (
    Partition,
    PartitionedDataModule,
    PartitionedEnsemble,
    PermuteAndFlip,
    PrivacyBudget,
    PrivatePredictor,
)

FEATURES = 12


class Visits(torch.utils.data.Dataset):
    """Generated visits: each patient has one to eight, with a bias of their own."""

    def __init__(self, patients, seed):
        generator = torch.Generator().manual_seed(seed)
        visits = torch.randint(1, 9, (patients,), generator=generator)
        self.patient = torch.repeat_interleave(torch.arange(patients), visits)
        bias = torch.randn(patients, generator=generator)[self.patient]
        self.x = torch.randn(len(self.patient), FEATURES, generator=generator)
        risk = self.x[:, 0] + self.x[:, 1] * self.x[:, 2] + 0.5 * bias
        self.y = (risk > 0.3).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        patient = f"patient-{int(self.patient[index])}"
        return {"patient": patient, "x": self.x[index], "y": self.y[index]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patients", type=int, default=5000)
    parser.add_argument("--parts", type=int, default=80)
    parser.add_argument("--ledger", help="a file; default: none, in memory")
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    ledger = f"sqlite:///{arguments.ledger}" if arguments.ledger else "memory://"
    pl.seed_everything(0, verbose=False)

    records, fresh = Visits(arguments.patients, seed=0), Visits(500, seed=1)
    parts = Partition(num_parts=arguments.parts, key=lambda r: r["patient"], unit="user", seed=7)
    print(parts)

    ensemble = PartitionedEnsemble(
        lambda: nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 2)),
        parts,
        loss=functional.cross_entropy,
        optimizer=partial(torch.optim.Adam, lr=3e-3),
    )
    data = PartitionedDataModule(
        records,
        parts,
        as_pair=lambda r: (r["x"], r["y"]),
        batch_size=32,
        steps_per_epoch=arguments.steps,
    )
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(ensemble, data)

    service = PrivatePredictor(
        ensemble,
        PermuteAndFlip(epsilon=0.1),  # the best label at a pure epsilon
        budget=PrivacyBudget(epsilon=10.0),
        ledger=ledger,
        name="visits-2026",
        on_exhausted="abstain",
        cache=1000,
    )
    print(service.plan())
    labels = service(fresh.x[:60], tenant="ward 3")
    again = service(fresh.x[:60], tenant="ward 3")
    right = (labels == fresh.y[:60]).float().mean()
    same = "the same" if (labels == again).all() else "something else"
    print(f"60 fresh visits: {right:.2f} right; asked again: {same}")
    print(service.status())
    beyond = service(fresh.x[60:160], tenant="ward 3")
    print(f"100 more at once: {'none answered' if (beyond == -2).all() else 'answered'}")


if __name__ == "__main__":
    main()
