"""Errors of a guarded step leave without the guard's frames: some loggers print local variables.

Lightning's own frames hold the batch, and the step's own frame whatever the step has computed.
"""

import traceback
from pathlib import Path

import pytest
import torch
import torch_holdout
import torch_holdout._shared.tracebacks as tracebacks
import torch_holdout.training.guard as guard

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
PACKAGE = str(Path(torch_holdout.__file__).parent)


def tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple | dict):
            yield from tensors(value.values() if isinstance(value, dict) else value)


def frames_of(error):
    """Return all frames of an error and of what is chained to it."""
    chain, found = [error], []
    while chain:
        error = chain.pop()
        found += [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        chain += [each for each in (error.__cause__, error.__context__) if each is not None]
    return found


def kept_by_the_library(error):
    own = [f for f in frames_of(error) if f.f_code.co_filename.startswith(PACKAGE)]
    return [each for frame in own for each in tensors(frame.f_locals.values())]


def raised(namespace, step):
    with pytest.raises(Exception, match=r".") as caught:
        fit(
            trainer([guard_class(namespace)(holdout())], namespace),
            network(namespace, validation_step=step),
        )
    return caught.value


def matrix(self, batch, batch_idx):
    return {name: values[:, None].float() for name, values in per_example(self, batch).items()}


def filtered(self, batch, batch_idx):
    return {name: values[:3] for name, values in per_example(self, batch).items()}


def logged(self, batch, batch_idx):
    self.log("raw", per_example(self, batch)["val_loss"].mean())


def broken(self, batch, batch_idx):
    return per_example(self, batch)["nothing"]  # raises KeyError


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("step", [matrix, filtered, logged, broken])
def test_the_guards_frames_hold_nothing(namespace, step):
    error = raised(namespace, step)
    assert kept_by_the_library(error) == []
    steps = [frame.f_code.co_name for frame in frames_of(error)]
    assert (step.__name__ in steps) == (step in (logged, broken))  # the user's line is still named


def test_twin_that_keeps_its_frames_is_caught(monkeypatch):
    monkeypatch.setattr(tracebacks, "empty_frames", lambda error: None)
    monkeypatch.setattr(guard, "empty_frames", lambda error: None)
    assert len(kept_by_the_library(raised(NAMESPACES[0], matrix))) > 2
