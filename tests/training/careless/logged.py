"""Careless logging: each of these ends in Lightning's result collection."""

import functools

from torch import nn

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="one")


# ---- in the step


@careless("'val_loss'", "validation_step")
def log(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.log("val_loss", loss.mean())

    return Net()


@careless("'mean'", "validation_step")
def log_with_every_option(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.log(
                "mean", loss.mean(), on_step=True, on_epoch=True, prog_bar=True, sync_dist=True
            )

    return Net()


@careless("'mean'", "validation_step")
def log_dict(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.log_dict({"mean": loss.mean(), "worst": loss.max()})

    return Net()


@careless("'mean'", "validation_step")
def log_of_super(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            super().log("mean", loss.mean())

    return Net()


@careless("'mean'", "validation_step")
def log_dict_of_super(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            super().log_dict({"mean": loss.mean()}, prog_bar=True)

    return Net()


@careless("'mean'", "validation_step")
def log_of_the_class(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            pl.LightningModule.log(self, "mean", loss.mean())

    return Net()


@careless("'mean'", "validation_step")
def log_kept_as_a_partial(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.report = functools.partial(self.log, on_step=False, on_epoch=True)

        def careless(self, batch, loss):
            self.report("mean", loss.mean())

    return Net()


@careless("'mean'", "validation_step")
def log_given_to_a_helper(pl):
    class Reporter:
        def __init__(self, log, prefix=""):
            self.log, self.prefix = log, prefix

        def __call__(self, values):
            for name, value in values.items():
                self.log(self.prefix + name, value)

    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.reporter = Reporter(self.log, prefix="")

        def careless(self, batch, loss):
            self.reporter({"mean": loss.mean()})

    return Net()


@careless("'val/mean'", "validation_step")
def log_of_a_mixin(pl):
    class LogsStages:
        def log_stage(self, stage, values):
            super().log_dict({f"{stage}/{name}": value for name, value in values.items()})

    class Net(LogsStages, small(pl)):
        def careless(self, batch, loss):
            self.log_stage("val", {"mean": loss.mean()})

    return Net()


@careless("'mean'", "validation_step")
def log_overridden_with_an_option(pl):
    class Net(small(pl)):
        def log(self, name, value, *args, **kwargs):
            super().log(name, value, *args, **{"prog_bar": True, **kwargs})

        def careless(self, batch, loss):
            type(self).log(self, "mean", loss.mean())

    return Net()


@careless("'activation'", "validation_step")
def log_in_forward(pl):
    class Net(small(pl)):
        def forward(self, x):
            hidden = self.layer(x)
            if not self.training:
                super().log("activation", x.mean())
            return hidden.flatten()

    return Net()


@careless("'activation'", "validation_step")
def log_in_a_submodule(pl):
    class Layer(nn.Linear):
        def __init__(self, owner):
            super().__init__(4, 1)
            self.report = (owner.log,)

        def forward(self, x):
            if not self.training:
                self.report[0]("activation", x.mean())
            return super().forward(x)

    net = small(pl)()
    net.layer = Layer(net)
    return net


@careless("'mean'", "validation_step")
def log_in_a_shared_step(pl):
    class Net(small(pl)):
        def shared_step(self, batch, stage):
            loss = self.loss(batch)
            by_stage[stage](self, "mean", loss.mean())
            return loss

        def validation_step(self, batch, batch_idx):
            return {"val_loss": self.shared_step(batch, "val")}

    by_stage = {"val": pl.LightningModule.log}
    return Net()


@careless("'mean'")
def log_in_a_holdout_step(pl):
    class Net(small(pl)):
        def holdout_step(self, batch, batch_idx):
            return super().validation_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):  # used when nothing guards
            return self.holdout_step(batch, batch_idx)

        def careless(self, batch, loss):
            super().log("mean", loss.mean())

    return Net()


@careless("'mean'", "test_step", run="test")
def log_in_a_test_step(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            super().log("mean", loss.mean())

    return Net()


@careless("'mean'", "validation_step", run="validate")
def log_in_validate_alone(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            super().log("mean", loss.mean())

    return Net()


@careless("'hp_metric'", "validation_step")
def log_hp_metric(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            super().log("hp_metric", loss.mean())

    return Net()


# ---- in the module's other hooks


@careless("'inputs'", "on_validation_batch_start")
def log_at_the_batch_start(pl):
    class Net(small(pl)):
        def on_validation_batch_start(self, batch, batch_idx, dataloader_idx=0):
            super().log("inputs", batch[0].mean())

    return Net()


@careless("'mean'", "on_validation_batch_end")
def log_at_the_batch_end(pl):
    class Net(small(pl)):
        def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
            super().log("mean", self.loss(batch).mean())

    return Net()


def mean_of(module, loader):
    """The raw mean, by a loop of one's own over the loader."""
    return sum(module.loss(batch).mean() for batch in loader) / len(loader)


@careless("'mean'", "on_validation_start")
def log_at_the_start(pl):
    class Net(small(pl)):
        def on_validation_start(self):
            if not self.trainer.sanity_checking or self.trainer.val_dataloaders:
                super().log("mean", mean_of(self, self.trainer.val_dataloaders))

    return Net()


@careless("'mean'", "on_validation_epoch_start")
def log_at_the_epoch_start(pl):
    class Net(small(pl)):
        def on_validation_epoch_start(self):
            super().log("mean", mean_of(self, self.trainer.val_dataloaders))

    return Net()


@careless("'mean'", "on_validation_epoch_end", charged=True)
def log_at_the_epoch_end(pl):
    class Net(small(pl)):
        def on_validation_epoch_end(self):
            super().log("mean", mean_of(self, self.trainer.val_dataloaders))

    return Net()


@careless("'mean'", "on_test_epoch_end", run="test", charged=True)
def log_at_the_end_of_a_test(pl):
    class Net(small(pl)):
        def on_test_epoch_end(self):
            super().log("mean", mean_of(self, self.trainer.test_dataloaders))

    return Net()


# ---- in callbacks


@careless("'mean'", "validation_step")
def log_kept_by_a_callback_before_the_guard(pl):
    class Keeps(pl.Callback):
        def setup(self, trainer, pl_module, stage):
            self.report = pl_module.log

    class Net(small(pl)):
        def careless(self, batch, loss):
            keeps.report("mean", loss.mean())

    keeps = Keeps()
    return Net(), [keeps]


def callback_hook(hook, value, **options):
    """A pattern: a callback that logs in ``hook``."""

    def build(pl):
        def log(self, trainer, pl_module, *args):
            pl.LightningModule.log(pl_module, "mean", value(trainer, pl_module, *args))

        return small(pl)(), [type("Logs", (pl.Callback,), {hook: log})()]

    def build_own(pl):
        def log(self, trainer, pl_module, *args):
            self.log("mean", value(trainer, pl_module, *args))

        return small(pl)(), [type("Logs", (pl.Callback,), {hook: log})()]

    build.__name__, build_own.__name__ = f"callback_{hook}", f"callbacks_own_log_{hook}"
    for each in (build, build_own):
        careless("'mean'", hook, **options)(each)


def over_the_loader(trainer, module, *_):
    return mean_of(module, trainer.val_dataloaders)


callback_hook("on_validation_start", over_the_loader)
callback_hook("on_validation_epoch_start", over_the_loader)
callback_hook("on_validation_batch_start", lambda trainer, module, batch, *_: batch[0].mean())
callback_hook(
    "on_validation_batch_end", lambda trainer, module, outputs, batch, *_: module.loss(batch).mean()
)
# A callback placed before the guard speaks before the question.
callback_hook("on_validation_epoch_end", over_the_loader)


@careless("'mean'", "on_validation_batch_end")
def callback_log_dict(pl):
    class Logs(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            self.log_dict({"mean": pl_module.loss(batch).mean()})

    return small(pl)(), [Logs()]
