"""What a guard publishes, to whom, and that everything is put back."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional
from torch_holdout.lightning import HoldoutGuard

from support.builders.guarded import (
    EXACT,
    IN_A_TRAINER,
    NAMESPACES,
    data,
    fit,
    guard_class,
    holdout,
    network,
    package,
    per_example,
    trainer,
    value_on,
)

pytestmark = IN_A_TRAINER


class Plain(package("lightning.pytorch").LightningModule):
    """A module that can be pickled."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        return per_example(self, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class TestPublishing:
    @pytest.mark.parametrize("namespace", NAMESPACES)
    @pytest.mark.parametrize("first", [True, False])
    def test_callbacks_schedulers_and_loggers_read_the_answers(self, namespace, first, tmp_path):
        pl = package(namespace)
        account = holdout()
        guard = guard_class(namespace)(account)
        others = [
            pl.callbacks.EarlyStopping("val_loss", patience=10),
            pl.callbacks.ModelCheckpoint(tmp_path, monitor="val_acc", mode="max", save_top_k=-1),
        ]

        def plateau(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, patience=0, threshold=9
            )
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"},
            }

        module = network(namespace, configure_optimizers=plateau)
        run = trainer(
            [guard, *others] if first else [*others, guard],
            namespace,
            enable_checkpointing=True,
            enable_progress_bar=True,
            logger=[
                pl.loggers.CSVLogger(tmp_path, "csv"),
                pl.loggers.TensorBoardLogger(tmp_path, "board"),
            ],
        )
        fit(run, module)
        values = {name: answer.value for name, answer in guard.answers.items()}
        assert run.callback_metrics["val_loss"] == values["val_loss"]
        assert float(run.early_stopping_callback.best_score) * 128 / 5 % 1 == 0  # on the grid
        assert run.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.05 * 0.1**3)
        logged = (next(tmp_path.glob("csv/*/metrics.csv"))).read_text()
        assert str(values["val_loss"]) in logged
        assert "holdout/budget_left" in logged
        assert run.progress_bar_metrics["val_acc"] == pytest.approx(values["val_acc"])
        assert account.status().queries == 3 * 2

    def test_values_are_right(self):
        account = holdout(mechanism=EXACT, grid=2**20)
        module = network()
        guard = HoldoutGuard(account)
        fit(trainer([guard], max_epochs=1), module)
        for name, value in value_on(module, data()).items():
            assert guard.answers[name].value == pytest.approx(value, abs=1e-4)

    def test_what_is_published_besides(self):
        account = holdout(mechanism=EXACT)
        run = fit(trainer([HoldoutGuard(account)], max_epochs=1), network())
        assert {k: float(v) for k, v in run.callback_metrics.items() if "/" in k} == {
            "holdout/budget_left": 48,
            "holdout/releases": 2,
            "holdout/exhausted": 0,
            "holdout/val_loss/is_release": 1,
            "holdout/val_acc/is_release": 1,
            "holdout/val_loss/is_stale": 0,
            "holdout/val_acc/is_stale": 0,
        }

    def test_rows_are_evaluations_times_statistics(self):
        for options, evaluations in (
            ({}, 3),
            ({"num_sanity_val_steps": 0}, 3),
            ({"num_sanity_val_steps": -1}, 3),
            ({"val_check_interval": 0.5}, 6),
            ({"check_val_every_n_epoch": 2, "max_epochs": 4}, 2),
            ({"accumulate_grad_batches": 2}, 3),
            ({"reload_dataloaders_every_n_epochs": 1}, 3),
        ):
            account = holdout()
            fit(trainer([HoldoutGuard(account)], **options), network())
            assert account.status().queries == 2 * evaluations, options

    def test_everything_is_put_back(self):
        module, other = network(), package("lightning.pytorch").callbacks.Timer()
        guard = HoldoutGuard(holdout())
        run = fit(trainer([guard, other]), module)
        assert not {"validation_step", "log"} & set(vars(module))
        assert other.log == module.log
        fit(run, module)  # a second fit with the same objects

    def test_a_model_copied_or_saved_during_the_run_is_an_ordinary_one(self, tmp_path):
        kept = []

        class KeepBest(package("lightning.pytorch").Callback):
            def on_validation_end(self, trainer, pl_module):
                kept.append(copy.deepcopy(pl_module))

        class Save(package("lightning.pytorch").Callback):
            def on_validation_end(self, trainer, pl_module):
                torch.save(pl_module, tmp_path / "module.pt")

        account = holdout()
        fit(trainer([HoldoutGuard(account), KeepBest()]), network())
        batch = data().tensors
        assert set(kept[-1].validation_step(batch, 0)) == {"val_loss", "val_acc"}
        fit(trainer([HoldoutGuard(account)]), kept[-1])
        fit(trainer([HoldoutGuard(account), Save()]), Plain())
        saved = torch.load(tmp_path / "module.pt", weights_only=False)
        assert set(saved.validation_step(batch, 0)) == {"val_loss", "val_acc"}

    def test_copies_of_a_guard_share_the_account(self):
        account = holdout()
        for duplicate in (copy.deepcopy, lambda guard: pickle.loads(pickle.dumps(guard))):
            guard = duplicate(HoldoutGuard(account))
            fit(trainer([guard], max_epochs=1), network())
        assert account.status().queries == 4

    def test_everything_is_put_back_after_a_failure(self):
        def broken(self, batch, batch_idx):
            raise ZeroDivisionError

        module = network(training_step=broken)
        with pytest.raises(ZeroDivisionError):
            fit(trainer([HoldoutGuard(holdout())]), module)
        assert not {"validation_step", "log"} & set(vars(module))

    def test_outputs_are_swallowed(self):
        seen = []

        class Spy(package("lightning.pytorch").Callback):
            def on_validation_batch_end(self, trainer, pl_module, outputs, *_):
                seen.append(outputs)

        fit(trainer([Spy(), HoldoutGuard(holdout())], max_epochs=1), network())
        assert seen
        assert set(seen) == {None}

    def test_manual_optimisation_reads_the_answer(self):
        seen = []

        def manual(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(functional.cross_entropy(self(batch[0]), batch[1]))
            optimizer.step()

        def epoch_end(self):
            seen.append(float(self.trainer.callback_metrics["val_loss"]))

        module = network(training_step=manual, on_train_epoch_end=epoch_end)
        module.automatic_optimization = False
        guard = HoldoutGuard(holdout())
        fit(trainer([guard]), module)
        assert seen[-1] == guard.answers["val_loss"].value
