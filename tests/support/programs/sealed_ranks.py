"""What ranks run with a sealed holdout; started as ``ddp_guard.py`` is, with forked ranks.

``python sealed_ranks.py folder 1,2 as_raw``: each rank writes ``<world>/rank<n>.json``.
"""

import datetime
import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch.distributed as dist
import torch_holdout as th
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.lightning import HoldoutGuard

from support.builders.holdouts import make_holdout
from support.machines.soak import soak
from support.programs import ddp_guard
from support.programs.ddp_guard import Sharded, loaders_of_two, trainer_of

SIZE, LEVELS = 60, 65536
VALUES = [3.0, 2.0, 2.5, 2.5, 1.0]
SEEDS = soak(20, 4)


def account(folder, **changes):
    arguments = {
        "url": f"sqlite:///{folder}/holdout.db",
        "size": SIZE,
        "statistics": {"val_loss": th.BoundedMean(0.0, 5.0)},
        "mechanism": th.Sealed(evaluations=50),
        "budget": 1,
    }
    return make_holdout(**{**arguments, **changes})


class Bumpy(pl.LightningModule):
    """A small network whose loss goes up and down; no BatchNorm: ranks keep their own."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def losses(self, batch):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1], reduction="none")

    def training_step(self, batch, _):
        return self.losses(batch).mean()

    def validation_step(self, batch, _):
        return {"val_loss": self.losses(batch)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=3.0)


def data(size, seed):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def loaders(seed):
    return DataLoader(data(16, seed + 50), 4), DataLoader(data(SIZE, seed), 7)


class Means(pl.Callback):
    """Puts the clipped, quantised mean over all ranks where EarlyStopping looks."""

    def on_validation_epoch_start(self, trainer, pl_module):
        self.kept = []

    def on_validation_batch_end(self, trainer, pl_module, outputs, *_):
        self.kept.append(outputs["val_loss"])

    def on_validation_epoch_end(self, trainer, pl_module):
        if trainer.sanity_checking:
            return
        parts = [torch.cat(self.kept)]
        if trainer.world_size > 1:
            parts = [None] * trainer.world_size
            dist.all_gather_object(parts, torch.cat(self.kept))
        values = torch.cat(parts).double().clamp(0, 5) / 5
        mean = (values * LEVELS).round().sum() / (LEVELS * len(values)) * 5
        trainer.callback_metrics["val_loss"] = mean


def bits(state):
    return {name: value.tolist() for name, value in state.items()}


def as_raw(rank, world, folder):
    """Compare a sealed run with raw early stopping, on as many ranks."""
    found = {"raw": [], "sealed": []}
    for seed in range(SEEDS):
        saver = ModelCheckpoint(folder / f"raw{seed}", filename="best", monitor="val_loss")
        callbacks = [Means(), EarlyStopping("val_loss", patience=2), saver]
        raw = trainer_of(world, callbacks, max_epochs=20, num_sanity_val_steps=0)
        raw.fit(Bumpy(seed), *loaders(seed))
        saved = torch.load(saver.best_model_path, weights_only=True)["state_dict"]
        found["raw"].append([raw.current_epoch, bits(saved)])

        own = account(folder, name=f"val{seed}")
        guard = HoldoutGuard(own, stop=th.Patience("val_loss", patience=2))
        sealed = trainer_of(world, [guard], max_epochs=20, default_root_dir=folder)
        module = Bumpy(seed)
        sealed.fit(module, *loaders(seed))
        written = torch.load(guard.best_model_path, weights_only=True)
        found["sealed"].append([sealed.current_epoch, bits(module.state_dict())])
        found.setdefault("files", []).append(bits(written) == bits(module.state_dict()))
        found.setdefault("outcomes", []).append(repr(guard.outcome))
        found.setdefault("paths", []).append(guard.best_model_path)
        sealed.validate(module, loaders(seed)[1], verbose=False)  # known: a repeat
    return found


class Failing(pl.Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 3:
            raise ZeroDivisionError


class Scripted(Bumpy):
    """Values by the number of steps; the weights move on."""

    def __init__(self):
        super().__init__(0)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def training_step(self, batch, _):
        self.steps += 1
        return super().training_step(batch, _) * 0.001

    def validation_step(self, batch, _):
        value = VALUES[min(max(int(self.steps), 1), len(VALUES)) - 1]
        return {"val_loss": self.losses(batch) * 0.0 + value}


def resumed(rank, world, folder):
    """Fail in epoch 3 and go on from the checkpoint of epoch 2, whose weights are not the best."""
    val = loaders(0)[1]
    train = DataLoader(data(4 * world, 1), 4)  # a step an epoch
    found = {}
    for attempt in ("first", "second"):
        guard = HoldoutGuard(
            account(folder), stop=th.Patience("val_loss", patience=2), keep=folder / "kept"
        )
        saver = ModelCheckpoint(folder / "checkpoints", filename="{epoch}", save_top_k=-1)
        first = attempt == "first"
        callbacks = [guard, saver, *([Failing()] if first else [])]
        trainer = trainer_of(world, callbacks, max_epochs=5, default_root_dir=folder)
        module = Scripted()
        checkpoint = None if first else folder / "checkpoints" / "epoch=2.ckpt"
        try:
            trainer.fit(module, train, val, ckpt_path=checkpoint)
        except ZeroDivisionError:
            found["slots"] = sorted(p.name for p in (folder / "kept").rglob("*.pt"))
    return found | {
        "best": guard.outcome.best_evaluation,
        "stopped": guard.outcome.stopped_at,
        "steps": int(module.steps),
        "weights": bits(module.state_dict()),
    }


class SealedShards(Sharded):
    """Sharded weights with scripted values; keeps what the weights were at each pass."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def validation_step(self, batch, _):
        value = VALUES[min(len(self.passes), len(VALUES) - 1)]
        return {"val_loss": self.layers(batch[0])[:, 0].float() * 0.0 + value}

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.passes.append(whole(self))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0001)


def whole(module):
    for each in module.modules():
        if hasattr(each, "reshard"):
            each.reshard()
    state = {k: getattr(v, "full_tensor", lambda v=v: v)() for k, v in module.state_dict().items()}
    return bits(state)


def shards(rank, world, folder):
    """Put sharded weights back, from memory and from files of each rank."""
    found = {}
    for name in ("memory", "files"):
        own = account(folder, name=name, size=101)
        keep = folder / name if name == "files" else None
        guard = HoldoutGuard(own, stop=th.Patience("val_loss", patience=2), keep=keep)
        strategy = ModelParallelStrategy(
            data_parallel_size=world, tensor_parallel_size=1, process_group_backend="gloo",
            timeout=datetime.timedelta(seconds=60),
        )  # fmt: skip
        module = SealedShards()
        train, (val, _) = loaders_of_two()
        trainer = trainer_of(
            world, [guard], strategy=strategy, max_epochs=5, default_root_dir=folder,
            num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(module, train, val)
        written = bits(torch.load(guard.best_model_path, weights_only=True))
        found[name] = {
            "best": guard.outcome.best_evaluation,
            "moved": module.passes[0] != module.passes[1],
            "restored": whole(module) == module.passes[1],
            "written": written == module.passes[1],
        }
    return found


ddp_guard.SCENARIOS.clear()
ddp_guard.SCENARIOS.update(as_raw=as_raw, resumed=resumed, shards=shards)

if __name__ == "__main__":
    groups = [int(n) for n in sys.argv[2].split(",")]
    print(json.dumps([ddp_guard.group_of(Path(sys.argv[1]), n, sys.argv[3]) for n in groups]))
