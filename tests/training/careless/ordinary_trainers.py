"""Ordinary runs: callbacks, schedulers, data modules, several loaders, resumed runs."""

import copy

import torch
from torch import nn

from training.careless.cases import Case, loaders, plain, register, vectors

CASES = []
ordinary = register(CASES)


@ordinary
def learning_rate_logged_in_validation(pl):
    class Net(plain(pl)):
        def validation_step(self, batch, batch_idx):
            self.log("lr", self.optimizers().param_groups[0]["lr"])
            return {"val_loss": self.losses(batch)}

        def on_validation_epoch_end(self):
            self.log("epochs", float(self.current_epoch))

    return Case(module=Net(), guard={"public": ("lr", "epochs")})


@ordinary
def plateau_scheduler(pl):
    class Net(plain(pl)):
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
            }

    return Net()


@ordinary
def lightnings_own_callbacks(pl):
    found = pl.callbacks
    callbacks = [
        found.Timer(), found.DeviceStatsMonitor(cpu_stats=False), found.ModelSummary(),
        found.GradientAccumulationScheduler({0: 1, 1: 2}), found.LearningRateMonitor(),
        found.EarlyStopping("val_loss", patience=5), found.ModelCheckpoint(monitor="val_loss"),
    ]  # fmt: skip
    return Case(module=plain(pl)(), callbacks=callbacks, trainer={"logger": True})


@ordinary
def rich_progress_bar(pl):
    return Case(
        module=plain(pl)(),
        callbacks=[pl.callbacks.RichProgressBar()],
        trainer={"enable_progress_bar": True},
    )


@ordinary
def stochastic_weight_averaging(pl):
    averaging = pl.callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)
    return Case(module=plain(pl)(), callbacks=[averaging])


@ordinary
def moving_average_of_weights(pl):
    averaging = pl.callbacks.EMAWeightAveraging(decay=0.9)
    return Case(module=plain(pl)(), callbacks=[averaging])


@ordinary
def weights_averaged_by_hand(pl):
    class Average(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            self.net = copy.deepcopy(pl_module.net).eval()

        def on_train_batch_end(self, trainer, pl_module, *_):
            with torch.no_grad():
                pairs = zip(self.net.parameters(), pl_module.net.parameters(), strict=True)
                for mine, other in pairs:
                    mine.lerp_(other, 0.1)

        def swap(self, trainer, pl_module):
            self.net, pl_module.net = pl_module.net, self.net
            pl_module.net.train(pl_module.training)

        on_validation_start = on_validation_end = swap

    return Case(module=plain(pl)(), callbacks=[Average()])


@ordinary
def callback_that_counts_batches(pl):
    class Counts(pl.Callback):
        batches = examples = 0

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
            assert outputs is None
            self.batches += 1
            self.examples += len(batch[0])

    return Case(module=plain(pl)(), callbacks=[Counts()])


@ordinary
def public_second_loader(pl):
    class Net(plain(pl)):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            losses = self.losses(batch)
            if dataloader_idx == 1:
                self.log("public_loss", losses.mean(), add_dataloader_idx=False)
                self.seen.append(losses)
            return {"val_loss": losses}

        seen = []  # noqa: RUF012

    train, val = loaders(vectors)
    return Case(
        module=Net(), train=train, val=[val, loaders(vectors)[0]],
        guard={"public_dataloaders": (1,)},
    )  # fmt: skip


@ordinary
def data_module(pl):
    class Data(pl.LightningDataModule):
        def setup(self, stage):
            self.train, self.val = loaders(vectors)

        def train_dataloader(self):
            return self.train

        def val_dataloader(self):
            return self.val

    def run(trainer, module, train, val):
        trainer.fit(module, datamodule=Data())

    return Case(module=plain(pl)(), run=run)


@ordinary
def validate_alone(pl):
    def run(trainer, module, train, val):
        trainer.validate(module, val, verbose=False)

    return Case(module=plain(pl)(), run=run)


@ordinary
def test_alone(pl):
    def run(trainer, module, train, val):
        trainer.test(module, val, verbose=False)

    return Case(module=plain(pl)(), run=run, guard={"stage": "test"})


@ordinary
def validate_then_fit_then_validate(pl):
    def run(trainer, module, train, val):
        trainer.validate(module, val, verbose=False)
        trainer.fit(module, train, val)
        trainer.validate(module, val, verbose=False)

    return Case(module=plain(pl)(), run=run)


@ordinary
def resumed_from_a_checkpoint(pl):
    def run(trainer, module, train, val):
        trainer.fit(module, train, val)
        path = f"{trainer.default_root_dir}/resumed.ckpt"
        trainer.save_checkpoint(path)
        trainer.fit_loop.max_epochs = 3
        trainer.fit(module, train, val, ckpt_path=path, weights_only=False)

    return Case(module=plain(pl)(), run=run)


@ordinary
def validation_inside_an_epoch(pl):
    return Case(
        module=plain(pl)(),
        trainer={"val_check_interval": 2, "accumulate_grad_batches": 2, "gradient_clip_val": 0.5},
    )


@ordinary
def deterministic_algorithms(pl):
    def run(trainer, module, train, val):
        trainer.fit(module, train, val)
        torch.use_deterministic_algorithms(False)

    return Case(module=plain(pl)(), run=run, trainer={"deterministic": True})


@ordinary
def without_inference_mode(pl):
    return Case(module=plain(pl)(), trainer={"inference_mode": False})


@ordinary
def step_shared_with_training(pl):
    class Net(plain(pl)):
        def training_step(self, batch, batch_idx):
            losses = self.validation_step(batch, batch_idx)["val_loss"]
            self.history.append(losses.detach().mean().item())
            self.log("train_loss", losses.mean(), prog_bar=True)
            return losses.mean()

        def make(self):
            super().make()
            self.history = []

    return Net()


@ordinary
def early_exit_layers(pl):
    class Net(plain(pl)):
        def make(self):
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.heads = nn.ModuleDict({str(n): nn.Linear(4, 3) for n in range(3)})

        def forward(self, x):
            total = 0
            for n, layer in enumerate(self.layers):
                x = layer(x).relu()
                total = total + self.heads[str(n)](x)
            return total

    return Net()


@ordinary
def steps_with_decorators(pl):
    class Net(plain(pl)):
        @torch.no_grad()
        def validation_step(self, batch, batch_idx):
            return {"val_loss": self.evaluated(batch)}

        @torch.inference_mode()
        def evaluated(self, batch):
            return self.losses(batch)

    return Net()


@ordinary
def step_in_a_base_class_with_super(pl):
    class Base(plain(pl)):
        def validation_step(self, batch, batch_idx):
            return {"val_loss": self.losses(batch), "unused": None}

    class Net(Base):
        def validation_step(self, batch, batch_idx):
            outputs = super().validation_step(batch, batch_idx)
            outputs.pop("unused")
            return outputs

    return Net()


@ordinary
def hooks_around_validation(pl):
    class Net(plain(pl)):
        def on_validation_start(self):
            self.started = True

        def on_validation_model_eval(self):
            super().on_validation_model_eval()

        def on_validation_batch_start(self, batch, batch_idx, dataloader_idx=0):
            self.size_of_last = batch[0].shape[0]

        def on_validation_epoch_end(self):
            loss = self.trainer.callback_metrics.get("val_loss")  # the guarded answer
            self.best = min(getattr(self, "best", 9.0), 9.0 if loss is None else float(loss))

    return Net()
