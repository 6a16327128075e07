"""What ranks run: started by Lightning itself, or forked here, so that many start fast.

``python ddp_guard.py folder 2 train`` lets Lightning start the ranks; ``folder 1,2,4 validated``
forks groups of ranks one after another, and each rank writes ``<world>/rank<n>.json``.
"""

import datetime
import hashlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch_holdout as th
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._shared import distributed as ranks
from torch_holdout.lightning import HoldoutGuard

from support.builders.holdouts import make_holdout

SIZE = 501


def data(shift=0.0):
    x = torch.linspace(-1, 1, SIZE)[:, None].repeat(1, 3) + shift
    return TensorDataset(x, torch.arange(SIZE))


class Net(pl.LightningModule):
    """BatchNorm, a plateau scheduler, and a statistic that ignores how batches are cut."""

    def __init__(self, folder, lr):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(0.3)
        self.folder, self.lr = str(folder), lr

    def training_step(self, batch, _):
        return self.layers(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.layers(batch[0])
        return {"first": (batch[1] == 0), "value": batch[1] / SIZE}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=9.0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "value"},
        }

    def on_train_end(self):
        found = {
            "metrics": {k: float(v) for k, v in self.trainer.callback_metrics.items()},
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            "weights": [float(p.double().sum()) for p in self.parameters()],
        }
        Path(self.folder, f"rank{self.trainer.global_rank}.json").write_text(json.dumps(found))


class Foreign(Net):
    """Its step does something else, and is not called."""

    def validation_step(self, batch, _):
        raise AssertionError("the step was called")


def from_outside(module, batch, batch_idx):
    return Net.validation_step(module, batch, batch_idx)


def holdout(folder, **changes):
    arguments = {
        "url": f"sqlite:///{folder}/holdout.db",
        "size": SIZE,
        "statistics": {"first": th.BoundedMean(0, 1), "value": th.BoundedMean(0, 1)},
        "mechanism": th.Thresholdout(threshold=0.0, sigma=0.01, guess="last"),
        "budget": 40,
        "seed": 7,
    }
    return make_holdout(**{**arguments, **changes})


def main(folder, devices, scenario):
    folder = Path(folder)
    changes, options, epochs = {}, {}, 3
    guess = None
    if scenario == "guess":
        changes["mechanism"] = th.Thresholdout(threshold=0.0, sigma=0.01, guess="train")
        guess = DataLoader(th.fixed_subset(data(0.001), 101, seed=0), batch_size=25)
    if scenario == "exhausted":
        changes["budget"], options = 3, {"on_exhausted": "raise"}
    if scenario == "step":
        options["step"] = from_outside
    if scenario == "foreign":
        changes["fingerprint"] = th.fingerprint(data(0.001))
    lr = 0.1 if scenario == "train" else 0.0
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[HoldoutGuard(holdout(folder, **changes), guess_dataloaders=guess, **options)],
    )
    loader = DataLoader(data(), batch_size=40)
    train = DataLoader(data(), batch_size=50, drop_last=True)
    net = Foreign if scenario == "step" else Net
    trainer.fit(net(folder, lr), train, loader)


# ---- forked ranks


