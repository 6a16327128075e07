"""What a sealed run refuses in a Trainer, before anything is charged, with the line to write."""

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutError,
    InvalidArgumentError,
    UnguardedLogError,
)

from support.builders.guarded import EXACT, IN_A_TRAINER, NAMESPACES, guard_class, package, trainer
from support.builders.holdouts import make_holdout
from support.builders.sealed_guards import (
    one_batch,
    scripted,
    sealed_fit,
    small_account,
    small_loader,
)

pytestmark = [*IN_A_TRAINER, pytest.mark.parametrize("namespace", NAMESPACES)]
STOP = th.Patience("val_loss", patience=2)


def refused(namespace, folder, callbacks=(), *, error=InvalidArgumentError, **options):
    """Fit, expecting a refusal; returns its message. No run is begun."""
    own = small_account()
    with pytest.raises(error) as found:
        sealed_fit(
            folder,
            [3.0, 2.0, 1.0],
            namespace=namespace,
            callbacks=callbacks,
            account=own,
            **options,
        )
    assert own.budget_left == 1
    assert own.status().queries == 0
    return str(found.value)


class TestArguments:
    def test_stop_and_keep_are_for_sealed_holdouts(self, namespace, tmp_path):
        live = make_holdout(mechanism=EXACT)
        for given in ({"stop": th.Patience("val_acc", 2)}, {"keep": tmp_path}):
            with pytest.raises(InvalidArgumentError, match=r"th\.Sealed\(evaluations"):
                guard_class(namespace)(live, **given)

    def test_an_unknown_statistic(self, namespace):
        with pytest.raises(InvalidArgumentError, match=r"stop=th\.Patience\('val_loss'"):
            guard_class(namespace)(small_account(), stop=th.Patience("loss", patience=2))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"stage": "test"}, "holdout.run"),
            ({"on_exhausted": "freeze"}, "no run is left"),
            ({"stop": 10}, "Patience"),
            ({"restore": 1}, "restore"),
        ],
    )
    def test_what_does_not_fit_a_sealed_holdout(self, namespace, given, said):
        with pytest.raises(InvalidArgumentError, match=said):
            guard_class(namespace)(small_account(), **given)

    def test_a_statistic_with_the_bars_name(self, namespace):
        own = small_account(statistics={"sealed": th.BoundedMean(0.0, 1.0)})
        with pytest.raises(InvalidArgumentError, match="progress bar"):
            guard_class(namespace)(own)


