"""The session that the guards of one stage share: from setup to teardown, put back by all."""

import copy

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.lightning import HoldoutGuard

from support.builders.guarded import (
    IN_A_TRAINER,
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


def step(self, batch, batch_idx, dataloader_idx=0):
    loss = per_example(self, batch)["val_loss"]
    return {["first", "second"][dataloader_idx]: loss}


def pair(**changes):
    """Two guards of two loaders."""
    return [
        HoldoutGuard(
            holdout(name=name, statistics={name: th.BoundedMean(0.0, 5.0)}, **changes),
            dataloader_idx=index,
        )
        for index, name in enumerate(["first", "second"])
    ]


def is_plain(module):
    return not {"validation_step", "log"} & set(vars(module))


def test_two_guards_fit_twice_and_validate():
    guards, module = pair(), network(validation_step=step)
    run = trainer(guards, max_epochs=2)
    for _ in range(2):
        fit(run, module, val=[loader(), loader()])
        assert is_plain(module)
        run.fit_loop.max_epochs += 1
    quietly(run.validate, module, [loader(), loader()], verbose=False)
    assert is_plain(module)
    assert [guard.holdout.status().queries for guard in guards] == [3, 3]


def test_a_refusal_of_the_second_guard_puts_back_what_the_first_changed():
    guards, module = pair(), network(validation_step=step)
    guards[1].guess_dataloaders = 3  # refused in its setup, after the first guard's
    with pytest.raises(InvalidArgumentError, match="guess_dataloaders"):
        fit(trainer(guards), module, val=[loader(), loader()])
    assert is_plain(module)


def test_a_guard_copied_during_a_run_serves_another():
    copies = []

    class Copy(package("lightning.pytorch").Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            copies.append(copy.deepcopy(guard))

    account = holdout(statistics={"val_loss": th.BoundedMean(0.0, 5.0)})
    guard = HoldoutGuard(account)
    module = network(validation_step=only_loss)
    fit(trainer([guard, Copy()], max_epochs=1), module)
    other = network(validation_step=only_loss)
    fit(trainer([copies[0]], max_epochs=1), other)
    assert is_plain(module)
    assert is_plain(other)
    assert account.status().queries == 2


def test_a_guard_outside_of_a_trainer_says_so():
    run, guard = trainer([]), HoldoutGuard(holdout(), stage="test")
    with pytest.raises(InvalidArgumentError, match="set up by a Trainer"):
        guard.on_test_start(run, network())
