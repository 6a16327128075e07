"""Early stopping and checkpoints on a guarded validation loss, with Lightning, on bundled digits.

    python examples/early_stopping.py                        # about ten seconds
    python examples/early_stopping.py --ledger holdout.db    # again: the budget goes on

Look at ``left`` in the progress bar, and at the certificate at the end: what the numbers are
worth. The ledger outlives the run. Every run trains other weights and spends most of the
budget; when it is gone, a run stops, and the next one is refused. Without --ledger, the ledger and
the checkpoint are in a new temporary folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import torch_holdout as th
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from plain_loop import digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader
from torch_holdout.lightning import HoldoutGuard

import lightning as L  # noqa: N812


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):  # per-example values, nothing logged
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, reduction="none")
        return {"val_loss": loss, "val_acc": logits.argmax(1) == y}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--budget", type=int, default=40, help="releases, for all runs together")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ledger = arguments.ledger or folder / "holdout.db"

    train_set, val_set = digits()
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-val",
        size=len(val_set),
        statistics={
            "val_loss": th.BoundedMean(0.0, 5.0),
            "val_acc": th.BoundedMean(0.0, 1.0, mode="max"),
        },
        mechanism=th.Thresholdout(threshold=0.005, sigma=0.0003, guess="last"),
        budget=arguments.budget,
        fingerprint=th.fingerprint(val_set),
    )
    checkpoint = ModelCheckpoint(folder / "checkpoints", monitor="val_loss")
    trainer = L.Trainer(
        max_epochs=arguments.epochs,
        callbacks=[HoldoutGuard(holdout), EarlyStopping("val_loss", patience=10), checkpoint],
        logger=False,
        enable_model_summary=False,
    )
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    try:
        trainer.fit(Net(), train_loader, DataLoader(val_set, batch_size=200))
    except th.BudgetExhaustedError as error:
        sys.exit(str(error))

    print(f"\nBest checkpoint: {checkpoint.best_model_path}")
    print(f"Its published val_loss: {float(checkpoint.best_model_score):.3f}\n")
    print(f"{holdout.status()}\n\n{holdout.certificate()}\n\nLedger: {ledger}")


if __name__ == "__main__":
    main()
