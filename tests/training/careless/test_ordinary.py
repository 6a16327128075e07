"""Ordinary modules pass untouched: the same bits as a run without marked tensors."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch_holdout.errors import HoldoutWarning

from support.builders.guarded import guard_class, package
from training.careless.cases import case_of, holdout, loaders, vectors
from training.careless.ordinary import CASES
from training.careless.runs import FEW, entries

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("quiet_lightning"),
    pytest.mark.filterwarnings("ignore"),
]


def outcome(build, namespace, folder, *, sanity, looks):
    """Run a case; return its weights, metrics, answers and the generator's state, as bits."""
    pl = package(namespace)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    case = case_of(build, pl)
    account = holdout()
    guard = guard_class(namespace)(account, **case.guard)
    guard._looks = looks
    train, val = loaders(vectors)
    options = {"logger": False, "max_epochs": 2, **FEW, **case.trainer}
    trainer = pl.Trainer(
        callbacks=[*case.callbacks, guard], default_root_dir=folder,
        enable_checkpointing=any("Checkpoint" in type(c).__name__ for c in case.callbacks),
        num_sanity_val_steps=sanity, log_every_n_steps=1, **options,
    )  # fmt: skip
    train, val = case.train or train, case.val or val
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (case.run or fit)(trainer, case.module, train, val)
    said = [str(w.message) for w in caught if issubclass(w.category, HoldoutWarning)]
    assert len(said) == bool(case.unseen and looks), said
    assert not said or "could not be checked" in said[0]
    assert account.status().queries
    return {
        "weights": {name: bits(value) for name, value in case.module.state_dict().items()},
        "metrics": {name: bits(value) for name, value in trainer.callback_metrics.items()},
        "answers": {name: answer.value for name, answer in guard.answers.items()},
        "queries": account.status().queries,
        "generators": (bits(torch.get_rng_state()), random.getstate(), numpy_state()),
    }


def fit(trainer, module, train, val):
    trainer.fit(module, train, val)


def numpy_state():
    name, keys, *rest = np.random.get_state()
    return name, keys.tolist(), rest


def bits(tensor):
    return str(tensor.dtype), tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("build", "namespace", "sanity"), entries(CASES, lambda build: build.__name__)
)
def test_it_passes_with_the_same_bits(build, namespace, sanity, tmp_path):
    found, plain = (
        outcome(build, namespace, tmp_path / str(looks), sanity=sanity, looks=looks)
        for looks in (True, False)
    )
    assert found == plain
    assert "val_loss" in found["metrics"]


def test_the_catalogue_is_large_and_its_names_are_different():
    assert len(CASES) >= 30
    assert len({case.__name__ for case in CASES}) == len(CASES)
