"""A guarded Lightning run whose validation set has no labels: a board in another process has them.

    python examples/remote_guard.py               # about 20 seconds, on scikit-learn's digits
    python examples/remote_guard.py --epochs 10   # shorter

Stands in for two machines: the host's, which has the labels and serves a board, and the team's,
which trains. Look at the step: it returns predictions, one request is sent for each validation, and
EarlyStopping reads what came back. The board is in a new temporary folder.
"""

import argparse
import logging
import os
import tempfile
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch_holdout as th
from leaderboard import hosted
from lightning.pytorch.callbacks import EarlyStopping
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard

TELLING = 'mode = "ladder"\nbaseline = 0.5\nstep = 0.01'
LIMITS = "teams = 1\nsubmissions = 100\nreleases = 30\nbudget = 30"


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return functional.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        (x,) = batch  # there is no y
        return {"accuracy": self(x)}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.manual_seed(0)

    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    train = TensorDataset(x[:900], torch.tensor(data.target[:900]))
    inputs = TensorDataset(x[900:])
    labels = data.target[900:]  # the host's alone

    folder = Path(tempfile.mkdtemp()) / "board"
    with hosted(folder, labels, public=0.5, feedback=TELLING, limits=LIMITS) as (url, new_team):
        os.environ["TORCH_HOLDOUT_TOKEN"] = new_team("alpha")
        board = th.remote(url)
        guard = HoldoutGuard(board.holdout())
        net = Net()
        trainer = pl.Trainer(
            callbacks=[guard, EarlyStopping("accuracy", mode="max", patience=8)],
            max_epochs=arguments.epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(net, DataLoader(train, 50, shuffle=True), DataLoader(inputs, 200))
        told = guard.answers["accuracy"]
        print(f"ended after {trainer.current_epoch} epochs; told last: {told.value:.4f}")
        status = board.status()
        print(f"{status.position} submissions; left: {status.quota}")

        net.eval()
        with torch.no_grad():
            answer = board.submit(net(x[900:]).argmax(1), final=True)
        print(f"the last weights, named a finalist: {answer.kind}, position {answer.position}")


if __name__ == "__main__":
    main()
