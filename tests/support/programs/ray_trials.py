"""Functions that Ray's workers run in the tests; importable there by name."""

import os
import warnings
from pathlib import Path

import torch
from ray import tune
from torch.utils.data import DataLoader
from torch_holdout.tuning.ray import report, reporting

from support.builders.guarded import data, guard_class, loader, network, per_example, trainer
from support.builders.holdouts import correct, sums_of

RAW = 0.7310585786300049  # no grid point: whatever is published differs from it


def lightning_trial(config, holdout):
    """Train with a guard; with ``raw`` every example has that value. PBT hands checkpoints over."""
    torch.set_num_threads(1)
    if "mark" in config:
        with Path(config["mark"]).open("a") as file:
            file.write(".")
    torch.manual_seed(config.get("seed", 0))
    namespace = config.get("namespace", "lightning.pytorch")

    def validation_step(self, batch, _):
        if config.get("raw"):
            return {"val_acc": RAW + 0 * batch[0][:, 0]}
        return {"val_acc": per_example(self, batch)["val_acc"]}

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=config["lr"])

    net = network(namespace, validation_step=validation_step, configure_optimizers=optimizer)
    guard = guard_class(namespace)(holdout, prog_bar=False)
    callback = reporting(guard, ["val_acc"], save_checkpoints=config.get("save", False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = trainer([guard, callback], namespace, max_epochs=config["epochs"])
        before = tune.get_checkpoint()
        if before is None:
            run.fit(net, loader(drop_last=True), loader(drop_last=config.get("drops", False)))
        else:
            with before.as_directory() as folder:
                run.fit(net, loader(drop_last=True), loader(), ckpt_path=f"{folder}/checkpoint")


def failing_trial(config, holdout):
    """Ask, report and fail; when it is tried again, ask the same and end."""
    mark = Path(config["mark"])
    sums = sums_of(holdout, correct(30, holdout.size))
    answer = holdout.release("val_acc", sums, query="the same weights")
    with mark.open("a") as file:
        print(answer.kind, answer.value, os.getcwd(), file=file)
    if len(mark.read_text().splitlines()) == 1:
        raise RuntimeError("out of memory")
    report({"val_acc": answer})


def guarded_trial(config, holdout):
    """Train with a guard and a display loader; PBT hands checkpoints of other trials over."""
    torch.set_num_threads(1)
    torch.manual_seed(config.get("seed", 0))
    namespace = config.get("namespace", "lightning.pytorch")

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        values = per_example(self, batch)
        if dataloader_idx == 1:
            shown = values["val_acc"].float().mean()
            self.log("display_acc", shown, add_dataloader_idx=False)
            return None
        return {name: values[name] for name in holdout.statistics}

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=config["lr"])

    net = network(namespace, validation_step=validation_step, configure_optimizers=optimizer)
    guard = guard_class(namespace)(holdout, prog_bar=False, public_dataloaders=(1,))
    before = tune.get_checkpoint()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        callback = reporting(guard, save_checkpoints=config.get("save", True))
        run = trainer([guard, callback], namespace, max_epochs=config["epochs"])
        loaders = [loader(), DataLoader(data(seed=5), batch_size=50)]
        if before is None:
            run.fit(net, loader(drop_last=True), loaders)
        else:
            with before.as_directory() as folder:
                path = f"{folder}/checkpoint"
                run.fit(net, loader(drop_last=True), loaders, ckpt_path=path)