class Scaled(pl.LightningModule):
    """Values that are the same bits however batches are cut: one product of floats each."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.0))

    def validation_step(self, batch, _):
        value = (self.scale * batch[0][:, 0]).abs()
        return {"value": value, "largest": (value,)}


def largest(values):
    return values.max()


def trainer_of(world, callbacks=(), **options):
    if world > 1 and "strategy" not in options:
        options["strategy"] = DDPStrategy(
            process_group_backend="gloo", timeout=datetime.timedelta(seconds=60)
        )
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    quiet["enable_checkpointing"] = any(isinstance(c, ModelCheckpoint) for c in callbacks)
    return pl.Trainer(
        accelerator="cpu", devices=world, callbacks=list(callbacks), **{**quiet, **options}
    )


def validated(rank, world, folder):
    """Validate fixed weights on holdouts of several sizes, exactly and with seeded noise."""
    seen = []
    for size in (501, 7, 3, 2, 1):
        x = torch.linspace(-1, 1, size)[:, None]
        for sigma in (0.0, 0.01):
            statistics = {"value": th.BoundedMean(0, 1)}
            if size > 3:
                statistics["largest"] = th.Blockwise(largest, 3, 0.0, 1.0)
            account = holdout(
                folder,
                name=f"{size} {sigma}",
                size=size,
                statistics=statistics,
                mechanism=th.Thresholdout(threshold=0.0, sigma=sigma, guess="last"),
                grid=size * 65536 if sigma == 0 else None,  # every possible sum has its answer
            )
            guard = HoldoutGuard(account)
            module = Scaled()
            if size <= 3:
                module.validation_step = lambda batch, _, m=module: {
                    "value": (m.scale * batch[0][:, 0]).abs()
                }
            loader = DataLoader(TensorDataset(x, torch.zeros(size)), batch_size=40)
            for scale in (0.7, 0.71, 0.2, 0.2):  # a release, comparisons, a repeat
                nn.init.constant_(module.scale, scale)
                trainer_of(world, [guard]).validate(module, loader, verbose=False)
                seen.append([(a.value, a.kind, a.budget_left) for a in guard.answers.values()])
    return {"answers": seen}


class Two(Net):
    """Two loaders; a real network's loss, in mixed precision."""

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        loss = self.layers(batch[0])[:, 0].float().square()
        return {"value" if dataloader_idx == 0 else "other": loss}

    def on_train_end(self):
        pass


class Published(pl.Callback):
    """Keeps what a rank could see after every evaluation, on disk: the rank may die."""

    def __init__(self, folder):
        self.path = Path(folder, f"published{os.environ.get('LOCAL_RANK', 0)}.txt")

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            seen = {k: float(v) for k, v in trainer.callback_metrics.items()}
            with self.path.open("a") as file:
                file.write(json.dumps(seen) + "\n")


def holdouts_of_two(folder, sizes=(101, 53)):
    mechanism = th.Thresholdout(threshold=0.02, sigma=0.01, guess="last")
    return [
        holdout(
            folder,
            name=name,
            size=size,
            statistics={name: th.BoundedMean(0, 5)},
            mechanism=mechanism,
        )
        for name, size in zip(("value", "other"), sizes, strict=True)
    ]


def loaders_of_two(train=203, sizes=(101, 53)):
    def examples(count, offset):
        x = torch.linspace(-1, 1, count)[:, None] * torch.tensor([1.0, 2.0, 3.0]) + offset
        return TensorDataset(x.sin(), torch.zeros(count))

    first, second = (examples(size, n) for n, size in enumerate(sizes))
    return (
        DataLoader(examples(train, 0.5), batch_size=8),
        [DataLoader(first, batch_size=10), DataLoader(second, batch_size=7)],
    )


def weights_of(module):
    """Return the parameters' bits; a BatchNorm's statistics are each rank's own after a step."""
    bits = b"".join(p.detach().contiguous().numpy().tobytes() for p in module.parameters())
    return hashlib.sha256(bits).hexdigest()


