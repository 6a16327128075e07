"""Several runs on one holdout, stopped by a display set; the holdout is silent until closing.

    python examples/display_runs.py                                    # about twenty seconds
    python examples/display_runs.py --ledger holdout.db --keep-open    # three runs
    python examples/display_runs.py --ledger holdout.db                # three more, then closing

A fifth of the validation digits is the display: EarlyStopping watches it, and may. The other four
fifths are sealed; each run evaluates them at every epoch and shows nothing. Closing names the best
run and epoch of all, with an interval, and which runs cannot be told from it. Look at the status
before closing: many evaluations, and nothing was said. Without --ledger, the ledger and the
weights are in a new temporary folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import torch_holdout as th
from lightning.pytorch.callbacks import EarlyStopping
from plain_loop import digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader
from torch_holdout.lightning import HoldoutGuard

import lightning as L  # noqa: N812

WIDTHS = (16, 32, 64)


class Net(L.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        logits = self.layers(batch[0])
        loss = F.cross_entropy(logits, batch[1], reduction="none")
        if dataloader_idx == 1:  # the display
            self.log("display_loss", loss.mean(), add_dataloader_idx=False)
            return None
        return {"val_loss": loss, "val_acc": logits.argmax(1) == batch[1]}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--epochs", type=int, default=40, help="at most, in each run")
    parser.add_argument("--keep-open", action="store_true", help="do not close the holdout")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ledger = arguments.ledger or folder / "holdout.db"

    train_set, val_set = digits()
    display, sealed = th.split(val_set, display=0.2, seed=0)
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-val",
        size=len(sealed),
        statistics={"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=40),
        budget=20,
        fingerprint=th.fingerprint(sealed),  # registers the cut
    )
    loaders = [DataLoader(sealed, batch_size=200), DataLoader(display, batch_size=200)]
    for width in WIDTHS:
        trainer = L.Trainer(
            max_epochs=arguments.epochs,
            callbacks=[
                HoldoutGuard(holdout, public_dataloaders=(1,), run=f"width {width}"),
                EarlyStopping("display_loss", patience=5),
            ],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        L.seed_everything(width, verbose=False)
        try:
            trainer.fit(Net(width), DataLoader(train_set, batch_size=50, shuffle=True), loaders)
        except th.HoldoutError as error:
            sys.exit(str(error))
        shown = float(trainer.callback_metrics["display_loss"])
        print(f"width {width}: {trainer.current_epoch} epochs, last display loss {shown:.3f}")

    print(f"\n{holdout.status()}\n")
    if not arguments.keep_open:
        closing = holdout.close()
        print(closing)
        best = closing.best_with_weights
        net = Net(next(w for w in WIDTHS if closing.runs[best.run - 1].name == f"width {w}"))
        closing.load_best(net)
        print(f"\nThe weights of run {best.run}, evaluation {best.evaluation}, are loaded.")
    print(f"\nLedger: {ledger}")


if __name__ == "__main__":
    main()
