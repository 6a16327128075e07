"""Early stopping by decisions: a sealed run, then closing, with Lightning, on bundled digits.

    python examples/sealed_stopping.py                 # about ten seconds
    python examples/sealed_stopping.py --epsilon 1     # the same, private: no curve at the end

While it trains, nothing about a value is shown: the progress bar counts evaluations. The run stops
where raw early stopping would, its best weights are put back, and closing the holdout shows every
value with an interval; look at those of the best evaluation. A closed holdout cannot be used again,
so a second run with the same --ledger is refused. Without --ledger, the ledger and the weights are
in a new temporary folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import torch_holdout as th
from early_stopping import Net
from plain_loop import digits
from torch.utils.data import DataLoader
from torch_holdout.lightning import HoldoutGuard

import lightning as L  # noqa: N812


class FastNet(Net):
    def configure_optimizers(self):  # learns faster than it should, so that there is an end to find
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--epochs", type=int, default=40, help="at most")
    parser.add_argument("--patience", type=int, help="default: 5, or 20 with --epsilon")
    parser.add_argument("--epsilon", type=float, help="what the run may cost in privacy")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ledger = arguments.ledger or folder / "holdout.db"
    patience = arguments.patience or (5 if arguments.epsilon is None else 20)

    train_set, val_set = digits()
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-val",
        size=len(val_set),
        statistics={"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=arguments.epochs, epsilon=arguments.epsilon),
        budget=1,
        fingerprint=th.fingerprint(val_set),
    )
    guard = HoldoutGuard(holdout, stop=th.Patience("val_loss", patience=patience))
    trainer = L.Trainer(
        max_epochs=arguments.epochs,
        callbacks=[guard],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,  # the guard keeps the best weights
        enable_model_summary=False,
    )
    L.seed_everything(0)
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    try:
        trainer.fit(FastNet(), train_loader, DataLoader(val_set, batch_size=200))
    except th.HoldoutError as error:
        sys.exit(str(error))

    outcome = guard.outcome
    print(f"\nIt ended after {outcome.evaluations} evaluations, by: {outcome.reason}.")
    print(f"The best one is {outcome.best_evaluation}; its weights: {guard.best_model_path}\n")
    closing = holdout.close()
    print(closing)
    for value in closing.curve("val_acc"):
        mark = "  <- best by val_loss" if value.evaluation == outcome.best_evaluation else ""
        where = f"[{value.low:.3f}, {value.high:.3f}]"
        print(f"{value.evaluation:4d}  val_acc {value.value:.3f} in {where}{mark}")
    print(f"\nLedger: {ledger}")


if __name__ == "__main__":
    main()
