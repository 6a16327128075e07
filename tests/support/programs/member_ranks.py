"""What spawned ranks run when they share the members of one ensemble."""

import importlib
import sys
import warnings
from pathlib import Path

import torch
from torch_holdout.prediction import Partition

from support.builders.ensembles import batch_norm, data, ensemble, trainer

PARTS = Partition(num_parts=5, key="index", seed=7)
QUERIES = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))


def main(folder, devices, package, scenario):
    folder = Path(folder)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    home = importlib.import_module(f"torch_holdout.prediction.{package.split('.')[0]}")
    pl = importlib.import_module(package)
    strategy = {"members": home.MemberParallelStrategy(), "ddp": "ddp"}[
        "ddp" if scenario == "ddp" else "members"
    ]
    found = ensemble(batch_norm, PARTS, kind=home.PartitionedEnsemble, clip_norm=1.0)
    datamodule = data(parts=PARTS, kind=home.PartitionedDataModule)
    checkpoint = pl.callbacks.ModelCheckpoint(folder / "kept", save_top_k=-1, filename="{epoch}")
    run = trainer(
        pl.Trainer,
        devices=devices,
        strategy=strategy if devices > 1 else "auto",
        max_epochs=4,
        callbacks=[checkpoint],
        enable_checkpointing=True,
    )
    resume = folder / "resume.ckpt"
    run.fit(found, datamodule=datamodule, ckpt_path=resume if resume.exists() else None)
    run.save_checkpoint(folder / "end.ckpt")
    kept = {
        "votes": found.votes_module()(QUERIES),
        "outputs": found.member_outputs(QUERIES),
        "state": found.state_dict(),
    }
    torch.save(kept, folder / f"rank{run.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
