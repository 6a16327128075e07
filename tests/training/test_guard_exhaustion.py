"""A guard whose budget ends, and a run that is resumed."""

import math

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import BudgetExhaustedError, HoldoutWarning
from torch_holdout.lightning import HoldoutGuard

from support.builders.guarded import (
    IN_A_TRAINER,
    LOSS,
    fit,
    holdout,
    loader,
    network,
    only_loss,
    package,
    quietly,
    trainer,
)

pytestmark = IN_A_TRAINER


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
        assert "fresh holdout" in caplog.text

    @pytest.mark.parametrize(
        ("options", "planned"),
        [({}, 6), ({"val_check_interval": 2}, 12), ({"check_val_every_n_epoch": 3}, None)],
    )
    def test_a_budget_that_cannot_last_is_said_before_training(self, caplog, options, planned):
        account = holdout(mechanism=th.LaplaceMechanism(epsilon=1.0), budget=5, statistics=LOSS)
        self.run("stop", account, **options)
        said = [each.getMessage() for each in caplog.records if "ends early" in each.getMessage()]
        assert len(said) == (planned is not None)
        assert all(f"5 releases left, but this fit plans {planned} valid" in text for text in said)

    def test_guesses_are_free_so_a_small_budget_may_last(self, caplog):
        self.run("stop", self.account())
        assert "ends early" not in caplog.text

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
