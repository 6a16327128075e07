"""Ratios in a training loop: the guard, the metric, early stopping and sealed runs."""

import math

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch_holdout.errors import InvalidArgumentError

from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    SIZE,
    data,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    package,
    trainer,
)

pytestmark = IN_A_TRAINER
LOSS = th.Ratio(th.BoundedMean(0.0, 40.0), th.BoundedMean(1, 4), 0.0, 10.0)


def account(url="memory://", **changes):
    ladder = {"mechanism": th.Ladder(step=0.002), "statistics": {"val_loss": LOSS}, "grid": 2048}
    return holdout(url, **ladder | changes)


def lengths(x):
    """Every example has 1 to 4 tokens, which its input decides."""
    return 1 + (x[:, 2] > 0).long() + 2 * (x[:, 3] > 0).long()


def pairs(module, batch, batch_idx=0):
    tokens = lengths(batch[0])
    loss = functional.cross_entropy(module(batch[0]), batch[1], reduction="none")
    return {"val_loss": (tokens * loss, tokens)}


def per_token(module, dataset):
    """The quotient by hand, in eval mode."""
    module.eval()
    with torch.no_grad():
        losses, tokens = pairs(module, dataset.tensors)["val_loss"]
    return float(losses.double().sum() / tokens.sum())


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_early_stopping_works_on_the_published_quotient(namespace):
    own = account()
    stopping = package(namespace).callbacks.EarlyStopping("val_loss", patience=9)
    guard = guard_class(namespace)(own)
    module = network(namespace, validation_step=pairs)
    run = fit(trainer([guard, stopping], namespace), module)
    published = float(run.callback_metrics["val_loss"])
    assert own.status().queries == 3
    assert float(stopping.best_score) == pytest.approx(published)
    exact = own.close().curve("val_loss")[-1].value
    assert exact == pytest.approx(per_token(module, data()), abs=1e-3)
    assert abs(published - exact) <= 10 / 2048 + 0.02  # grid and step


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_sealed_run_is_stopped_by_the_quotient(namespace):
    """Losses per token are scripted: the sum of losses falls, as later passes have fewer tokens."""
    own = account(mechanism=th.Sealed(evaluations=20), budget=1, grid=None)
    levels = [3.0, 2.0, 2.5, 2.6, 9.0]

    def scripted(module, batch, batch_idx):
        tokens = batch[0][:, 0] * 0 + max(1, 4 - module.current_epoch)
        return {"val_loss": (levels[module.current_epoch] * tokens, tokens)}

    guard = guard_class(namespace)(own, stop=th.Patience("val_loss", patience=2))
    fit(
        trainer([guard], namespace, max_epochs=9, num_sanity_val_steps=0),
        network(namespace, validation_step=scripted),
    )
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
    found = [value.value for value in own.close().curve("val_loss")]
    assert found == pytest.approx(levels[:4], abs=2e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda pair: pair[0],
        lambda pair: list(pair),
        lambda pair: (pair[0] / pair[1],),
        lambda pair: (pair[0], pair[1][1:]),
        lambda pair: (pair[0].sum(), pair[1].sum()),
    ],
)
def test_what_is_no_pair_is_refused_before_a_charge(wrong):
    def step(module, batch, batch_idx):
        return {"val_loss": wrong(pairs(module, batch)["val_loss"])}

    own = account()
    with pytest.raises(InvalidArgumentError, match=r"one value|one of each"):
        fit(trainer([guard_class(NAMESPACES[0])(own)]), network(validation_step=step))
    assert own.status().queries == 0


def test_the_metric_takes_both():
    own, module = account(), network()
    metric = th.ReusableHoldoutMetric(own, "val_loss", model=module)
    module.eval()
    with torch.no_grad():
        for batch in loader():
            metric.update(*pairs(module, batch)["val_loss"])
    assert float(metric.compute()) == pytest.approx(per_token(module, data()), abs=10 / 2048)
    assert own.status().size == SIZE


def test_a_sealed_metric_shows_nothing():
    own = account(mechanism=th.Sealed(evaluations=5), budget=1, grid=None)
    run = own.run(stop=th.Patience("val_loss", patience=1))
    metric, module = th.ReusableHoldoutMetric(own, "val_loss", run=run), network().eval()
    for _ in range(2):
        with torch.no_grad():
            metric.update(*pairs(module, data().tensors)["val_loss"])
        assert math.isnan(float(metric.compute()))
        metric.reset()
    assert metric.stop