def trained(rank, world, folder):
    """Train with everything at once, stop in the middle of an epoch, resume, and compare."""
    found = {}
    checkpoint = Path(folder, "middle.ckpt")

    class Middle(pl.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.current_epoch == 1 and batch_idx == trainer.num_training_batches // 2:
                trainer.save_checkpoint(checkpoint)

        def on_train_start(self, trainer, pl_module):
            found.setdefault("start", []).append(
                {k: float(v) for k, v in trainer.callback_metrics.items()}
            )

    for run in ("first", "resumed"):
        accounts = holdouts_of_two(folder)
        guards = [HoldoutGuard(a, dataloader_idx=n) for n, a in enumerate(accounts)]
        trainer = trainer_of(
            world,
            [*guards, Middle(), Published(folder)],
            max_epochs=2 if run == "first" else 3,
            precision="bf16-mixed",
            val_check_interval=0.5,
            accumulate_grad_batches=2,
        )
        module = Two(folder, 0.01)
        train, val = loaders_of_two()
        trainer.fit(module, train, val, ckpt_path=None if run == "first" else checkpoint)
        found[run] = {
            "metrics": {k: float(v) for k, v in trainer.callback_metrics.items()},
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "weights": weights_of(module),
            "queries": [account.status().queries for account in accounts],
        }
    return found


def killed(rank, world, folder, *, when):
    """Let one rank die by SIGKILL: in a validation step, or rank 0 between commit and answer."""
    victim = 0 if when == "after_commit" else world - 1

    class Dying(Two):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            late = self.trainer.current_epoch == 1 and dataloader_idx == 0 and batch_idx == 2
            if rank == victim and when == "in_step" and late:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().validation_step(batch, batch_idx, dataloader_idx)

        def on_validation_epoch_start(self):
            if rank == victim and when == "after_commit" and self.trainer.current_epoch == 1:
                ranks.dist.broadcast_object_list = lambda *_, **__: os.kill(
                    os.getpid(), signal.SIGKILL
                )

    accounts = holdouts_of_two(folder)
    guards = [HoldoutGuard(account, dataloader_idx=n) for n, account in enumerate(accounts)]
    strategy = DDPStrategy(process_group_backend="gloo", timeout=datetime.timedelta(seconds=20))
    trainer = trainer_of(world, [*guards, Published(folder)], max_epochs=3, strategy=strategy)
    train, val = loaders_of_two()
    trainer.fit(Dying(folder, 0.1), train, val)
    return {"ended": True}


def killed_in_step(rank, world, folder):
    return killed(rank, world, folder, when="in_step")


def killed_after_commit(rank, world, folder):
    return killed(rank, world, folder, when="after_commit")


class Sharded(pl.LightningModule):
    """A network whose layers are cut between the ranks by fully_shard."""

    def __init__(self, policy=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.Linear(5, 1))
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(
                    torch.linspace(-1, 1 + number, parameter.numel()).view_as(parameter)
                )
        self.register_buffer("seen", torch.ones(3))
        self.policy = policy
        self.cut = False

    def configure_model(self):
        if self.trainer.world_size == 1 or self.cut:
            return
        from torch.distributed.fsdp import fully_shard

        self.cut = True
        options = {} if self.policy is None else {"mp_policy": self.policy}
        mesh = self.device_mesh["data_parallel"]
        fully_shard(self.layers[0], mesh=mesh, **options)
        fully_shard(self.layers, mesh=mesh, **options)  # keeps its weights whole after a pass

    def training_step(self, batch, _):
        return self.layers(batch[0]).float().square().mean()

    def validation_step(self, batch, _):
        values = self.layers(batch[0])[:, 0].float().square()
        return {"first": values > 1e9, "value": values / 100}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)


