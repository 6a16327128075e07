"""A small Ray Tune sweep with Lightning: trials on two workers share one holdout.

    python examples/ray_sweep.py                        # about half a minute; starts Ray
    python examples/ray_sweep.py --ledger holdout.db    # again: the budget is not refilled

ASHA reads only what the holdout published; when the budget is gone, trials end. Look at the claim:
a released value with its interval, not the best of everything seen. Without --ledger, the ledger
is in a new temporary folder, as are Ray's results.
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
from torch_holdout.errors import HoldoutError
from torch_holdout.lightning import HoldoutGuard
from torch_holdout.tuning.ray import claim, reporting, sharing

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
        x, y = batch
        return F.cross_entropy(self.layers(x), y)

    def validation_step(self, batch, batch_idx):  # per-example values, nothing logged
        x, y = batch
        return {"val_acc": self.layers(x).argmax(1) == y}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def train(config, holdout):
    """One trial, on a worker; the holdout is a handle to the same account everywhere."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    guard = HoldoutGuard(holdout)
    trainer = L.Trainer(
        max_epochs=config["epochs"],
        callbacks=[guard, reporting(guard, ["val_acc"])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train_loader = DataLoader(examples(1000, seed=1), batch_size=50, shuffle=True)
    val_loader = DataLoader(examples(1000, seed=2), batch_size=500)
    trainer.fit(Net(config["rate"], config["width"]), train_loader, val_loader)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--budget", type=int, default=20)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ledger = arguments.ledger or folder / "holdout.db"

    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="ring-val",
        size=1000,
        statistics={"val_acc": th.BoundedMean(0.0, 1.0, mode="max")},
        mechanism=th.Thresholdout(threshold=0.04, sigma=0.004, guess="last"),
        budget=arguments.budget,
        fingerprint=th.fingerprint(examples(1000, seed=2)),
    )
    space = {
        "rate": tune.loguniform(1e-4, 1e-1),
        "width": tune.choice([8, 32]),
        "epochs": arguments.epochs,
    }
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        scheduler = ASHAScheduler(max_t=arguments.epochs, grace_period=2)
        results = tune.Tuner(
            sharing(train, holdout),
            param_space=space,
            tune_config=tune.TuneConfig(
                metric="val_acc", mode="max", scheduler=scheduler, num_samples=arguments.trials
            ),
            run_config=tune.RunConfig(storage_path=str(folder / "ray"), verbose=0),
        ).fit()
    finally:
        ray.shutdown()

    for result in results:
        config, metrics = result.config, result.metrics
        print(
            f"rate {config['rate']:.5f}  width {config['width']:2d}  "
            f"iterations {metrics.get('training_iteration', 0)}  "
            f"last published val_acc {metrics['val_acc']:.3f}"
        )
    try:
        print(f"\nThe claim:\n{claim(results, holdout)}")
    except HoldoutError as error:
        print(f"\nNo claim: {error}")
    print(f"\n{holdout.status()}\n\nLedger: {ledger}")


if __name__ == "__main__":
    main()
