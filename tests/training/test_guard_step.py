"""``HoldoutGuard(step=fn)``: modules that cannot be edited, and what their hooks and others see."""

import logging
import pickle

import jsonargparse
import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_holdout.errors import InvalidArgumentError, UnguardedLogError

from support.builders import foreign
from support.builders.foreign import BATCH, SIZE, per_example
from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    data,
    fit,
    guard_class,
    package,
    quietly,
    trainer,
)
from support.builders.holdouts import make_holdout

pytestmark = IN_A_TRAINER
STATISTICS = {"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()}
EXACT = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")


def account(**changes):
    facts = {"size": SIZE, "mechanism": EXACT, "budget": 50, "grid": SIZE * 65536}
    return make_holdout(**{"statistics": STATISTICS, **facts, **changes})


def run(module, guard, *callbacks, namespace=NAMESPACES[0], **options):
    found = trainer([guard, *callbacks], namespace, **{"max_epochs": 2, **options})
    return fit(found, module, *foreign.loaders())


def by_hand(module):
    module.eval()
    with torch.no_grad():
        values = per_example(module, data(SIZE).tensors, 0)
    return {name: float(each.double().mean()) for name, each in values.items()}


BUILDS = [foreign.collection, foreign.template, foreign.collector]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_modules_are_guarded_without_an_edit(build, namespace):
    module, holdout = build(namespace), account()
    found = run(module, guard_class(namespace)(holdout, step=per_example), namespace=namespace)
    expected = by_hand(module)
    for name, value in expected.items():
        assert float(found.callback_metrics[name]) == pytest.approx(value, abs=1e-4)
    assert holdout.status().queries == 4
    assert "val_f1" not in found.callback_metrics


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_library_that_owns_its_trainer(namespace):
    train, val = foreign.loaders()
    guard = guard_class(namespace)(account(), step=per_example)
    found = foreign.Forecaster(namespace).fit(train, val, callbacks=[guard])
    assert found["holdout/releases"] == 4


def test_hooks_that_read_the_steps_outputs_are_not_run_and_that_is_said_once(caplog):
    module = foreign.collector(NAMESPACES[0])
    with caplog.at_level(logging.WARNING, logger="torch_holdout"):
        run(module, guard_class(NAMESPACES[0])(account(), step=per_example))
    said = [record.message for record in caplog.records if "will not be run" in record.message]
    assert len(said) == 1
    assert "Collector.on_validation_batch_end and Collector.on_validation_epoch_end" in said[0]
    assert module.outputs == []
    assert module.f1.update_count == 0
    module.on_validation_batch_end({"pair": (torch.eye(3), torch.arange(3))}, None, 0)
    assert module.f1.update_count == 1  # after the run it is its own method again


def test_nothing_is_said_of_a_module_without_such_hooks(caplog):
    with caplog.at_level(logging.WARNING, logger="torch_holdout"):
        run(
            foreign.template(NAMESPACES[0]), guard_class(NAMESPACES[0])(account(), step=per_example)
        )
    assert "will not be run" not in caplog.text


@pytest.mark.parametrize("sanity", [0, 2])
def test_what_callbacks_see(sanity):
    """Their hooks run for every batch, also in the sanity check, and get no outputs."""
    seen, epochs = [], []

    class See(package(NAMESPACES[0]).Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen.append((trainer.sanity_checking, outputs, len(batch[0])))

        def on_validation_epoch_end(self, trainer, pl_module):
            published = "val_loss" in trainer.callback_metrics
            epochs.append((trainer.sanity_checking, published))

    guard = guard_class(NAMESPACES[0])(account(), step=per_example)
    run(foreign.collector(NAMESPACES[0]), guard, See(), num_sanity_val_steps=sanity)
    assert {outputs for _, outputs, _ in seen} == {None}
    # The first batch is shown twice where its result counts: once marked, once as it is.
    assert sum(checking for checking, *_ in seen) >= sanity
    assert epochs == [(True, False)] * bool(sanity) + [(False, True)] * 2


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_module_without_a_validation_step(namespace):
    module = foreign.base(namespace)()
    found = run(module, guard_class(namespace)(account(), step=per_example), namespace=namespace)
    assert float(found.callback_metrics["val_loss"]) == pytest.approx(
        by_hand(module)["val_loss"], abs=1e-4
    )
    assert "validation_step" not in vars(module)


def test_several_loaders_without_an_argument_for_them():
    """The module's own step takes no dataloader_idx; the guards' step is called for each."""
    own = [account(name="one"), account(name="two", statistics={"other": th.BoundedMean(0.0, 5.0)})]

    def other(module, batch, batch_idx):
        return {"other": per_example(module, batch, batch_idx)["val_loss"]}

    guards = [
        guard_class(NAMESPACES[0])(own[0], step=per_example),
        guard_class(NAMESPACES[0])(own[1], step=other, dataloader_idx=1),
    ]
    train, val = foreign.loaders()
    found = fit(trainer(guards, max_epochs=1), foreign.template(NAMESPACES[0]), train, [val, val])
    assert float(found.callback_metrics["other"]) == float(found.callback_metrics["val_loss"])


def test_the_test_stage():
    module = foreign.template(NAMESPACES[0])
    type(module).test_step = lambda self, batch, batch_idx: self.log("test_loss", 1.0)
    guard = guard_class(NAMESPACES[0])(account(), step=per_example, stage="test")
    (found,) = quietly(trainer([guard]).test, module, foreign.loaders()[1], verbose=False)
    assert found["val_loss"] == pytest.approx(by_hand(module)["val_loss"], abs=1e-4)


def test_the_step_may_call_the_modules_own():
    class Net(foreign.base(NAMESPACES[0])):
        def validation_step(self, batch, batch_idx):
            return per_example(self, batch, batch_idx)

    def only_loss(module, batch, batch_idx):
        values = module.validation_step(batch, batch_idx)
        return {"val_loss": values["val_loss"], "val_acc": values["val_acc"]}

    run(Net(), guard_class(NAMESPACES[0])(account(), step=only_loss))

    class Logs(foreign.base(NAMESPACES[0])):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def both(module, batch, batch_idx):
        module.validation_step(batch, batch_idx)
        return {"val_acc": per_example(module, batch, batch_idx)["val_acc"]}

    logged = {"val_loss": th.LoggedMean(0.0, 5.0, batch_size=BATCH), "val_acc": th.ZeroOne()}
    found = run(Logs(), guard_class(NAMESPACES[0])(account(statistics=logged), step=both))
    assert {"val_loss", "val_acc"} <= set(found.callback_metrics)


def test_a_sealed_account_stops():
    holdout = account(mechanism=th.Sealed(evaluations=20), budget=1, grid=None)
    stop = th.Patience("val_loss", patience=2, min_delta=4.9)
    guard = guard_class(NAMESPACES[0])(holdout, step=per_example, stop=stop)
    run(foreign.collector(NAMESPACES[0]), guard, max_epochs=10)
    assert guard.outcome.reason == "patience"


def test_training_values_come_from_the_same_step():
    train = th.Thresholdout(threshold=0.02, sigma=0.0, guess="train")
    holdout = account(mechanism=train)
    guesses = DataLoader(data(60, seed=5), batch_size=20)
    guard = guard_class(NAMESPACES[0])(holdout, guess_dataloaders=guesses, step=per_example)
    run(foreign.collector(NAMESPACES[0]), guard)
    assert holdout.status().queries == 4


# ---- what is refused


@pytest.mark.parametrize(
    "step",
    ["per_example", 3, lambda module, batch: {}, lambda: {}, lambda a, b, c, d: {}],
    ids=["text", "number", "two", "none", "four"],
)
def test_another_step_is_refused_when_the_guard_is_made(step):
    with pytest.raises(InvalidArgumentError, match=r"step\(module, batch, batch_idx\)"):
        guard_class(NAMESPACES[0])(account(), step=step)


def test_two_steps_are_one_too_many():
    module = foreign.template(NAMESPACES[0])
    module.holdout_step = lambda batch, batch_idx: {}
    holdout = account()
    with pytest.raises(InvalidArgumentError, match="Leave one of them out"):
        run(module, guard_class(NAMESPACES[0])(holdout, step=per_example))
    assert holdout.status().queries == 0


KEPT = []


def keeps(module, batch, batch_idx):
    values = per_example(module, batch, batch_idx)
    KEPT.append(values["val_loss"].mean())
    return values


def logs(module, batch, batch_idx):
    values = per_example(module, batch, batch_idx)
    module.log("mine", values["val_loss"].mean())
    return values


def reads(module, batch, batch_idx):
    values = per_example(module, batch, batch_idx)
    print(values["val_loss"].mean().item())
    return values


def pools(module, batch, batch_idx):
    values = per_example(module, batch, batch_idx)
    return {**values, "val_loss": values["val_loss"].mean().repeat(len(batch[0]))}


@pytest.mark.parametrize("sanity", [0, 2])
@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (keeps, UnguardedLogError, "KEPT"),
        (logs, UnguardedLogError, "mine"),
        (reads, UnguardedLogError, "item"),
        (pools, InvalidArgumentError, "one number for the whole batch"),
    ],
)
def test_both_nets_look_at_it(step, error, match, sanity):
    holdout = account()
    guard = guard_class(NAMESPACES[0])(holdout, step=step)
    with pytest.raises(error, match=match):
        run(foreign.template(NAMESPACES[0]), guard, num_sanity_val_steps=sanity)
    assert holdout.status().queries == 0
    KEPT.clear()


