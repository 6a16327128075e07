"""A look leaves modules, callbacks and batches as they were, and sees what came after setup."""

import collections
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError, UnguardedLogError
from torch_holdout.training.first_look.looking import Before, look_at
from torch_holdout.training.first_look.pooled import require_unpooled

from support.builders.guarded import (
    EXACT,
    IN_A_TRAINER,
    LOSS,
    TRAIN,
    data,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    package,
    trainer,
)

NAMESPACE = "lightning.pytorch"


class Ruled(collections.OrderedDict):
    def update(self, *_):
        raise TypeError("Not this way.")


class Frozen(dict):
    def clear(self):
        raise TypeError("Frozen.")

    __copy__ = update = clear


class Holder:
    pass


def test_containers_with_rules_and_generators_are_put_back():
    owner = Holder()
    owner.ruled, owner.frozen = Ruled(a=1, b=2), Frozen(a=1)
    owner.nested, owner.recent = {"val": {"n": 2}}, collections.deque([1], maxlen=3)
    owner.numbers, owner.python = np.random.default_rng(0), random.Random(0)
    owner.torch = [torch.Generator().manual_seed(0)]
    before = Before([owner])
    first = owner.numbers.random(), owner.python.random()
    drawn = torch.rand(1, generator=owner.torch[0])
    owner.nested["val"]["n"] += 1
    owner.recent.append(2)
    collections.OrderedDict.__delitem__(owner.ruled, "a")
    owner.new = 1
    before.put_back()
    assert list(owner.ruled.items()) == [("a", 1), ("b", 2)]
    assert (dict(owner.frozen), owner.nested, list(owner.recent)) == (
        {"a": 1},
        {"val": {"n": 2}},
        [1],
    )
    assert not hasattr(owner, "new")
    assert (owner.numbers.random(), owner.python.random()) == first
    assert torch.equal(torch.rand(1, generator=owner.torch[0]), drawn)


def test_an_interrupt_leaves_nothing_in_the_weights():
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()

    def step(x):
        with torch.no_grad():
            layer.weight.add_(x.sum())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look_at(step, torch.ones(2), [layer], repeat=True, judge=print, excuse=print)
    assert type(layer.weight) is nn.Parameter
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("spread", [lambda m, n: m.repeat(n), lambda m, n: torch.ones(n) * m])
def test_a_mean_spread_over_its_batch_is_refused(spread):
    def step(x):
        return {"val_loss": spread(x.mean(), len(x))}

    batch = torch.arange(6.0)
    with pytest.raises(InvalidArgumentError, match="one number for the whole batch"):
        require_unpooled(step, batch, step(batch), [])


def test_equal_values_of_single_examples_pass():
    def step(x):
        return {"val_acc": torch.ones(len(x))}

    require_unpooled(step, torch.arange(6.0), step(torch.arange(6.0)), [])


class TestInATrainer:
    pytestmark = IN_A_TRAINER

    def test_a_batch_changed_in_a_hook_is_what_the_step_sees(self):
        def values(self, batch, batch_idx):
            return {"val_loss": batch[0][:, 0].abs()}

        def doubled(self, batch, batch_idx, dataloader_idx=0):
            batch[0].mul_(2)

        answers = []
        for looks in (True, False):
            guard = guard_class(NAMESPACE)(
                holdout(mechanism=EXACT, statistics=LOSS, grid=2**20), check_data=False
            )
            guard._looks = looks
            module = network(validation_step=values, on_validation_batch_start=doubled)
            fit(trainer([guard], max_epochs=1, num_sanity_val_steps=0), module)
            answers.append(guard.answers["val_loss"].value)
        assert answers[0] == answers[1]

    def test_hooks_without_an_owner(self):
        lambdas = package(NAMESPACE).callbacks.LambdaCallback(
            on_validation_batch_end=lambda *arguments: None
        )
        account = holdout()
        fit(trainer([guard_class(NAMESPACE)(account), lambdas], max_epochs=1), network())
        assert account.status().queries == 2

    def test_a_callback_that_comes_after_setup_is_looked_at(self):
        class Late(package(NAMESPACE).Callback):
            def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
                self.seen = batch[0].mean().item()

        def setup(self, stage):
            self.trainer.callbacks.append(Late())

        with pytest.raises(UnguardedLogError, match=r"Late.on_validation_batch_end"):
            fit(trainer([guard_class(NAMESPACE)(holdout())]), network(setup=setup))

    def test_the_holdout_as_its_guess_is_refused_in_a_dictionary_of_loaders_too(self):
        own = data()
        guard = guard_class(NAMESPACE)(holdout(mechanism=TRAIN), guess_dataloaders=loader(own))
        run = trainer([guard], max_epochs=1)
        with pytest.raises((InvalidArgumentError, HoldoutMismatchError), match="guess"):
            run.fit(network(), loader(data(seed=1)), {"v": loader(own)})


def test_what_cannot_be_marked_is_said_and_what_is_kept_of_it_found():
    said, found, kept = [], [], []

    def judge(findings, error):
        found.extend(findings)

    def step(x):
        kept.append(x.to_sparse())
        return x * 2

    look_at(step, torch.ones(3), [], repeat=False, judge=judge, excuse=said.append)
    assert said == ["a tensor (sparse_coo) cannot be followed"]
    assert ["keeps a value" in finding.what for finding in found] == [True]
    assert not kept[0].to_dense().any()  # emptied


class TestRuns:
    pytestmark = IN_A_TRAINER

    def test_a_module_is_looked_at_once_for_all_its_validations(self):
        calls = []

        def values(self, batch, batch_idx):
            calls.append(batch_idx)
            return {"val_loss": batch[0][:, 0].abs()}

        module = network(validation_step=values)
        run = trainer([guard_class(NAMESPACE)(holdout(statistics=LOSS))])
        counts = []
        for other in (module, module, network(validation_step=values)):
            calls.clear()
            run.validate(other, loader(), verbose=False)
            counts.append(len(calls))
        assert counts == [6, 5, 6]  # five batches, and a look at another module
