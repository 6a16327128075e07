"""Early stopping under DDP: two processes, one holdout, one charge for each evaluation.

    python examples/ddp.py                        # about 20 seconds; two CPU processes (gloo)
    python examples/ddp.py --ledger holdout.db    # again: the budget goes on where it was

Each process evaluates its share of the holdout (padded examples count once), rank 0 asks, and both
get the same number. Look at the columns "rank 0" and "rank 1", and at "asked": one query for each
epoch and statistic, not one for each process. Without --ledger the ledger is in a new temporary
folder.
"""

import argparse
import tempfile
from pathlib import Path

import torch_holdout as th
from early_stopping import Net
from lightning.pytorch.callbacks import Callback, EarlyStopping
from plain_loop import digits
from torch.utils.data import DataLoader
from torch_holdout.lightning import HoldoutGuard

import lightning as L  # noqa: N812


class Compare(Callback):
    """Prints what each rank was told."""

    def __init__(self, guard):
        self.guard = guard

    def on_fit_start(self, trainer, pl_module):
        if trainer.is_global_zero:
            print("epoch   rank 0   rank 1   what it is   asked   releases left", flush=True)

    def on_validation_end(self, trainer, pl_module):
        if trainer.sanity_checking:
            return
        told = pl_module.all_gather(trainer.callback_metrics["val_acc"])  # one number of each rank
        if trainer.is_global_zero:
            answer, status = self.guard.answers["val_acc"], self.guard.holdout.status()
            print(
                f"{trainer.current_epoch + 1:5d}  {told[0]:7.4f}  {told[1]:7.4f}   "
                f"{answer.kind:10s}   {status.queries:5d}   {status.budget_left:13d}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    ledger = arguments.ledger or Path(tempfile.mkdtemp()) / "holdout.db"
    train_set, val_set = digits()
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-val",
        size=len(val_set),
        statistics={"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.03, sigma=0.003, guess="last"),
        budget=40,
        fingerprint=th.fingerprint(val_set),
    )
    guard = HoldoutGuard(holdout)
    trainer = L.Trainer(
        strategy="ddp_spawn",  # the same for "ddp" and torchrun, if all ranks name one ledger
        devices=2,
        accelerator="cpu",
        max_epochs=arguments.epochs,
        callbacks=[guard, EarlyStopping("val_loss", patience=8), Compare(guard)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Net(),
        DataLoader(train_set, batch_size=25, shuffle=True),
        DataLoader(val_set, batch_size=100),
    )
    print(f"\n{holdout.status()}\n\nLedger: {ledger}")


if __name__ == "__main__":
    main()
