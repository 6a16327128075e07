"""Guard a module that nobody edits, from a configuration alone: LightningCLI, on bundled digits.

    python examples/train_unedited.py fit --config configs/logged_mean.yaml
    python examples/train_unedited.py fit --trainer.max_epochs 5

The module logs its batches' means, as most do, and neither it nor the command line knows of a
holdout: the first command's file adds a guard whose statistics are ``LoggedMean``. Look at what is
printed when the run ends: where it stopped, and not one value. The second command is the same
program without a guard. A run takes about ten seconds and leaves ``lightning_logs`` and the ledger
that the file names, ``logged.db``; ``torch-holdout close logged.db`` then shows the curves.
"""

import torch
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.nn import functional as F  # noqa: N812
from train import Digits

import lightning as L  # noqa: N812


class Unedited(L.LightningModule):
    """A network as it is found: its validation step logs means.

    Args:
        width: Of the hidden layer.
        lr: Learning rate.
    """

    def __init__(self, width: int = 64, lr: float = 2e-3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        self.lr = lr

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        logits = self.layers(batch[0])
        self.log("val_loss", F.cross_entropy(logits, batch[1]), prog_bar=True)
        self.log("val_acc", (logits.argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main(args=None):
    return LightningCLI(Unedited, Digits, args=args)


if __name__ == "__main__":
    main()