def sharded(rank, world, folder):
    """Ask about sharded and trained weights; 101 examples: the ranks end in different batches."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    lower = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    found = {}
    for name, policy in (("exact", None), ("mixed", lower)):
        account = holdout(folder, name=name, size=101)
        guard = HoldoutGuard(account)
        train, (val, _) = loaders_of_two()
        module, options = Sharded(policy), {"max_epochs": 2}
        if world > 1:
            options["strategy"] = ModelParallelStrategy(
                data_parallel_size=world, tensor_parallel_size=1, process_group_backend="gloo",
                timeout=datetime.timedelta(seconds=60),
            )  # fmt: skip
        trainer = trainer_of(world, [guard], **options)
        kinds = []
        for _ in range(2):
            trainer.validate(module, val, verbose=False)
            kinds += [answer.kind for answer in guard.answers.values()]
        if world > 1:
            trainer.fit(module, train, val)
        answers = [(answer.value, answer.kind) for answer in guard.answers.values()]
        found[name] = {"kinds": kinds, "answers": answers}
    return found | sharded_metric(rank, world, folder, val)


def sharded_guesses(rank, world, folder):
    """Compare sharded weights with a training value; three batches of it for two ranks."""
    rule = th.Thresholdout(threshold=0.0, sigma=0.0, guess="train")
    train, (val, _) = loaders_of_two()
    found = {}
    for batches in (1, 2, 3):
        chosen = Subset(train.dataset, range(10 * batches))
        account = holdout(folder, name=f"guess{batches}", size=101, mechanism=rule)
        guard = HoldoutGuard(account, guess_dataloaders=DataLoader(chosen, batch_size=10))
        options = {}
        if world > 1:
            options["strategy"] = ModelParallelStrategy(
                data_parallel_size=world, tensor_parallel_size=1, process_group_backend="gloo",
                timeout=datetime.timedelta(seconds=30),
            )  # fmt: skip
        module = Sharded()
        calls = []
        module.layers.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        trainer_of(world, [guard], **options).validate(module, val, verbose=False)
        values = [(answer.value, answer.kind) for answer in guard.answers.values()]
        found[str(batches)] = {"values": values, "passes": len(calls)}
    return found


def sharded_metric(rank, world, folder, loader):
    """Ask through the metric, without a Trainer, with the weights whole before and then cut."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Sharded().layers.eval()
    identities, kinds = [identity_of(model)], []
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    identities.append(identity_of(model))
    account = holdout(folder, name="metric", size=101)
    sampler = DistributedSampler(loader.dataset, world, rank, shuffle=False)
    own = Subset(loader.dataset, list(sampler))
    for _ in range(2):
        metric = th.ReusableHoldoutMetric(account, "value", model=model)
        for x, _ in DataLoader(own, batch_size=10):
            with torch.no_grad():
                metric.update(model(x)[:, 0].square() / 100)
        metric.compute()
        kinds.append(metric.answer.kind)
    return {"same identity": identities[0] == identities[1], "metric": kinds}


def identity_of(model):
    found = weights_fingerprint(model)
    return found.query(found.lanes.tolist())


def same_examples(rank, world, folder):
    """Let tensor-parallel ranks evaluate the same examples."""

    class Whole(Scaled):
        def configure_model(self):
            pass

    strategy = ModelParallelStrategy(
        data_parallel_size=1, tensor_parallel_size=world, process_group_backend="gloo"
    )
    guard = HoldoutGuard(holdouts_of_two(folder)[0])
    loader = loaders_of_two()[1][0]
    trainer_of(world, [guard], strategy=strategy).validate(Whole(), loader, verbose=False)


FORKED = (
    validated, trained, killed_in_step, killed_after_commit, sharded, sharded_guesses,
    same_examples,
)  # fmt: skip
SCENARIOS = {function.__name__: function for function in FORKED}


def group_of(folder, world, scenario):
    """Fork the ranks of one group, wait for them all, and return their exit codes."""
    folder = folder / str(world)
    folder.mkdir()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os._exit(run_rank(rank, world, folder, port, scenario))
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def run_rank(rank, world, folder, port, scenario):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if world > 1:
        os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(world))
    started, found, code = time.monotonic(), {}, 0
    try:
        found = SCENARIOS[scenario](rank, world, folder)
    except BaseException as error:
        traceback.print_exc()
        found, code = {"error": f"{type(error).__name__}: {error}"}, 1
    found["seconds"] = time.monotonic() - started
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    return code


if __name__ == "__main__":
    if sys.argv[3] in SCENARIOS:
        codes = [group_of(Path(sys.argv[1]), int(n), sys.argv[3]) for n in sys.argv[2].split(",")]
        print(json.dumps(codes))
    else:
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
