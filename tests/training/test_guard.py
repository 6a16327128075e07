"""HoldoutGuard in a real Trainer."""

import copy
import logging
import math
import pickle
import warnings

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch.utils.data import ConcatDataset
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutWarning,
    InvalidArgumentError,
    PartialPassError,
    UnguardedLogError,
    WeightsChangedError,
)
from torch_holdout.lightning import HoldoutGuard
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAUROC

from support.builders.guarded import (
    NAMESPACES,
    SIZE,
    data,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    package,
    per_example,
    quietly,
    trainer,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about workers and the like
    pytest.mark.filterwarnings("error::torch_holdout.errors.HoldoutWarning"),
]


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


EXACT = th.Thresholdout(threshold=0.02, sigma=0.0, guess="last")
TRAIN = th.Thresholdout(threshold=0.02, sigma=0.0, guess="train")
LOSS = {"val_loss": th.BoundedMean(0.0, 5.0)}


@pytest.fixture(autouse=True)
def quiet():
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


def only_loss(self, batch, batch_idx):
    return {"val_loss": per_example(self, batch)["val_loss"]}


def value_on(module, dataset):
    """The mean by hand, in eval mode."""
    module.eval()
    with torch.no_grad():
        found = per_example(module, dataset.tensors)
    return {name: float(values.double().mean()) for name, values in found.items()}


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
        """A set that is the holdout itself agrees with it, so it is returned, on the grid."""
        rule = th.EffectiveRounds(threshold=0.01, sigma=0.0, rounds=2)
        account = holdout(mechanism=rule, budget=2, grid=64)
        guard = HoldoutGuard(account, guess_dataloaders=[loader(), loader()])
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
            (lambda values: {"val_loss": values["val_loss"]}, "val_acc"),
            (lambda values: values | {"more": values["val_loss"]}, "more"),
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
            val=[loader(), loader(data(40)), loader()],
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
            run = fit(trainer([guard]), module, val=[loader(), loader()])
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


class TestExhaustion:
    def account(self, budget=3):
        mechanism = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")
        return holdout(mechanism=mechanism, budget=budget, statistics=LOSS, grid=2**20)

    def run(self, policy, account, **options):
        guard = HoldoutGuard(account, on_exhausted=policy)
        seen = []

        class Spy(package("lightning.pytorch").Callback):
            def on_validation_end(self, trainer, pl_module):
                if not trainer.sanity_checking:
                    seen.append({k: float(v) for k, v in trainer.callback_metrics.items()})

        stopper = package("lightning.pytorch").callbacks.EarlyStopping("val_loss", patience=99)
        run = trainer([guard, Spy(), stopper], max_epochs=6, **options)
        run.fit(network(validation_step=only_loss), loader(drop_last=True), loader())
        return run, seen

    def test_stop(self):
        run, seen = self.run("stop", self.account())
        assert len(seen) == 3
        assert [found["holdout/exhausted"] for found in seen] == [0, 0, 1]
        assert run.should_stop

    def test_stop_with_min_epochs_repeats_the_last_answer_marked_stale(self):
        with pytest.warns(HoldoutWarning, match="stale"):
            _, seen = self.run("stop", self.account(), min_epochs=5)
        assert len({found["val_loss"] for found in seen[2:]}) == 1
        assert [found["holdout/val_loss/is_release"] for found in seen] == [1, 1, 1, 0, 0]

    def test_stopping_is_said(self, caplog):
        self.run("stop", self.account())
        assert "no releases left" in caplog.text

    def test_a_later_validation_does_not_show_an_earlier_answer(self):
        account = self.account(budget=1)
        guard = HoldoutGuard(account)
        run = fit(trainer([guard]), network(validation_step=only_loss))
        other = network(validation_step=only_loss)
        with pytest.warns(HoldoutWarning, match="stale"):
            found = run.validate(other, loader(), verbose=False)[0]
        assert math.isnan(found["val_loss"])
        assert found["holdout/val_loss/is_stale"] == 1

    def test_freeze(self):
        account = self.account()
        with pytest.warns(HoldoutWarning, match="stale"):
            _, seen = self.run("freeze", account)
        assert len(seen) == 6
        assert account.status().queries == 3

    def test_what_a_frozen_run_asked_in_vain_is_counted(self):
        account = self.account()
        with pytest.warns(HoldoutWarning, match="stale"):
            self.run("freeze", account)
        ledger = account._ledger
        (found,) = ledger.refusals(ledger.accounts()["val"])
        assert (found.statistic, found.count) == ("val_loss", 3)
        assert found.run.startswith("fit of 20")

    def test_raise(self):
        with pytest.raises(BudgetExhaustedError, match="fresh"):
            self.run("raise", self.account())

    def test_a_new_fit_is_refused_and_validate_still_repeats(self):
        account = self.account(budget=1)
        module = network(validation_step=only_loss)
        guard = HoldoutGuard(account)
        run = fit(trainer([guard]), module)
        value = guard.answers["val_loss"].value
        with pytest.raises(BudgetExhaustedError, match="new fit"):
            fit(trainer([HoldoutGuard(account)]), network(validation_step=only_loss))
        assert quietly(run.validate, module, loader(), verbose=False)[0]["val_loss"] == value

    def test_exhausted_between_two_statistics(self):
        mechanism = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")
        account = holdout(mechanism=mechanism, budget=1)
        run = trainer([HoldoutGuard(account)])
        with pytest.warns(HoldoutWarning, match="val_acc"):
            run.fit(network(), loader(drop_last=True), loader())
        assert not math.isnan(run.callback_metrics["val_loss"])
        assert math.isnan(run.callback_metrics["val_acc"])  # never a training value, never a 0


