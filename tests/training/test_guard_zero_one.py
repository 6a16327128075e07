"""A step whose accuracy was made floating is refused, and nothing is charged."""

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError

from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    fit,
    guard_class,
    holdout,
    network,
    per_example,
    trainer,
)

pytestmark = IN_A_TRAINER
STATISTICS = {"val_acc": th.ZeroOne()}


def right(module, batch, batch_idx):
    return {"val_acc": per_example(module, batch)["val_acc"]}


def right_as_floats(module, batch, batch_idx):
    return {"val_acc": per_example(module, batch)["val_acc"].float()}


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("sanity", [0, 2])
def test_floats_are_refused_with_the_line_to_write(namespace, sanity):
    account = holdout(statistics=STATISTICS)
    run = trainer(
        [guard_class(namespace)(account)], namespace, num_sanity_val_steps=sanity, max_epochs=1
    )
    with pytest.raises(InvalidArgumentError, match=r"Drop \.float\(\)"):
        fit(run, network(namespace, validation_step=right_as_floats))
    assert account.status().queries == 0
    assert run.callback_metrics == {}


def test_the_comparison_itself_is_taken():
    account = holdout(statistics=STATISTICS)
    guard = guard_class(NAMESPACES[0])(account)
    fit(trainer([guard], max_epochs=1), network(validation_step=right))
    assert account.status().queries == 1
    assert guard.answers["val_acc"].kind == "release"
