"""Parts of the holdout, several loaders, tuners, averaged and compiled weights under a guard."""

import pytest
import torch
import torch_holdout as th
from torch.utils.data import ConcatDataset
from torch_holdout.errors import InvalidArgumentError, PartialPassError, WeightsChangedError
from torch_holdout.lightning import HoldoutGuard
from torchmetrics import MeanMetric

from support.builders.guarded import (
    IN_A_TRAINER,
    LOSS,
    SIZE,
    data,
    fit,
    holdout,
    loader,
    network,
    only_loss,
    package,
    per_example,
    quietly,
    trainer,
)

pytestmark = IN_A_TRAINER


class TestTrainerModes:
    @pytest.mark.parametrize(
        "options",
        [
            {"limit_val_batches": 0.5},
            {"limit_val_batches": 1},
            {"limit_val_batches": 0},
            {"fast_dev_run": True},
            {"overfit_batches": 1},
            {"barebones": True},
        ],
        ids=str,
    )
    def test_parts_of_the_holdout_are_refused(self, options):
        account = holdout()
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            fit(trainer([HoldoutGuard(account)], **options), network())
        assert account.status().queries == 0

    def test_a_loader_that_is_not_the_holdout_is_refused(self):
        for wrong in (loader(drop_last=True), loader(ConcatDataset([data(), data(3)]))):
            account = holdout()
            with pytest.raises(PartialPassError):
                fit(trainer([HoldoutGuard(account)]), network(), val=wrong)
            assert account.status().queries == 0

    def test_validate_of_the_same_weights_is_a_repeat(self):
        account, module = holdout(), network()
        guard = HoldoutGuard(account)
        run = fit(trainer([guard]), module)
        before = account.status().queries
        found = quietly(run.validate, module, loader(), verbose=False)
        assert account.status().queries == before
        assert {answer.kind for answer in guard.answers.values()} == {"repeat"}
        assert found[0]["val_loss"] == run.callback_metrics["val_loss"]

    def test_a_second_holdout_for_testing(self):
        statistics = {"test_loss": th.BoundedMean(0.0, 5.0), "test_acc": th.ZeroOne()}
        validation, test = holdout(), holdout(name="test", statistics=statistics, budget=4)
        module = network()
        run = fit(trainer([HoldoutGuard(validation), HoldoutGuard(test, stage="test")]), module)
        assert test.status().queries == 0
        found = quietly(run.test, module, loader(), verbose=False)
        assert set(found[0]) >= {"test_loss", "test_acc", "holdout/budget_left"}
        assert test.status().queries == 2
        assert validation.status().queries == 6

    def test_several_loaders_with_a_guard_each_and_a_public_one(self):
        def step(self, batch, batch_idx, dataloader_idx=0):
            values = per_example(self, batch)
            if dataloader_idx == 2:
                self.log("train_again", values["val_loss"].mean())
                return None
            return {f"loss_{dataloader_idx}": values["val_loss"]}

        accounts = [
            holdout(name=f"part {i}", statistics={f"loss_{i}": th.BoundedMean(0.0, 5.0)}, size=size)
            for i, size in enumerate((SIZE, 40))
        ]
        guards = [
            HoldoutGuard(account, dataloader_idx=i, public_dataloaders=(2,))
            for i, account in enumerate(accounts)
        ]
        run = fit(
            trainer(guards),
            network(validation_step=step),
            val=[loader(), loader(data(40)), loader(data(seed=5))],
        )
        assert [account.status().queries for account in accounts] == [3, 3]
        published = set(run.callback_metrics)
        assert {"loss_0", "loss_1", "holdout/part 0/budget_left"} <= published
        assert "train_again/dataloader_idx_2" in published

    def test_a_public_loader_may_have_its_own_metric(self):
        for public in (0, 1):

            def step(self, batch, batch_idx, dataloader_idx=0, public=public):
                if dataloader_idx == public:
                    self.mean.update(per_example(self, batch)["val_loss"])
                    self.log("public", self.mean)
                    return None
                return per_example(self, batch)

            module = network(validation_step=step)
            module.mean = MeanMetric()
            guard = HoldoutGuard(holdout(), dataloader_idx=1 - public, public_dataloaders=(public,))
            loaders = [loader(), loader(data(seed=5))]
            run = fit(trainer([guard]), module, val=loaders if public else loaders[::-1])
            assert f"public/dataloader_idx_{public}" in run.callback_metrics

    def test_a_batch_of_unknown_origin_is_refused(self):
        """Combined loaders give no index: the holdout must not pass for the public loader."""
        combined = package("lightning.pytorch").utilities.CombinedLoader(
            [loader(), loader()], mode="min_size"
        )

        def step(self, batch, batch_idx):
            self.log("raw", per_example(self, batch[1])["val_loss"].mean())

        guard = HoldoutGuard(holdout(), dataloader_idx=1, public_dataloaders=(0,))
        with pytest.raises(InvalidArgumentError, match=r"loader"):
            fit(trainer([guard]), network(validation_step=step), val=combined)

        def iterates(self, dataloader_iter):
            batch, _, _ = next(dataloader_iter)
            self.log("raw", per_example(self, batch)["val_loss"].mean())

        with pytest.raises(InvalidArgumentError, match="dataloader_iter"):
            fit(trainer([guard]), network(validation_step=iterates), val=[loader(), loader()])

    def test_an_undeclared_loader_is_refused_in_the_sanity_check(self):
        account = holdout()
        with pytest.raises(InvalidArgumentError, match="public_dataloaders"):
            fit(
                trainer([HoldoutGuard(account)]),
                network(validation_step=lambda self, batch, batch_idx, dataloader_idx=0: None),
                val=[loader(), loader()],
            )
        assert account.status().queries == 0

    def test_guards_that_collide_are_refused(self):
        for other in (
            HoldoutGuard(holdout(), dataloader_idx=1),
            HoldoutGuard(holdout(name="b", statistics={"x": th.ZeroOne()})),
            HoldoutGuard(holdout(name="c"), dataloader_idx=1),
        ):
            with pytest.raises(InvalidArgumentError, match="own loader"):
                fit(trainer([HoldoutGuard(holdout()), other]), network())

    @pytest.mark.parametrize("first", [True, False])
    def test_weight_averaging_is_what_is_asked_about(self, first):
        """The averaged weights are in place during the pass, and swapped back around it."""
        ema = package("lightning.pytorch").callbacks.EMAWeightAveraging()
        always = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")
        account = holdout(mechanism=always, grid=2**20, statistics=LOSS)
        guard = HoldoutGuard(account)
        guard._looks = False  # it would refuse this test's own list
        seen = []

        def step(self, batch, batch_idx):
            values = only_loss(self, batch, batch_idx)
            seen.append(values["val_loss"])
            return values

        module = network(validation_step=step)
        fit(trainer([guard, ema] if first else [ema, guard], num_sanity_val_steps=0), module)
        expected = float(torch.cat(seen[-5:]).double().mean())
        assert guard.answers["val_loss"].value == pytest.approx(expected, abs=1e-4)
        assert account.status().queries == 3

    def test_a_compiled_module(self):
        account, module = holdout(), network()
        compiled = torch.compile(module, backend="eager")
        fit(trainer([HoldoutGuard(account)], max_epochs=2), compiled)
        assert account.status().queries == 4

    def test_tuners_see_nothing_and_cost_nothing(self, tmp_path):
        tuner = package("lightning.pytorch").tuner.Tuner
        account = holdout()

        def with_rate(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

        module = network(configure_optimizers=with_rate)
        module.lr, module.batch_size = 0.01, 4
        run = trainer([HoldoutGuard(account)], default_root_dir=tmp_path)
        quietly(tuner(run).lr_find, module, loader(drop_last=True), loader(), num_training=5)
        assert account.status().queries == 0
        assert not any("val" in key for key in run.callback_metrics)
        fit(run, module)
        assert account.status().queries > 0

    def test_training_inside_the_pass_is_refused(self):
        def step(self, batch, batch_idx):
            with torch.no_grad():
                self.layers[0].bias.add_(1.0)
            return per_example(self, batch)

        account = holdout()
        with pytest.raises(WeightsChangedError):
            fit(trainer([HoldoutGuard(account)]), network(validation_step=step))
        assert account.status().queries == 0

    def test_a_model_left_in_training_mode_is_refused(self):
        def stay(self):
            self.train()

        with pytest.raises(WeightsChangedError, match=r"eval\(\)"):
            fit(trainer([HoldoutGuard(holdout())]), network(on_validation_model_eval=stay))