def test_it_is_pickled_with_the_guard():
    guard = pickle.loads(pickle.dumps(guard_class(NAMESPACES[0])(account(), step=per_example)))
    assert guard.step is per_example


def test_a_configuration_names_it_by_its_path():
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(guard_class(NAMESPACES[0]), "guard", skip={"holdout"})
    given = parser.parse_object({"guard": {"step": "support.builders.foreign.per_example"}})
    assert given.guard.step is per_example
    assert "support.builders.foreign.per_example" in parser.dump(given)
    with pytest.raises(jsonargparse.ArgumentError):
        parser.parse_object({"guard": {"step": "support.builders.foreign.nothing"}})


# ---- loaders that are read together


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle"])
@pytest.mark.parametrize("sanity", [0, 2])
def test_loaders_that_are_read_together_get_the_right_sentence(mode, sanity, namespace):
    combined = package(namespace).utilities.CombinedLoader
    train, val = foreign.loaders()
    holdout = account()
    guard = guard_class(namespace)(holdout, step=per_example)
    found = trainer([guard], namespace, max_epochs=1, num_sanity_val_steps=sanity)
    with pytest.raises(InvalidArgumentError, match=f"one after the other.*{mode}"):
        fit(found, foreign.template(namespace), train, combined([val, val], mode))
    assert holdout.status().queries == 0


def test_loaders_that_are_read_one_after_the_other_are_taken():
    combined = package(NAMESPACES[0]).utilities.CombinedLoader
    train, val = foreign.loaders()
    shown = DataLoader(data(30, seed=7), batch_size=10)
    guard = guard_class(NAMESPACES[0])(account(), public_dataloaders=(1,))

    class Net(foreign.base(NAMESPACES[0])):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            values = per_example(self, batch, batch_idx)
            if dataloader_idx == 1:
                self.log("display_loss", values["val_loss"].mean())
            return values

    found = fit(trainer([guard], max_epochs=1), Net(), train, combined([val, shown], "sequential"))
    assert {"val_loss", "display_loss/dataloader_idx_1"} <= set(found.callback_metrics)


def test_one_loader_in_any_mode_is_taken():
    combined = package(NAMESPACES[0]).utilities.CombinedLoader
    train, val = foreign.loaders()

    def step(module, batch, batch_idx):
        return per_example(module, batch["val"], batch_idx)

    guard = guard_class(NAMESPACES[0])(account(), step=step)
    found = trainer([guard], max_epochs=1)
    fit(found, foreign.template(NAMESPACES[0]), train, combined({"val": val}, "min_size"))
    assert "val_loss" in found.callback_metrics
