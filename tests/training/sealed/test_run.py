"""The sealed run of a fit: its outcome, its weights, what it logs, how it goes on and ends."""

import contextlib
import copy
import logging
import stat
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutError, HoldoutWarning

from support.builders.guarded import IN_A_TRAINER, NAMESPACES, guard_class, package, trainer
from support.builders.sealed_guards import (
    one_batch,
    same_weights,
    scripted,
    sealed_fit,
    small_account,
    small_loader,
)

pytestmark = [*IN_A_TRAINER, pytest.mark.parametrize("namespace", NAMESPACES)]
VALUES = [3.0, 2.0, 2.5, 2.5, 1.0]
STOP = th.Patience("val_loss", patience=2)


def failing(namespace, epoch, error=ZeroDivisionError):
    """A callback that fails when an epoch starts."""

    class Failing(package(namespace).Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == epoch:
                raise error

    return Failing()


def saving(namespace, folder):
    return package(namespace).callbacks.ModelCheckpoint(
        folder, filename="{epoch}", save_top_k=-1, every_n_epochs=1
    )


class TestOutcome:
    def test_it_stops_and_puts_the_best_weights_back(self, namespace, tmp_path, caplog):
        guard, run, module, own = sealed_fit(tmp_path, VALUES, namespace=namespace)
        assert guard.outcome.reason == "patience"
        assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
        assert run.current_epoch == 4
        assert int(module.steps) == 2
        assert float(module.unsaved) == 1.0  # a buffer that no state_dict has
        assert float(run.callback_metrics["holdout/price"]) == guard.outcome.price
        assert "stopped by patience at evaluation 4; the best is 2" in caplog.text
        assert [v.value for v in own.close().values] == pytest.approx(VALUES[:4], abs=1e-4)

    def test_the_file_is_a_state_that_only_its_owner_reads(self, namespace, tmp_path):
        guard, _, module, own = sealed_fit(tmp_path, VALUES, namespace=namespace)
        path = Path(guard.best_model_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.is_relative_to(tmp_path)
        assert same_weights(torch.load(path, weights_only=True), module.state_dict())
        closing = own.close()
        fresh = scripted(namespace, VALUES)
        assert closing.runs[0].weights == str(path)
        assert closing.load_best(fresh).evaluation == 2
        assert same_weights(fresh.state_dict(), module.state_dict())

    def test_a_fit_that_reaches_its_end_names_the_best(self, namespace, tmp_path):
        guard, run, module, _ = sealed_fit(tmp_path, [3.0, 1.0, 2.0], namespace=namespace)
        assert guard.outcome.reason == "ended"
        assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, None)
        assert int(module.steps) == 2
        assert run.current_epoch == 3

    def test_without_restoring_the_last_weights_stay(self, namespace, tmp_path):
        guard, _, module, _ = sealed_fit(
            tmp_path, VALUES, namespace=namespace, guard={"restore": False}
        )
        assert int(module.steps) == 4
        assert int(torch.load(guard.best_model_path, weights_only=True)["steps"]) == 2

    def test_averaging_with_restore_false(self, namespace, tmp_path):
        average = package(namespace).callbacks.WeightAveraging()
        guard, *_ = sealed_fit(
            tmp_path, VALUES, namespace=namespace, callbacks=[average], guard={"restore": False}
        )
        assert guard.outcome.best_evaluation is not None
        assert Path(guard.best_model_path).exists()

    def test_a_second_fit_is_a_second_run(self, namespace, tmp_path):
        own = small_account(budget=2)
        guard, run, module, _ = sealed_fit(tmp_path, VALUES, namespace=namespace, account=own)
        first = guard.best_model_path
        run.fit_loop.max_epochs = 20
        run.fit(module, one_batch(), small_loader())
        assert guard.best_model_path != first
        assert own.budget_left == 0
        assert len(own.close().runs) == 2

    def test_the_name_of_the_run(self, namespace, tmp_path):
        _, _, _, own = sealed_fit(tmp_path, VALUES, namespace=namespace, guard={"run": "baseline"})
        assert own.close().runs[0].name == "baseline"

    def test_two_fits_of_one_trainer_are_not_too_short(self, namespace, tmp_path, caplog):
        sealed_fit(tmp_path, [1.0, 2.0], namespace=namespace)
        assert "cannot stop it before pass 3" in caplog.text

    def test_more_validations_than_planned_are_said_before_training(
        self, namespace, tmp_path, caplog
    ):
        warned = "but this run may have 5 validations: those beyond the plan get wider intervals"
        for evaluations in (4, 5):
            own = small_account(mechanism=th.Sealed(evaluations=evaluations))
            sealed_fit(tmp_path, VALUES, namespace=namespace, account=own)
            assert (warned in caplog.text) is (evaluations == 4)
            caplog.clear()


class TestSilent:
    def test_nothing_is_said_until_closing(self, namespace, tmp_path, caplog):
        guard, _, module, own = sealed_fit(
            tmp_path, VALUES, namespace=namespace, guard={"stop": None}
        )
        assert guard.outcome.reason == "ended"
        assert guard.outcome.best_evaluation is None
        assert guard.outcome.price == 0.0
        assert guard.best_model_path is None
        assert int(module.steps) == 5  # the last ones: the best would tell which epoch it was
        assert "best" not in caplog.text
        (path,) = (tmp_path / "holdout_runs").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        closing = own.close()
        assert closing.runs[0].weights == str(path)
        assert closing.load_best(module).evaluation == 5

    @pytest.mark.parametrize("best", range(4))
    def test_the_best_may_be_any_epoch(self, namespace, tmp_path, best):
        values = [2.0 - (n == best) for n in range(4)]
        _, _, module, own = sealed_fit(
            tmp_path, values, namespace=namespace, guard={"stop": None, "keep": tmp_path / "kept"}
        )
        assert own.close().load_best(module).evaluation == best + 1
        assert int(module.steps) == best + 1
        assert len(list((tmp_path / "kept").iterdir())) == 1

    def test_a_resumed_one_keeps_no_weights(self, namespace, tmp_path):
        """Whether a file is there would tell whether the best lies behind the checkpoint."""
        for best in (0, 3):
            own = small_account()
            values = [2.0 - (n == best) for n in range(5)]
            folder = tmp_path / str(best)
            with pytest.raises(ZeroDivisionError):
                sealed_fit(
                    folder, values, namespace=namespace, account=own, guard={"stop": None},
                    callbacks=[saving(namespace, folder), failing(namespace, 3)],
                    enable_checkpointing=True,
                )  # fmt: skip
            with pytest.warns(HoldoutWarning, match="silent, and was resumed"):
                sealed_fit(
                    folder, values, namespace=namespace, account=own, guard={"stop": None},
                    fit={"ckpt_path": folder / "epoch=1.ckpt"},
                )  # fmt: skip
            assert not (folder / "holdout_runs").exists()
            assert own.close().best.evaluation == best + 1


class TestLogs:
    def test_counts_and_prices_only(self, namespace, tmp_path):
        seen = []

        class Spy(package(namespace).Callback):
            def on_validation_end(self, trainer, pl_module):
                if not trainer.sanity_checking:
                    names = ("callback_metrics", "logged_metrics", "progress_bar_metrics")
                    seen.append({name: dict(getattr(trainer, name)) for name in names})

        sealed_fit(tmp_path, VALUES, namespace=namespace, callbacks=[Spy()])
        counts = {"evaluations", "passes", "price", "runs_left"}
        for number, found in enumerate(seen, start=1):
            assert set(found["callback_metrics"]) == {f"holdout/{name}" for name in counts}
            assert set(found["logged_metrics"]) == {f"holdout/{name}" for name in counts}
            assert found["progress_bar_metrics"] == {"sealed": number}
            assert int(found["callback_metrics"]["holdout/evaluations"]) == number
            assert int(found["callback_metrics"]["holdout/runs_left"]) == 0

    def test_without_the_bar(self, namespace, tmp_path):
        _, run, *_ = sealed_fit(tmp_path, VALUES, namespace=namespace, guard={"prog_bar": False})
        assert run.progress_bar_metrics == {}


class TestErrors:
    def test_a_value_that_is_read_is_explained(self, namespace, tmp_path):
        class Reads(package(namespace).Callback):
            def on_validation_end(self, trainer, pl_module):
                trainer.callback_metrics["val_loss"]

        with pytest.raises(KeyError) as found:
            sealed_fit(tmp_path, VALUES, namespace=namespace, callbacks=[Reads()])
        said = " ".join(map(str, [*found.value.args, *getattr(found.value, "__notes__", ())]))
        assert "Nothing is logged as 'val_loss', because holdout 'val' is sealed" in said

    def test_other_errors_are_left_alone(self, namespace, tmp_path):
        with pytest.raises(KeyError) as found:
            sealed_fit(
                tmp_path, VALUES, namespace=namespace,
                callbacks=[failing(namespace, 1, KeyError("train_loss"))],
            )  # fmt: skip
        assert found.value.args == ("train_loss",)
        assert not getattr(found.value, "__notes__", ())

    def test_closed_by_a_callback_it_is_not_said_to_be_open(self, namespace, tmp_path, caplog):
        own = small_account()

        class Closes(package(namespace).Callback):
            def on_train_epoch_start(self, trainer, pl_module):
                if trainer.current_epoch == 2:
                    own.close()

        with pytest.raises(HoldoutError, match="closed, for good"):
            sealed_fit(tmp_path, VALUES, namespace=namespace, account=own, callbacks=[Closes()])
        assert "stays open" not in caplog.text
        assert len(own.close().values) == 2


class TestValidate:
    def test_known_weights_are_a_repeat_and_log_nothing(self, namespace, tmp_path):
        guard, run, module, own = sealed_fit(tmp_path, VALUES, namespace=namespace)
        run.validate(module, small_loader(), verbose=False)
        assert dict(run.callback_metrics) == {}
        assert guard.outcome.passes == 4
        assert own.run(resume=guard.outcome.run).outcome == guard.outcome
        assert len(own.close().values) == 4

    def test_after_closing_it_is_refused(self, namespace, tmp_path):
        _, run, module, own = sealed_fit(tmp_path, VALUES, namespace=namespace)
        own.close()
        with pytest.raises(HoldoutError, match="closed"):
            run.validate(module, small_loader(), verbose=False)


class TestBrokenOff:
    def broken(self, namespace, folder, own, epoch=3, error=ZeroDivisionError, **guard):
        with pytest.raises(SystemExit if error is KeyboardInterrupt else error):
            sealed_fit(
                folder, VALUES, namespace=namespace, account=own, guard=guard,
                callbacks=[saving(namespace, folder), failing(namespace, epoch, error)],
                enable_checkpointing=True,
            )  # fmt: skip

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    def test_the_run_stays_open_and_nothing_is_written(self, namespace, tmp_path, error, caplog):
        own = small_account()
        self.broken(namespace, tmp_path, own, error=error)
        assert own.budget_left == 0
        assert not (tmp_path / "holdout_runs").exists()
        assert "stays open after 3 passes" in caplog.text
        assert "end() ends it" in caplog.text

    def test_an_early_failure_can_be_given_up_for_free(self, namespace, tmp_path, caplog):
        own = small_account()
        self.broken(namespace, tmp_path, own, epoch=1)
        assert "give_up() gives it up, for free" in caplog.text
        mark = caplog.text.split("resume='")[1].split("'")[0]
        own.run(resume=mark).give_up()
        guard, *_ = sealed_fit(tmp_path, VALUES, namespace=namespace, account=own)
        assert guard.outcome.best_evaluation == 2

    def test_a_checkpoint_holds_the_runs_id_and_nothing_else(self, namespace, tmp_path):
        own = small_account()
        self.broken(namespace, tmp_path, own)
        content = torch.load(tmp_path / "epoch=1.ckpt", weights_only=True)["callbacks"]
        (state,) = (value for key, value in content.items() if "HoldoutGuard" in key)
        assert set(state) == {"last", "run"}
        assert state["last"] == {}
        assert own.run(resume=state["run"]).outcome is None

    @pytest.mark.parametrize("checkpoint", [0, 1, 2])
    def test_a_resumed_run_ends_where_it_would_have_ended(self, namespace, tmp_path, checkpoint):
        """The best is evaluation 2, of epoch 1; passes after the checkpoint are made again."""
        own = small_account()
        self.broken(namespace, tmp_path, own)
        fit = {"ckpt_path": tmp_path / f"epoch={checkpoint}.ckpt"}
        lost = checkpoint >= 1
        with (
            pytest.warns(HoldoutWarning, match="keep=folder") if lost else contextlib.nullcontext()
        ):
            guard, _, module, _ = sealed_fit(
                tmp_path, VALUES, namespace=namespace, account=own, fit=fit
            )
        assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
        assert guard.outcome.evaluations == 4
        assert (guard.best_model_path is None) == lost
        assert int(module.steps) == (4 if lost else 2)

    @pytest.mark.parametrize("checkpoint", [0, 1, 2])
    def test_files_outlive_the_process(self, namespace, tmp_path, checkpoint):
        own, keep = small_account(), tmp_path / "kept"
        self.broken(namespace, tmp_path, own, keep=keep)
        (folder,) = keep.iterdir()
        assert sorted(p.name for p in folder.iterdir()) == [f"slot-{n}.pt" for n in range(3)]
        guard, _, module, _ = sealed_fit(
            tmp_path, VALUES, namespace=namespace, account=own, guard={"keep": str(keep)},
            fit={"ckpt_path": tmp_path / f"epoch={checkpoint}.ckpt"},
        )  # fmt: skip
        assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
        assert int(module.steps) == 2
        assert Path(guard.best_model_path).parent == keep
        assert list(keep.rglob("slot*")) == []

    def test_an_ended_run_is_not_resumed(self, namespace, tmp_path):
        own = small_account()
        guard, *_ = sealed_fit(
            tmp_path, VALUES, namespace=namespace, account=own,
            callbacks=[saving(namespace, tmp_path)], enable_checkpointing=True,
        )  # fmt: skip
        for epoch in (0, 3):
            with pytest.raises(HoldoutError, match="is a new run") as found:
                sealed_fit(
                    tmp_path, VALUES, namespace=namespace, account=own,
                    fit={"ckpt_path": tmp_path / f"epoch={epoch}.ckpt"},
                )  # fmt: skip
            assert "stopped by patience at evaluation 4; the best is 2" in str(found.value)
            assert guard.best_model_path in str(found.value)

    def test_with_another_rule_it_is_not_resumed(self, namespace, tmp_path):
        own = small_account()
        self.broken(namespace, tmp_path, own)
        for stop in (None, th.Patience("val_loss", patience=3)):
            with pytest.raises(HoldoutError, match="another rule"):
                sealed_fit(
                    tmp_path, VALUES, namespace=namespace, account=own, guard={"stop": stop},
                    fit={"ckpt_path": tmp_path / "epoch=0.ckpt"},
                )  # fmt: skip


class TestCopies:
    def test_a_copy_is_not_part_of_the_run(self, namespace, tmp_path):
        guard, *_ = sealed_fit(tmp_path, VALUES, namespace=namespace)
        twin = copy.deepcopy(guard)
        assert twin.outcome == guard.outcome
        run = trainer([twin], namespace, default_root_dir=tmp_path)
        with pytest.raises(HoldoutError, match="has evaluated none"):
            run.validate(scripted(namespace, VALUES), small_loader(), verbose=False)

    def test_reprs_and_logs_name_no_value(self, namespace, tmp_path, caplog):
        caplog.set_level(logging.DEBUG, "torch_holdout")
        guard, *_ = sealed_fit(tmp_path, VALUES, namespace=namespace)
        shown = " ".join(map(repr, [guard, guard._course, *vars(guard._course).values()]))
        for number in ("2.5", "3.0"):
            assert number not in shown
            assert number not in caplog.text


class TestAveraging:
    def test_what_is_kept_is_what_was_evaluated(self, namespace, tmp_path):
        """Weight averaging swaps the weights around a pass: copies are taken inside the step."""
        own, evaluated = small_account(), {}
        module = scripted(namespace, VALUES)
        step = module.validation_step

        def validation_step(batch, batch_idx):
            if batch_idx == 0 and not module.trainer.sanity_checking:
                evaluated[module.trainer.current_epoch + 1] = module.weight.detach().clone()
            return step(batch, batch_idx)

        module.validation_step = validation_step
        average = package(namespace).callbacks.EMAWeightAveraging(decay=0.5)
        guard = guard_class(namespace)(own)
        run = trainer([guard, average], namespace, max_epochs=4, default_root_dir=tmp_path)
        run.fit(module, one_batch(), small_loader())
        fresh = scripted(namespace, VALUES)
        best = own.close().load_best(fresh)
        assert torch.equal(fresh.weight, evaluated[best.evaluation])
        assert len({tuple(weights.tolist()) for weights in evaluated.values()}) == 4


class TestNoise:
    @pytest.mark.parametrize("keep", [False, True])
    def test_the_best_may_be_any_pass(self, namespace, tmp_path, keep):
        """With noise the best need not be among the last passes: no ring, two buffers."""
        own = small_account(mechanism=th.Sealed(evaluations=50, epsilon=1.0), seed=3)
        values = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 0.98, 1.01, 1.0, 1.0, 1.0, 0.99]
        slots = []

        class Slots(package(namespace).Callback):
            def on_validation_end(self, trainer, pl_module):
                slots.extend(tmp_path.rglob("slot*"))

        folder = {"keep": tmp_path / "kept"} if keep else {}
        guard, run, module, _ = sealed_fit(
            tmp_path, values, namespace=namespace, account=own, guard=folder, callbacks=[Slots()]
        )
        assert slots == []
        assert int(module.steps) == guard.outcome.best_evaluation
        assert float(run.callback_metrics["holdout/price"]) > 0
        if guard.outcome.reason == "patience":
            assert float(run.callback_metrics["holdout/price"]) == guard.outcome.price
