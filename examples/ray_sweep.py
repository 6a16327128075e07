"""A sealed Ray Tune sweep with Lightning: ASHA reads a display, the holdout shows nothing.

    python examples/ray_sweep.py    # about half a minute; starts Ray

A display cut from the training data steers the sweep. Each trial is one run of the sealed holdout;
trials beyond the budget end before they train. Look at the claim: the best of all trials and
epochs, with an interval that covers the choice, and the place of its weights. Without --ledger, the
ledger is in a new temporary folder, as are Ray's results.
"""

import argparse
import os
import tempfile
import warnings
from pathlib import Path

import ray
import torch
import torch_holdout as th
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard
from torch_holdout.tuning.ray import claim, closed_results, ranking, reporting, sharing

import lightning as L  # noqa: N812


def examples(size: int, seed: int) -> TensorDataset:
    """Two classes, one of them inside a ring."""
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.square().sum(1) > 3.4).long())


class Net(L.LightningModule):
    def __init__(self, rate, width):
        super().__init__()
        self.rate = rate
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        x, y = batch
        correct = self.layers(x).argmax(1) == y
        if dataloader_idx == 1:  # the display may be watched
            self.log("display_acc", correct.float().mean(), add_dataloader_idx=False)
            return None
        return {"val_acc": correct}  # per-example values, nothing logged

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def train(config, holdout):
    """One trial, on a worker; the holdout is a handle to the same account everywhere."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    guard = HoldoutGuard(holdout, public_dataloaders=(1,))
    trainer = L.Trainer(
        max_epochs=config["epochs"],
        callbacks=[guard, reporting(guard)],  # a checkpoint goes with each report
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    display, train_set = th.split(examples(1200, seed=1), display=1 / 6, seed=0)
    loaders = [DataLoader(part, batch_size=500) for part in (examples(1000, seed=2), display)]
    net = Net(config["rate"], config["width"])
    trainer.fit(net, DataLoader(train_set, batch_size=50, shuffle=True), loaders)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--budget", type=int, default=8, help="trials that may be evaluated")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ledger = arguments.ledger or folder / "holdout.db"

    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="ring-val",
        size=1000,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=arguments.epochs),
        budget=arguments.budget,
        fingerprint=th.fingerprint(examples(1000, seed=2)),
    )
    space = {"rate": tune.loguniform(1e-4, 1e-1), "width": tune.choice([8, 32])}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        results = tune.Tuner(
            sharing(train, holdout, display="display_acc"),
            param_space={**space, "epochs": arguments.epochs},
            tune_config=tune.TuneConfig(
                metric="display_acc",
                mode="max",
                scheduler=ASHAScheduler(max_t=arguments.epochs, grace_period=2),
                num_samples=arguments.trials,
            ),
            run_config=tune.RunConfig(storage_path=str(folder / "ray"), verbose=0),
        ).fit()
    finally:
        ray.shutdown()

    for result in results:
        print(f"{result.config}  last display_acc {result.metrics['display_acc']:.3f}")
    print(f"\n{holdout.status()}")
    holdout.close()
    print(f"\nThe claim:\n{claim(results, holdout)}")
    same = [each.trial for each in ranking(results, holdout)[1:] if not each.apart]
    print(f"Trials that cannot be told from it: {', '.join(same) or 'none'}")
    best = closed_results(results, holdout).get_best_result("val_acc", "max")
    print(f"Its configuration: {best.config}\n\nLedger: {ledger}")


if __name__ == "__main__":
    main()