class TestResume:
    def test_three_resumes_report_the_true_count(self, tmp_path):
        pl = package("lightning.pytorch")
        account = holdout(statistics=LOSS, budget=200)
        asked = 0

        def options(epochs):
            keep = pl.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
            return [HoldoutGuard(account), keep], {
                "enable_checkpointing": True, "max_epochs": epochs
            }  # fmt: skip

        shuffled = loader(shuffle=True, drop_last=True)
        callbacks, settings = options(2)
        fit(trainer(callbacks, **settings), network(validation_step=only_loss), shuffled)
        asked += 2
        for _ in range(3):
            callbacks, settings = options(3)
            module = network(validation_step=only_loss)
            fit(
                trainer(callbacks, **settings),
                module,
                shuffled,
                ckpt_path=tmp_path / "epoch=0.ckpt",
            )
            asked += 2
        assert account.status().queries == asked
        assert "budget" not in str(
            torch.load(tmp_path / "epoch=0.ckpt", weights_only=False)["callbacks"]
        )

    def test_a_resumed_run_sees_its_last_answer_until_the_next(self, tmp_path):
        pl = package("lightning.pytorch")
        account = holdout(statistics=LOSS)
        first = HoldoutGuard(account)
        keep = pl.callbacks.ModelCheckpoint(tmp_path, filename="last")
        module = network(validation_step=only_loss)
        fit(trainer([first, keep], enable_checkpointing=True, max_epochs=1), module)
        seen = []

        class Spy(pl.Callback):
            def on_train_epoch_start(self, trainer, pl_module):
                seen.append({k: float(v) for k, v in trainer.callback_metrics.items()})

        stopper = pl.callbacks.EarlyStopping("val_loss", patience=5)
        run = trainer([stopper, HoldoutGuard(account), Spy()], max_epochs=2)
        fit(run, network(validation_step=only_loss), ckpt_path=tmp_path / "last.ckpt")
        assert seen[0] == {"val_loss": first.answers["val_loss"].value}
        assert account.status().queries == 2


@pytest.mark.parametrize(
    "change",
    [
        {"holdout": 3},
        {"unguarded": "ignore"},
        {"on_exhausted": "panic"},
        {"stage": "fit"},
        {"dataloader_idx": -1},
        {"version": 2},
        {"run": "two\nlines"},
        {"run": 3},
        {"public": 3},
        {"public_dataloaders": 1},
        {"public_dataloaders": ("1",)},
    ],
    ids=str,
)
def test_bad_arguments(change):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        HoldoutGuard(**{"holdout": holdout(), **change})


def test_fixed_subset_is_fixed():
    dataset = data(50)
    first = th.fixed_subset(dataset, 10, seed=3)
    assert first.indices == th.fixed_subset(dataset, 10, seed=3).indices
    assert first.indices != th.fixed_subset(dataset, 10, seed=4).indices
    assert len(set(first.indices)) == 10
    for size in (0, 51, 2.5):
        with pytest.raises(InvalidArgumentError, match="size"):
            th.fixed_subset(dataset, size, seed=0)
