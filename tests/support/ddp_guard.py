"""What two spawned ranks run; importable, so that it can be pickled."""

import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard

SIZE = 501


def data():
    x = torch.linspace(-1, 1, SIZE)[:, None].repeat(1, 3)
    return TensorDataset(x, torch.arange(SIZE))


class Net(pl.LightningModule):
    """BatchNorm, a plateau scheduler, and a statistic that ignores how batches are cut."""

    def __init__(self, folder, lr):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(0.3)
        self.folder, self.lr = str(folder), lr

    def training_step(self, batch, _):
        return self.layers(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.layers(batch[0])
        return {"first": (batch[1] == 0), "value": batch[1] / SIZE}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=9.0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "value"},
        }

    def on_train_end(self):
        found = {
            "metrics": {k: float(v) for k, v in self.trainer.callback_metrics.items()},
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            "weights": [float(p.double().sum()) for p in self.parameters()],
        }
        Path(self.folder, f"rank{self.trainer.global_rank}.json").write_text(json.dumps(found))


def holdout(folder, **changes):
    arguments = {
        "name": "val",
        "size": SIZE,
        "statistics": {"first": th.BoundedMean(0, 1), "value": th.BoundedMean(0, 1)},
        "mechanism": th.Thresholdout(threshold=0.0, sigma=0.01, guess="last"),
        "budget": 40,
        "seed": 7,
    }
    return th.ReusableHoldout(f"sqlite:///{folder}/holdout.db", **{**arguments, **changes})


def main(folder, devices, scenario):
    folder = Path(folder)
    changes, options, epochs = {}, {}, 3
    guess = None
    if scenario == "guess":
        changes["mechanism"] = th.Thresholdout(threshold=0.0, sigma=0.01, guess="train")
        guess = DataLoader(th.fixed_subset(data(), 101, seed=0), batch_size=25)
    if scenario == "exhausted":
        changes["budget"], options = 3, {"on_exhausted": "raise"}
    lr = 0.1 if scenario == "train" else 0.0
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[HoldoutGuard(holdout(folder, **changes), guess_dataloaders=guess, **options)],
    )
    loader = DataLoader(data(), batch_size=40)
    train = DataLoader(data(), batch_size=50, drop_last=True)
    trainer.fit(Net(folder, lr), train, loader)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
