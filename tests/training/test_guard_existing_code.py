"""Modules that log and count for themselves, under a guard."""

import pytest
import torch_holdout as th
from torch.nn import functional
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError, UnguardedLogError
from torch_holdout.lightning import HoldoutGuard
from torchmetrics import MeanMetric

from support.builders.guarded import (
    IN_A_TRAINER,
    fit,
    holdout,
    loader,
    network,
    package,
    per_example,
    trainer,
)

pytestmark = IN_A_TRAINER


class TestExistingCode:
    def test_a_logged_mean_raises_in_the_sanity_check_with_the_diff(self):
        def logging_step(self, batch, batch_idx):
            self.log("val_loss", per_example(self, batch)["val_loss"].mean() * 0 + 0.731)

        module = network(validation_step=logging_step)
        with pytest.raises(UnguardedLogError) as caught:
            fit(trainer([HoldoutGuard(holdout())]), module)
        assert "'val_loss'" in str(caught.value)
        assert '+        return {"val_loss":' in str(caught.value)
        assert "0.731" not in str(caught.value)
        assert module.trainer.global_step == 0
        assert "public" not in str(caught.value)

    def test_dropped_logs_warn_once_a_run(self):
        def logging_step(self, batch, batch_idx):
            self.log_dict({"raw": per_example(self, batch)["val_loss"].mean()})
            return per_example(self, batch)

        guard = HoldoutGuard(holdout(), unguarded="drop")
        for run in (trainer([guard]), trainer([guard])):
            with pytest.warns(HoldoutWarning, match="'raw'") as caught:
                run.fit(network(validation_step=logging_step), loader(drop_last=True), loader())
            assert len([w for w in caught if issubclass(w.category, HoldoutWarning)]) == 1
            assert "raw" not in run.callback_metrics

    def test_logs_of_other_callbacks_are_trapped(self):
        class Logs(package("lightning.pytorch").Callback):
            def on_validation_epoch_end(self, trainer, pl_module):
                self.log("sneaky", 0.731)

        for callbacks in ([Logs(), HoldoutGuard(holdout())], [HoldoutGuard(holdout()), Logs()]):
            with pytest.raises(UnguardedLogError, match="sneaky"):
                fit(trainer(callbacks), network())

    def test_logs_of_the_epoch_end_are_trapped(self):
        def epoch_end(self):
            self.log("kept", 0.731)

        with pytest.raises(UnguardedLogError, match="kept"):
            fit(trainer([HoldoutGuard(holdout())]), network(on_validation_epoch_end=epoch_end))

    def test_public_keys_and_training_logs_pass(self):
        def step(self, batch, batch_idx):
            self.log("lr", 0.05)
            return per_example(self, batch)

        def training(self, batch, batch_idx):
            loss = functional.cross_entropy(self(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        module = network(validation_step=step, training_step=training)
        run = fit(trainer([HoldoutGuard(holdout(), public=("lr",))]), module)
        assert {"lr", "train_loss"} <= set(run.callback_metrics)

    def test_own_metrics_are_noticed(self):
        def step(self, batch, batch_idx):
            self.mean.update(per_example(self, batch)["val_loss"])
            return per_example(self, batch)

        module = network(validation_step=step)
        module.mean = MeanMetric()
        with pytest.raises(UnguardedLogError, match="mean"):
            fit(trainer([HoldoutGuard(holdout())]), module)

        module = network(validation_step=step)
        module.mean = MeanMetric()
        run = trainer([HoldoutGuard(holdout(), unguarded="drop")])
        with pytest.warns(HoldoutWarning, match="reset"):
            run.fit(module, loader(drop_last=True), loader())
        assert module.mean.update_count == 0

    def test_metrics_updated_in_a_hook_are_noticed_too(self):
        def batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
            if batch_idx == 4:  # the last batch only
                self.mean.update(per_example(self, batch)["val_loss"])

        module = network(on_validation_batch_end=batch_end)
        module.mean = MeanMetric()
        with pytest.raises(UnguardedLogError, match="mean"):
            fit(trainer([HoldoutGuard(holdout())]), module)

    def test_metrics_outside_the_module_are_noticed_too(self):
        class Keeps(package("lightning.pytorch").Callback):
            def __init__(self):
                self.kept = {"mean": MeanMetric()}

            def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
                self.kept["mean"].update(per_example(pl_module, batch)["val_loss"])

        def epoch_end(self):
            self.hidden["mean"].update(1.0)

        module = network(on_validation_epoch_end=epoch_end)
        module.hidden = {"mean": MeanMetric()}
        for callbacks, found in (([Keeps()], "Keeps.kept"), ([], "Net.hidden")):
            with pytest.raises(UnguardedLogError, match=found):
                fit(trainer([HoldoutGuard(holdout()), *callbacks]), module)

    def test_statistics_cannot_be_public(self):
        with pytest.raises(InvalidArgumentError, match="are its statistics"):
            HoldoutGuard(holdout(), public=("val_loss",))

    def test_a_step_shared_with_training_works(self):
        def training(self, batch, batch_idx):
            return self.validation_step(batch, batch_idx)["val_loss"].mean()

        account = holdout()
        fit(trainer([HoldoutGuard(account)]), network(training_step=training))
        assert account.status().queries == 6

    def test_a_holdout_step_is_used_instead(self):
        def step(self, batch, batch_idx):
            raise ZeroDivisionError

        def holdout_step(self, batch, batch_idx):
            return per_example(self, batch)

        account = holdout()
        module = network(validation_step=step, holdout_step=holdout_step)
        fit(trainer([HoldoutGuard(account)]), module)
        assert account.status().queries == 6

    @pytest.mark.parametrize(
        ("output", "words"),
        [
            (lambda values: {"val_loss": values["val_loss"]}, r"came without \['val_acc'\]\. Ret"),
            (lambda values: values | {"more": values["val_loss"]}, r"came with \['more'\]\. Ret"),
            (lambda values: None, "reduction"),
            (lambda values: values["val_loss"].mean(), "reduction"),
            (
                lambda values: values | {"val_loss": values["val_loss"].mean()},
                "one value per example",
            ),
        ],
        ids=["missing", "unknown", "None", "tensor", "mean"],
    )
    def test_wrong_outputs_are_named_at_the_first_batch(self, output, words):
        def step(self, batch, batch_idx):
            return output(per_example(self, batch))

        with pytest.raises(InvalidArgumentError, match=words):
            fit(trainer([HoldoutGuard(holdout())]), network(validation_step=step))

    def test_a_step_that_takes_only_the_batch(self):
        def step(self, batch):
            return per_example(self, batch)

        account = holdout()
        fit(trainer([HoldoutGuard(account)], max_epochs=1), network(validation_step=step))
        assert account.status().queries == 2

    def test_arguments_for_the_statistics_own_function(self):
        def step(self, batch, batch_idx):
            return {"acc": (self(batch[0]), batch[1])}

        account = holdout(statistics={"acc": th.ZeroOne()})
        fit(trainer([HoldoutGuard(account)], max_epochs=1), network(validation_step=step))
        assert account.status().queries == 1
