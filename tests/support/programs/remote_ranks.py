"""Two ranks that Lightning starts, with a guard on a board: ``remote_ranks.py folder 2 URL``.

Each rank writes ``rank<n>.json``: what callbacks were shown after each validation.
"""

import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch_holdout as th
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard

from support.builders.unlabelled import inputs, labels, predicting


class Written(pl.Callback):
    """Keeps what callbacks are shown, and writes it when the fit ends."""

    def __init__(self, folder):
        self.folder, self.seen = Path(folder), []

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.seen.append({k: float(v) for k, v in trainer.callback_metrics.items()})

    def on_fit_end(self, trainer, pl_module):
        place = self.folder / f"rank{trainer.global_rank}.json"
        place.write_text(json.dumps(self.seen))


def main(folder, devices, url, rows, epochs):
    torch.manual_seed(0)
    guard = HoldoutGuard(th.remote(url, wait=60).holdout(), on_exhausted="freeze")
    run = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[guard, Written(folder)],
    )
    x = inputs(200, seed=1)
    train = DataLoader(TensorDataset(x, labels(x)), batch_size=20)
    run.fit(predicting(), train, DataLoader(TensorDataset(inputs(rows)), batch_size=30))


if __name__ == "__main__":
    folder, devices, url, rows, epochs = sys.argv[1:]
    main(folder, int(devices), url, int(rows), int(epochs))
