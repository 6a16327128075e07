"""What each process of a Hugging Face training runs: ``python hugging_face_ranks.py folder``.

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT say which process it is, as torchrun does.
"""

import json
import os
import sys
from pathlib import Path

import torch_holdout as th
from torch.utils.data import DataLoader
from torch_holdout.transformers import HoldoutTrainer

from support.builders.hugging_face import live, sealed, trainer_for

EPOCHS = 3


class Everywhere(HoldoutTrainer):
    """Every process reads all rows."""

    def get_eval_dataloader(self, eval_dataset=None):
        super().get_eval_dataloader(eval_dataset)
        return DataLoader(self.eval_dataset, batch_size=7)


def account(folder, name, make=live, **changes):
    return make(f"sqlite:///{folder}/holdout.db", name=name, **changes)


def exact(folder, name):
    statistics = {
        "loss": th.BoundedMean(0.0, 5.0),
        "accuracy": th.BoundedMean(0.0, 1.0, mode="max"),
        "first": th.Blockwise(first, blocks=5, low=0.0, high=1.0),
    }
    return account(folder, name, mechanism=th.Ladder(step=1e-6), statistics=statistics, grid=2**10)


def first(ids):
    """A value of the first row of each block: another order would be another value."""
    return ids[0, 0] / 50


def values(p):
    import torch

    loss = torch.nn.functional.cross_entropy(p.predictions, p.label_ids, reduction="none")
    hits = (p.predictions.argmax(-1) == p.label_ids).float()
    return {"loss": loss, "accuracy": hits, "first": p.inputs["input_ids"]}


def published(metrics):
    return {k: v for k, v in metrics.items() if k.startswith(("eval_", "held")) and "_per_" not in k
            and "runtime" not in k}  # fmt: skip


def scenarios(folder, world):
    """Evaluate and train in every way; return what each has published."""
    found = {}
    for name, kind in (("shards", HoldoutTrainer), ("everywhere", Everywhere)):
        trainer = trainer_for(
            "classes", folder / name, exact(folder, name), kind=kind, values=values,
            args={"ddp_backend": "gloo" if world > 1 else None},
        )  # fmt: skip
        found[name] = published(trainer.evaluate())
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": 20 // world,
        "ddp_backend": "gloo" if world > 1 else None,
    }
    trainer = trainer_for(
        "tokens", folder / "live", account(folder, "live", seed=3),
        args={**options, "load_best_model_at_end": True, "metric_for_best_model": "loss"},
    )  # fmt: skip
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_loss" in row]
    found["live"] = [published(row) for row in rows]
    trainer = trainer_for(
        "tokens", folder / "sealed", account(folder, "sealed", sealed), args=options,
        stop=th.Patience("loss", patience=2),
    )  # fmt: skip
    trainer.train()
    outcome = trainer.outcome
    found["sealed"] = [outcome.best_evaluation, outcome.passes, outcome.reason]
    found["weights"] = sum(float(p.detach().double().sum()) for p in trainer.model.parameters())
    return found


if __name__ == "__main__":
    rank, world = (int(os.environ.get(name, default)) for name, default in
                   (("RANK", 0), ("WORLD_SIZE", 1)))  # fmt: skip
    target = Path(sys.argv[1])
    result = scenarios(target, world)
    (target / f"rank{rank}.json").write_text(json.dumps(result))
