"""A guard whose mechanism compares with training values, or whose statistic is no mean."""

import warnings

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.lightning import HoldoutGuard
from torchmetrics.classification import MulticlassAUROC

from support.builders.guarded import (
    IN_A_TRAINER,
    TRAIN,
    data,
    fit,
    holdout,
    loader,
    network,
    package,
    per_example,
    trainer,
    value_on,
)

pytestmark = IN_A_TRAINER


class TestTrainGuess:
    def guarded(self, **options):
        loaders = loader(th.fixed_subset(data(200, seed=5), 60, seed=1), batch_size=25)
        return HoldoutGuard(
            holdout(mechanism=TRAIN, grid=2**20), guess_dataloaders=loaders, **options
        )

    def test_the_training_value_is_the_guess(self):
        guard, module = self.guarded(), network()
        fit(trainer([guard], max_epochs=1), module)
        subset = th.fixed_subset(data(200, seed=5), 60, seed=1)
        x, y = (torch.stack(part) for part in zip(*subset, strict=True))
        training = value_on(module, torch.utils.data.TensorDataset(x, y))
        truth = value_on(module, data())
        for name, answer in guard.answers.items():
            width = 5.0 if name == "val_loss" else 1.0
            close = abs(training[name] - truth[name]) / width <= 0.02
            expected = training if close else truth
            assert answer.kind == ("guess" if close else "release")
            assert answer.value == pytest.approx(expected[name], abs=1e-4)

    def test_missing_loader_is_an_error_in_setup(self):
        guard = HoldoutGuard(holdout(mechanism=TRAIN))
        with pytest.raises(InvalidArgumentError, match="fixed_subset"):
            fit(trainer([guard]), network())

    def test_bf16_and_mixed_precision(self):
        for precision in ("bf16-true", "bf16-mixed"):
            guard = self.guarded()
            fit(trainer([guard], precision=precision, max_epochs=1), network())
            assert set(guard.answers) == {"val_loss", "val_acc"}

    def test_the_model_stays_in_eval_mode_and_gets_no_gradient(self):
        seen = []

        def step(self, batch, batch_idx):
            seen.append((self.training, torch.is_grad_enabled()))
            return per_example(self, batch)

        fit(trainer([self.guarded()], max_epochs=1), network(validation_step=step))
        assert set(seen) == {(False, False)}


class TestBlockwise:
    def guarded(self):
        statistics = {
            "val_auroc": th.Blockwise(MulticlassAUROC(3), 8, 0.0, 1.0),
            "val_acc": th.BoundedMean(0.0, 1.0, mode="max"),
        }
        return HoldoutGuard(holdout(statistics=statistics))

    def step(self, batch, batch_idx):
        logits = self(batch[0])
        return {"val_auroc": (logits, batch[1]), "val_acc": logits.argmax(1) == batch[1]}

    def test_a_metric_that_is_no_mean_is_published(self):
        guard = self.guarded()
        run = fit(trainer([guard]), network(validation_step=TestBlockwise.step))
        assert 0 <= float(run.callback_metrics["val_auroc"]) <= 1
        assert guard.holdout.status().queries == 6
        assert guard.holdout.status().statistics["val_auroc"]["units"] == 8

    def test_a_shuffling_loader_is_refused(self):
        shuffled = loader(shuffle=True)
        with pytest.raises(InvalidArgumentError, match="keeps the order"):
            fit(
                trainer([self.guarded()]),
                network(validation_step=TestBlockwise.step),
                val=shuffled,
            )


class TestEstimationSets:
    def guarded(self, sets=3, rounds=3):
        """Estimation sets of 40 examples each."""
        loaders = [loader(data(40, seed=20 + k), batch_size=25) for k in range(sets)]
        rule = th.EffectiveRounds(threshold=0.01, sigma=0.0, rounds=rounds)
        account = holdout(mechanism=rule, budget=rounds, grid=2**16)
        return HoldoutGuard(account, guess_dataloaders=loaders, on_exhausted="freeze")

    def test_each_release_moves_on_to_the_next_set(self):
        torch.manual_seed(0)
        guard, module, used = self.guarded(), network(), []

        class Watch(package("lightning.pytorch").Callback):
            def on_validation_end(self, trainer, pl_module):
                if not trainer.sanity_checking:
                    used.append(guard.holdout.estimation_set())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the last epochs repeat stale values, and say so
            trainer([guard, Watch()], max_epochs=4).fit(module, loader(drop_last=True), loader())
        assert used == sorted(used)
        assert used[-1] == min(2, guard.holdout.status().releases)
        assert guard.holdout.status().releases == 3  # sets of 40 are too small to agree for long

    def test_a_guess_is_the_current_sets_mean(self):
        """A set that is the holdout but for the last digits agrees with it: it is returned."""
        x, y = data().tensors
        twin = torch.utils.data.TensorDataset(x + 1e-5, y)
        rule = th.EffectiveRounds(threshold=0.01, sigma=0.0, rounds=2)
        account = holdout(mechanism=rule, budget=2, grid=64)
        guard = HoldoutGuard(account, guess_dataloaders=[loader(twin), loader(twin)])
        module = network()
        fit(trainer([guard], max_epochs=1), module)
        found = value_on(module, data())
        for name, answer in guard.answers.items():
            width = 5.0 if name == "val_loss" else 1.0
            assert answer.kind == "guess"
            assert answer.value == pytest.approx(found[name], abs=width / 128 + 1e-6)
        assert account.status().releases == 0

    def test_one_loader_for_each_set(self):
        with pytest.raises(InvalidArgumentError, match="each of 4 estimation sets, but got 3"):
            fit(trainer([self.guarded(sets=3, rounds=4)]), network())
