"""What two ranks run that answer one loader's queries together."""

import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.prediction import PrivacyBudget, PrivatePredictor, SoftMajority

from support.builders.members import Members, queries


def main(folder, count):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    predictor = PrivatePredictor(
        Members(),
        SoftMajority(eta=0.1),
        budget=PrivacyBudget(epsilon=4.0, delta=1e-5),
        ledger=f"sqlite:///{folder}/private.db",
        name="records",
    )
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False,
        enable_checkpointing=False,
    )  # fmt: skip
    labels = trainer.predict(predictor, DataLoader(TensorDataset(queries(count)), batch_size=4))
    torch.save(torch.cat(labels), Path(folder) / f"rank{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
