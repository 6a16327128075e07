"""Train from a configuration: LightningCLI with a guarded validation set, on bundled digits.

    python examples/train.py fit --config configs/early_stopping.yaml
    python examples/train.py fit --config configs/early_stopping.yaml --guard.holdout.budget 5
    python examples/train.py fit --config configs/early_stopping.yaml --print_config

Every argument of the guard, its holdout, statistics and mechanism can be set in the file and on the
command line. A run takes about ten seconds and leaves ``lightning_logs`` and the ledger that the
file names, ``holdout.db``. The ledger outlives the run: the same seed repeats its answers for free,
another seed goes on with the budget where it was.
"""

import torch
import torch_holdout as th
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from plain_loop import digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard

import lightning as L  # noqa: N812


class Digits(L.LightningDataModule):
    """1,000 training and 797 validation digits.

    Args:
        batch_size: Of training and validation.
    """

    def __init__(self, batch_size: int = 50):
        super().__init__()
        self.batch_size = batch_size
        self.train_set, self.val_set = digits()

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)


class OddDigits(Digits):
    """The same digits; the target is whether the digit is odd."""

    def __init__(self, batch_size: int = 50):
        super().__init__(batch_size)
        self.train_set, self.val_set = (
            TensorDataset(part.tensors[0], part.tensors[1] % 2)
            for part in (self.train_set, self.val_set)
        )


class Classifier(L.LightningModule):
    """A small network that names the digit.

    Args:
        width: Of the hidden layer.
        lr: Learning rate.
        classes: How many outputs.
    """

    def __init__(self, width: int = 64, lr: float = 2e-3, classes: int = 10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))
        self.lr = lr

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
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Scorer(Classifier):
    """Scores how likely a digit is odd; AUROC is not a mean: rows go to the holdout by blocks."""

    def __init__(self, width: int = 64, lr: float = 2e-3):
        super().__init__(width, lr, classes=2)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return {"val_auroc": (self(x).softmax(1)[:, 1], y)}


class GuardedCLI(LightningCLI):
    """The usual command line, and one section more: ``guard``."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser):
        parser.add_lightning_class_args(HoldoutGuard, "guard")
        # Renaming the holdout does not refill its budget, because the data are recognised.
        parser.link_arguments(
            "data", "guard.holdout.fingerprint", compute_fn=of_validation, apply_on="instantiate"
        )
        # For --guard.holdout.mechanism.guess train.
        parser.link_arguments(
            "data", "guard.guess_dataloaders", compute_fn=of_training, apply_on="instantiate"
        )

    def instantiate_classes(self):
        try:
            super().instantiate_classes()
        except (th.HoldoutError, ValueError) as error:  # jsonargparse makes a ValueError of some
            self.parser.error(str(error))


def of_validation(data: Digits):
    return th.fingerprint(data.val_set)


def of_training(data: Digits):
    return DataLoader(th.fixed_subset(data.train_set, 500, seed=0), batch_size=500)


def main(args=None):
    cli = GuardedCLI(
        Classifier, Digits, subclass_mode_model=True, subclass_mode_data=True, args=args
    )
    guard = next(c for c in cli.trainer.callbacks if isinstance(c, HoldoutGuard))
    if cli.trainer.is_global_zero:
        print(f"\n{guard.holdout.status()}\n\n{guard.holdout.certificate()}")


if __name__ == "__main__":
    main()
