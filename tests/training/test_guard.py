"""A guard's arguments, and what is said about them."""

import inspect

import pytest
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.lightning import HoldoutGuard

from support.builders.guarded import IN_A_TRAINER, NAMESPACES, guard_class, holdout

pytestmark = IN_A_TRAINER


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


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_docstring_names_every_argument(namespace):
    text = inspect.getdoc(guard_class(namespace))
    arguments, _, example = text.partition("\nArgs:\n")[2].partition("\nExample:\n")
    for name in inspect.signature(guard_class(namespace)).parameters:
        assert f"\n    {name}: " in f"\n{arguments}", name
    assert ">>> guard = HoldoutGuard(" in example


def test_editors_show_it_where_a_guard_is_made():
    """They read the docstring of the ``__init__`` that is called, also of an inherited one."""
    assert HoldoutGuard.__init__.__doc__ == HoldoutGuard.__doc__