class TestCallbacks:
    def test_early_stopping(self, namespace, tmp_path):
        callback = package(namespace).callbacks.EarlyStopping(
            "val_loss", patience=7, min_delta=0.25
        )
        said = refused(namespace, tmp_path, [callback])
        assert "stop=th.Patience('val_loss', patience=7, min_delta=0.25)" in said

    def test_early_stopping_in_a_silent_run(self, namespace, tmp_path):
        callback = package(namespace).callbacks.EarlyStopping("val_loss")
        said = refused(namespace, tmp_path, [callback], guard={"stop": None})
        assert "display_loss/dataloader_idx_1" in said

    @pytest.mark.parametrize(
        "given", [{"monitor": "val_loss"}, {"filename": "{epoch}-{val_loss:.2f}"}]
    )
    def test_model_checkpoint(self, namespace, tmp_path, given):
        callback = package(namespace).callbacks.ModelCheckpoint(tmp_path, **given)
        said = refused(namespace, tmp_path, [callback], enable_checkpointing=True)
        assert "guard.best_model_path" in said

    def test_any_callback_that_monitors_it(self, namespace, tmp_path):
        class Pruner(package(namespace).Callback):
            monitor = "val_loss"

        assert "Pruner" in refused(namespace, tmp_path, [Pruner()])

    def test_callbacks_that_monitor_something_else_stay(self, namespace, tmp_path):
        callback = package(namespace).callbacks.ModelCheckpoint(
            tmp_path, monitor="holdout/evaluations", mode="max"
        )
        guard, *_ = sealed_fit(
            tmp_path, [1.0, 2.0, 2.0], namespace=namespace, callbacks=[callback],
            enable_checkpointing=True,
        )  # fmt: skip
        assert guard.outcome.best_evaluation == 1

    @pytest.mark.parametrize("name", ["StochasticWeightAveraging", "WeightAveraging"])
    def test_averaged_weights(self, namespace, tmp_path, name):
        kind = getattr(package(namespace).callbacks, name)
        average = kind(swa_lrs=0.1) if name.startswith("Sto") else kind()
        assert "restore=False" in refused(namespace, tmp_path, [average])

    @pytest.mark.parametrize("name", ["LearningRateFinder", "BatchSizeFinder"])
    def test_tuners(self, namespace, tmp_path, name):
        kind = getattr(package(namespace).callbacks, name)
        # The batch size finder's own setup wants the loaders in the module.
        tuner = type(name, (kind,), {"setup": lambda *_, **__: None})()
        assert "Tune first" in refused(namespace, tmp_path, [tuner])

    def test_lr_find(self, namespace, tmp_path):
        own = small_account()
        run = trainer(
            [guard_class(namespace)(own, stop=STOP)], namespace, default_root_dir=tmp_path
        )
        tuner = package(f"{namespace}.tuner").Tuner(run)
        with pytest.raises(InvalidArgumentError, match="Tune first"):
            tuner.lr_find(scripted(namespace, [1.0]), one_batch(), small_loader())
        assert own.budget_left == 1

    def test_two_guards_that_restore(self, namespace, tmp_path):
        kind = guard_class(namespace)
        guards = [
            kind(
                small_account(name=f"val{n}", statistics={f"loss{n}": th.BoundedMean(0.0, 5.0)}),
                stop=th.Patience(f"loss{n}", patience=2),
                dataloader_idx=n,
            )
            for n in range(2)
        ]
        run = trainer(guards, namespace, default_root_dir=tmp_path)
        with pytest.raises(InvalidArgumentError, match="restore=False"):
            run.fit(scripted(namespace, [1.0]), one_batch(), [small_loader(), small_loader()])


class TestTrainers:
    @pytest.mark.parametrize("given", [{"min_epochs": 5}, {"min_steps": 7}])
    def test_least_lengths_with_a_stop(self, namespace, tmp_path, given):
        said = refused(namespace, tmp_path, **given)
        assert "after=5" in said if "min_epochs" in given else "after=..." in said

    def test_least_lengths_of_a_silent_run_are_fine(self, namespace, tmp_path):
        guard, *_ = sealed_fit(
            tmp_path, [1.0, 2.0], namespace=namespace, guard={"stop": None}, min_epochs=2
        )
        assert guard.outcome.reason == "ended"

    def test_plateau_schedulers(self, namespace, tmp_path):
        own = small_account()
        module = scripted(namespace, [1.0])

        def configure_optimizers():
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"},
            }

        module.configure_optimizers = configure_optimizers
        run = trainer(
            [guard_class(namespace)(own, stop=STOP)], namespace, default_root_dir=tmp_path
        )
        with pytest.raises(InvalidArgumentError, match="CosineAnnealingLR"):
            run.fit(module, one_batch(), small_loader())
        assert own.budget_left == 1

    @pytest.mark.parametrize("option", ["fast_dev_run", "overfit_batches"])
    def test_parts_of_the_holdout(self, namespace, tmp_path, option):
        assert "whole holdout" in refused(namespace, tmp_path, **{option: 1})


