"""Runs that never ask, runs inside runs, and a module whose own epoch end finds nothing."""

import contextlib
import copy
import traceback

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError, UnguardedLogError
from torch_holdout.training.guard import HoldoutGuardHooks

from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
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

pytestmark = IN_A_TRAINER


@pytest.fixture(params=NAMESPACES)
def namespace(request):
    return request.param


def is_plain(module):
    return not {"validation_step", "log"} & set(vars(module))


class TestNeverAsked:
    @pytest.mark.parametrize("sanity", [2, 0])
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({}, "the Trainer has no validation loader"),
            ({"check_val_every_n_epoch": 4}, "check_val_every_n_epoch=4"),
            ({"max_steps": 2}, "it ended before the first validation"),
        ],
        ids=["no loader", "rarely", "ends early"],
    )
    def test_a_fit_says_so(self, namespace, sanity, options, reason):
        account = holdout()
        run = trainer(
            [guard_class(namespace)(account)], namespace, num_sanity_val_steps=sanity, **options
        )
        with pytest.warns(HoldoutWarning) as caught:
            run.fit(network(namespace), loader(drop_last=True), loader() if options else None)
        said = [str(each.message) for each in caught if each.category is HoldoutWarning]
        assert f"holdout 'val' was never asked: {reason}" in said[-1]
        known_before = [text for text in said if "will not be asked" in text]
        assert len(known_before) == ("first validation" not in reason)
        assert account.status().queries == 0

    def test_a_fit_that_asks_or_does_not_train_says_nothing(self, namespace, tmp_path):
        guard, module = guard_class(namespace)(holdout()), network(namespace)
        run = fit(trainer([guard], namespace, max_epochs=1), module)
        run.save_checkpoint(tmp_path / "ended.ckpt")
        again = guard_class(namespace)(guard.holdout)
        fit(trainer([again], namespace, max_epochs=1), module, ckpt_path=tmp_path / "ended.ckpt")

    def test_a_guard_of_the_test_stage_says_nothing_of_a_fit(self, namespace):
        statistics = {"test_loss": th.BoundedMean(0.0, 5.0), "test_acc": th.ZeroOne()}
        account = holdout(statistics=statistics)
        run = trainer([guard_class(namespace)(account, stage="test")], namespace, max_epochs=1)
        fit(run, network(namespace))

    def test_a_module_without_a_validation_step_is_refused(self, namespace):
        class Bare(package(namespace).LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch, batch_idx):
                return self.layer(batch[0]).mean()

            def holdout_step(self, batch, batch_idx):
                return {"val_loss": self.layer(batch[0])[:, 0]}

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05)

        run = trainer([guard_class(namespace)(holdout())], namespace)
        with pytest.raises(InvalidArgumentError, match="`holdout_step` is called instead"):
            fit(run, Bare())
        with pytest.raises(InvalidArgumentError, match="Bare to define `validation_step`"):
            fit(run, Bare())


class Nested:
    """Fits once more in a hook of the run, and keeps or passes on what that raises."""

    def __init__(self, pl, inner, keep):
        class Hook(pl.Callback):
            error = None

            def on_train_epoch_end(self, trainer, pl_module):
                if self.error is None:
                    try:
                        inner(pl_module)
                    except InvalidArgumentError as error:
                        self.error = error
                        if not keep:
                            raise

        self.hook = Hook()


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "passed on"])
@pytest.mark.parametrize("shared", ["guard", "module"])
class TestNestedRuns:
    def test_the_inner_one_is_refused_and_the_outer_one_stays_guarded(
        self, namespace, keep, shared
    ):
        account, other = holdout(), holdout(name="other")
        guard, module = guard_class(namespace)(account), network(namespace)

        def inner(outer_module):
            own = guard if shared == "guard" else guard_class(namespace)(other)
            inside = network(namespace) if shared == "guard" else outer_module
            fit(trainer([own], namespace, max_epochs=1), inside)

        nested = Nested(package(namespace), inner, keep)
        run = trainer([guard, nested.hook], namespace)
        if keep and shared == "guard":
            fit(run, module)
            assert account.status().queries == 6
        elif keep:
            # The inner Trainer has taken the module over: Lightning's own affair.
            with contextlib.suppress(Exception):
                fit(run, module)
        else:
            with pytest.raises(InvalidArgumentError):
                fit(run, module)
        words = "one run at a time" if shared == "guard" else "no other guarded run"
        assert words in str(nested.hook.error)
        assert "Nothing was charged" in str(nested.hook.error)
        assert other.status().queries == 0
        assert is_plain(module)
        again = fit(trainer([guard], namespace, max_epochs=1), module)
        assert again.callback_metrics["val_loss"] == guard.answers["val_loss"].value


def test_a_raw_log_after_a_refused_run_is_still_trapped(namespace):
    """The twin: a guard that ended its session for the other Trainer would let it pass."""

    def logs_later(self, batch, batch_idx):
        if self.current_epoch == 1:
            self.log("raw", per_example(self, batch)["val_loss"].mean())
        return per_example(self, batch)

    guard = guard_class(namespace)(holdout())
    nested = Nested(
        package(namespace),
        lambda _: fit(trainer([guard], namespace, max_epochs=1), network(namespace)),
        keep=True,
    )
    with pytest.raises(UnguardedLogError, match="raw"):
        fit(
            trainer([guard, nested.hook], namespace), network(namespace, validation_step=logs_later)
        )
    assert nested.hook.error is not None


def test_runs_one_after_the_other_are_no_nested_ones(namespace):
    guard = guard_class(namespace)(holdout())
    module = network(namespace)
    with pytest.raises(ZeroDivisionError):
        fit(trainer([guard], namespace), network(namespace, on_train_start=lambda self: 1 / 0))
    run = fit(trainer([guard], namespace, max_epochs=1), module)
    quietly(run.validate, module, loader(), verbose=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_a_copy_made_in_a_run_is_not_part_of_it(copied):
    copies = []

    class Copy(package(NAMESPACES[0]).Callback):
        def on_validation_batch_end(self, *_):
            copies.append(copied(guard))

    guard = guard_class(NAMESPACES[0])(holdout())
    fit(trainer([guard, Copy()], max_epochs=1), network())
    for each in copies:
        assert isinstance(each, HoldoutGuardHooks)
        assert (each._session, each._current, each._evaluation) == (None, None, None)


@pytest.mark.parametrize("sanity", [2, 0])
def test_an_epoch_end_that_finds_nothing_is_told_of_the_holdout_step(namespace, sanity):
    def collects(self, batch, batch_idx):
        self.collected.append(per_example(self, batch)["val_loss"])

    def concatenates(self):
        torch.cat(self.collected)

    def values(self, batch, batch_idx):
        return per_example(self, batch)

    def fitted(**methods):
        module = network(
            namespace, validation_step=collects, on_validation_epoch_end=concatenates, **methods
        )
        module.collected = []
        guard = guard_class(namespace)(holdout())
        with pytest.raises(Exception, match=r"[Ee]xpected") as caught:
            fit(trainer([guard], namespace, num_sanity_val_steps=sanity), module)
        return "".join(traceback.format_exception(caught.value))

    shown = fitted(holdout_step=values)
    assert "expected a non-empty list" in shown
    assert "The guard calls `holdout_step` instead of `validation_step`" in shown
    assert "`holdout_step` instead" not in fitted()
