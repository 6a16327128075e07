"""A sealed run stops where Lightning's own early stopping on raw values stops, with its weights."""

from typing import Any, NamedTuple

import pytest
import torch
import torch_holdout as th

from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    SIZE,
    data,
    guard_class,
    loader,
    network,
    package,
    trainer,
)
from support.builders.sealed_guards import (
    account,
    one_batch,
    raw_stopping,
    same_weights,
    scripted,
    sealed_fit,
    small_account,
    small_loader,
)
from support.machines.soak import soak

pytestmark = IN_A_TRAINER
LOSS, ACCURACY = "val_loss", "val_acc"


def bumpy(namespace, seed, *, dropout=True):
    """A classifier whose curve goes up and down: a large step, and few examples."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.6)

    torch.manual_seed(seed)
    made = network(namespace, configure_optimizers=configure_optimizers)
    made.layers[3].p = 0.1 if dropout else 0.0  # a checkpoint has no state of its draws
    return made


def loaders(seed):
    train = loader(data(40, seed=seed + 100), 20, drop_last=True)
    return train, loader(data(SIZE, seed=seed), 50)


def both(
    namespace, seed, folder, *, name=LOSS, patience=2, min_delta=0.0, broken_off=False, **options
):
    """Run raw and sealed; return what each chose. ``broken_off``: the sealed fit is resumed."""
    statistic = account().statistics[name]
    options = {"max_epochs": 25, "num_sanity_val_steps": 0, **options}
    callbacks, means = raw_stopping(
        namespace,
        statistic,
        name,
        folder / "raw",
        patience=patience,
        min_delta=min_delta,
        each_validation=options.get("val_check_interval") == 1,
    )
    raw = trainer(callbacks, namespace, enable_checkpointing=True, **options)
    module = bumpy(namespace, seed, dropout=not broken_off)
    torch.manual_seed(seed)
    raw.fit(module, *loaders(seed))
    saved = torch.load(callbacks[2].best_model_path, weights_only=True)["state_dict"]

    own, resumed = account(), {}
    given = {"stop": th.Patience(name, patience=patience, min_delta=min_delta)}
    if broken_off:
        given["keep"] = folder / "kept"
        guard = guard_class(namespace)(own, **given)
        resumed["ckpt_path"] = break_off(namespace, seed, folder, guard, len(means), **options)
    guard = guard_class(namespace)(own, **given)
    sealed = trainer([guard], namespace, default_root_dir=folder, **options)
    module = bumpy(namespace, seed, dropout=not broken_off)
    torch.manual_seed(seed)
    sealed.fit(module, *loaders(seed), **resumed)
    return Both(raw, sealed, guard, module, saved, callbacks[1].reference, means, own)


def break_off(namespace, seed, folder, guard, passes, **options):
    """Fit until an error somewhere before the last pass; return the checkpoint to go on from."""
    pl, last = package(namespace), 1 + seed % (passes - 1)

    class Failing(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == last:
                raise ZeroDivisionError

    saver = pl.callbacks.ModelCheckpoint(folder / "open", save_top_k=-1, filename="{epoch}")
    run = trainer(
        [guard, saver, Failing()], namespace, default_root_dir=folder, enable_checkpointing=True,
        **options,
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        run.fit(bumpy(namespace, seed, dropout=False), *loaders(seed))
    assert guard.outcome is None
    return folder / "open" / f"epoch={max(0, last - 1 - seed % 3)}.ckpt"


class Both(NamedTuple):
    """A raw and a sealed fit of the same module."""

    raw: Any
    sealed: Any
    guard: Any
    module: Any
    saved: Any
    reference: Any
    means: list
    account: Any


def require_same(found):
    raw, sealed, guard, module, saved, reference, means, own = found
    if raw.accumulate_grad_batches > 1:
        saved = reference  # ModelCheckpoint saves once a step, however often it validates
    sign = 1 if guard.stop.statistic == LOSS else -1
    best = min(range(len(means)), key=lambda i: sign * means[i]) + 1
    assert sealed.global_step == raw.global_step
    assert sealed.current_epoch == raw.current_epoch
    assert guard.outcome.passes == len(means)
    assert guard.outcome.best_evaluation == best
    assert same_weights(module.state_dict(), reference)
    assert same_weights(module.state_dict(), saved)
    assert same_weights(torch.load(guard.best_model_path, weights_only=True), saved)
    curve = [value.value for value in own.close().curve(guard.stop.statistic)]
    assert curve == pytest.approx(means, rel=0, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_chosen_epoch_is_that_of_raw_early_stopping(seed, tmp_path):
    found = both(NAMESPACES[seed % 2], seed, tmp_path)
    require_same(found)


def test_the_runs_are_stopped_early_and_differ(tmp_path):
    """The seeds above would prove nothing if every run went to its end, or to the same epoch."""
    ends = set()
    for seed in range(4):
        outcome = both(NAMESPACES[0], seed, tmp_path / str(seed)).guard.outcome
        ends.add((outcome.reason, outcome.passes))
    assert {reason for reason, _ in ends} == {"patience"}
    assert len(ends) >= 3


WAYS = {
    "max": {"name": ACCURACY},
    "every second epoch": {"check_val_every_n_epoch": 2},
    "twice an epoch": {"val_check_interval": 0.5},
    "every three batches": {"val_check_interval": 3, "check_val_every_n_epoch": None},
    "accumulated": {"accumulate_grad_batches": 2, "val_check_interval": 1},
    "bf16": {"precision": "bf16-mixed"},
    "to the end": {"patience": 20, "max_epochs": 6},
}


@pytest.mark.soak
@pytest.mark.parametrize("seed", soak(range(10), range(2)))
@pytest.mark.parametrize("way", list(WAYS))
def test_the_chosen_epoch_is_the_same_however_the_trainer_validates(way, seed, tmp_path):
    options = dict(WAYS[way])
    found = both(NAMESPACES[seed % 2], seed, tmp_path, **options)
    require_same(found)


@pytest.mark.soak
@pytest.mark.parametrize("seed", soak(range(20), range(3)))
def test_a_run_that_is_resumed_ends_where_raw_early_stopping_ends(seed, tmp_path):
    """Broken off after some pass, and resumed from the checkpoint of this or an earlier one."""
    require_same(both(NAMESPACES[seed % 2], seed, tmp_path, broken_off=True))


@pytest.mark.soak
@pytest.mark.parametrize("seed", soak(range(10), range(3)))
@pytest.mark.parametrize("min_delta", [0.01, 0.05])
def test_with_min_delta_the_weights_are_those_of_the_reference(min_delta, seed, tmp_path):
    found = both(NAMESPACES[seed % 2], seed, tmp_path, min_delta=min_delta, patience=3)
    assert found.sealed.current_epoch == found.raw.current_epoch
    assert found.guard.outcome.passes == len(found.means)
    assert same_weights(found.module.state_dict(), found.reference)


def test_with_min_delta_the_reference_need_not_be_the_best(tmp_path):
    """A value that is better by less than min_delta neither resets patience nor is chosen."""
    guard, _, module, _ = sealed_fit(
        tmp_path,
        [3.0, 2.0, 1.95, 1.96, 1.0],
        guard={"stop": th.Patience("val_loss", patience=2, min_delta=0.1)},
    )
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
    assert int(module.steps) == 2


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_first_passes_take_no_part_with_after(namespace, tmp_path):
    guard, _, module, _ = sealed_fit(
        tmp_path,
        [1.0, 3.0, 2.0, 2.5, 2.5, 0.5],
        namespace=namespace,
        guard={"stop": th.Patience("val_loss", patience=2, after=1)},
    )
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (3, 5)
    assert int(module.steps) == 3


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "best", "stopped"),
    [
        ([NAN, 3.0, NAN, NAN, 1.0], 2, 4),
        ([4.0, NAN, 3.0, float("inf"), float("-inf"), 1.0], 3, 5),
        ([NAN, NAN, NAN, 1.0], 1, 3),
        ([6.0, 5.0, 7.0, 1.0], 1, 3),  # beyond the bound they are equal
    ],
)
def test_values_that_are_not_finite_count_as_the_worse_bound(values, best, stopped, tmp_path):
    """EarlyStopping(check_finite=True) would stop at the first NaN; sealed patience goes on."""
    guard, _, module, own = sealed_fit(tmp_path, values)
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (best, stopped)
    assert int(module.steps) == best
    assert all(0.0 <= value.value <= 5.0 for value in own.close().values)


def test_frozen_weights_stop_a_run(tmp_path):
    """The same weights are no new evaluation, but a pass: patience counts passes."""
    own = small_account()
    guard = guard_class(NAMESPACES[0])(own, stop=th.Patience("val_loss", patience=3))
    module = scripted(NAMESPACES[0], [2.0])
    module.training_step = lambda batch, batch_idx: module.weight.sum() * 0.0
    run = trainer([guard], max_epochs=9, default_root_dir=tmp_path)
    run.fit(module, one_batch(), small_loader())
    assert guard.outcome.evaluations == 1
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (1, 4)