class TestRuns:
    def test_validate_without_a_fit(self, namespace, tmp_path):
        own = small_account()
        run = trainer([guard_class(namespace)(own, stop=STOP)], namespace)
        with pytest.raises(HoldoutError, match=r"trainer\.fit"):
            run.validate(scripted(namespace, [1.0]), small_loader(), verbose=False)
        assert own.budget_left == 1

    def test_validate_on_other_weights(self, namespace, tmp_path):
        _, run, module, own = sealed_fit(tmp_path, [1.0, 2.0, 2.0], namespace=namespace)
        with torch.no_grad():
            module.weight.add_(1.0)
        with pytest.raises(HoldoutError, match="in a run only"):
            run.validate(module, small_loader(), verbose=False)
        assert len(own.close().values) == 3

    def test_a_second_fit_when_no_run_is_left(self, namespace, tmp_path):
        guard, run, module, _ = sealed_fit(tmp_path, [1.0, 2.0, 2.0], namespace=namespace)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with pytest.raises(BudgetExhaustedError, match="Close the holdout"):
            run.fit(module, one_batch(), small_loader())
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert guard.outcome.best_evaluation == 1  # of the first fit

    def test_a_second_fit_while_the_first_run_is_open(self, namespace, tmp_path):
        own = small_account()
        with pytest.raises(ZeroDivisionError):
            sealed_fit(
                tmp_path, [3.0, 2.0, 1.0], namespace=namespace, account=own,
                callbacks=[failing(namespace, 1)],
            )  # fmt: skip
        with pytest.raises(BudgetExhaustedError, match=r"give_up.*ckpt_path"):
            sealed_fit(tmp_path, [3.0], namespace=namespace, account=own)

    def test_a_closed_holdout(self, namespace, tmp_path):
        own = small_account()
        own.close()
        with pytest.raises(HoldoutError, match="closed, for good"):
            sealed_fit(tmp_path, [1.0], namespace=namespace, account=own)

    def test_an_evaluation_after_the_stop(self, namespace, tmp_path):
        class GoesOn(package(namespace).Callback):
            def on_validation_end(self, trainer, pl_module):
                trainer.should_stop = False

        own = small_account()
        with pytest.raises(HoldoutError, match="stopped by its patience"):
            sealed_fit(
                tmp_path, [1.0, 2.0, 2.0, 2.0], namespace=namespace, account=own,
                callbacks=[GoesOn()],
            )  # fmt: skip
        assert len(own.close().values) == 3


class TestLogging:
    @pytest.mark.parametrize("where", ["validation_step", "training_step", "on_train_epoch_end"])
    def test_a_sealed_name_is_not_logged(self, namespace, tmp_path, where):
        own = small_account()
        module = scripted(namespace, [1.0, 2.0])
        before = getattr(module, where)

        def logs(*args):
            module.log("val_loss", 0.25)
            return before(*args)

        setattr(module, where, logs)
        run = trainer(
            [guard_class(namespace)(own, stop=STOP)], namespace, default_root_dir=tmp_path
        )
        with pytest.raises(UnguardedLogError, match="display_loss"):
            run.fit(module, one_batch(), small_loader())

    def test_a_metric_of_the_sealed_holdout_is_not_logged(self, namespace, tmp_path):
        own = small_account(budget=2)
        module = scripted(namespace, [1.0, 2.0])
        metric = th.ReusableHoldoutMetric(own, "val_loss", run=own.run())
        before = module.validation_step

        def logs(*args):
            module.log("loss", metric)
            return before(*args)

        module.validation_step = logs
        run = trainer(
            [guard_class(namespace)(own, stop=STOP)], namespace, default_root_dir=tmp_path
        )
        with pytest.raises(UnguardedLogError, match="sealed"):
            run.fit(module, one_batch(), small_loader())
        assert own.budget_left == 2

    def test_dropped_it_is_not_in_the_logs(self, namespace, tmp_path):
        module = scripted(namespace, [1.0, 2.0, 2.0])
        module.on_train_epoch_end = lambda: module.log("val_loss", 0.25)
        guard = guard_class(namespace)(small_account(), stop=STOP, unguarded="drop")
        run = trainer([guard], namespace, default_root_dir=tmp_path)
        with pytest.warns(th.HoldoutWarning, match="sealed statistic"):
            run.fit(module, one_batch(), small_loader())
        assert "val_loss" not in run.callback_metrics


def failing(namespace, epoch):
    """A callback that fails when an epoch starts."""

    class Failing(package(namespace).Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == epoch:
                raise ZeroDivisionError

    return Failing()
