"""ReusableHoldoutMetric inside torchmetrics' collections and wrappers."""

import pytest
import torch
import torch_holdout as th
import torch_holdout.training.metric as metric_module
from torch import nn
from torch_holdout.errors import HoldoutError, HoldoutWarning
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import BootStrapper, MetricTracker, MinMaxMetric

from support.builders.holdouts import correct, make_holdout
from support.builders.metrics import EXACT, RAW, SIZE, make_metric, run_pass


class TestWrappers:
    def test_collection_beside_ordinary_metrics(self):
        holdout = make_holdout(
            size=SIZE,
            budget=20,
            mechanism=EXACT,
            statistics={"val_acc": th.ZeroOne(), "val_loss": th.CrossEntropy(5.0)},
        )
        collection = MetricCollection(
            {
                "plain": MulticlassAccuracy(num_classes=3, average="micro"),
                "val_acc": th.ReusableHoldoutMetric(holdout, "val_acc"),
                "val_loss": th.ReusableHoldoutMetric(holdout, "val_loss"),
            }
        )
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(SIZE, 3, generator=generator)
        target = torch.randint(3, (SIZE,), generator=generator)
        for x, y in zip(logits.split(20), target.split(20), strict=True):
            collection.update(x, y)
        found = collection.compute()
        assert found["val_acc"] == pytest.approx(float(found["plain"]), abs=1 / 128)
        loss = nn.functional.cross_entropy(logits, target)
        assert found["val_loss"] == pytest.approx(float(loss), abs=5 / 128)
        assert holdout.status().queries == 2
        assert all(len(group) == 1 for group in collection.compute_groups.values())
        collection.reset()
        assert set(collection(logits, target)) == {"plain", "val_acc", "val_loss"}

    def test_tracker(self):
        tracker = MetricTracker(make_metric(), maximize=None)
        for count in (10, 71, 40):
            tracker.increment()
            run_pass(tracker, count)
        assert tracker.n_steps == 3
        best, step = tracker.best_metric(return_step=True)
        assert step == 1
        assert best == pytest.approx(RAW, abs=0.2)
        assert tracker._base_metric.holdout.status().queries == 3

    def test_min_max(self):
        wrapped = MinMaxMetric(make_metric())
        for values in correct(71, SIZE).split(50):
            wrapped.update(values)
        found = wrapped.compute()
        wrapped.compute()
        assert found["max"] == found["raw"]
        assert wrapped._base_metric.holdout.status().queries == 1

    @pytest.mark.parametrize("strategy", ["multinomial", "poisson"])
    def test_bootstrap_samples_are_not_the_holdout(self, strategy):
        """A multinomial sample has the right size, but may hold one example many times."""
        metric = make_metric()
        boot = BootStrapper(metric, num_bootstraps=3, sampling_strategy=strategy)
        boot.update(correct(71, SIZE))
        with pytest.warns(HoldoutWarning, match="bootstrap"):
            found = boot.compute()
        assert found["mean"].isnan()
        assert metric.holdout.status().queries == 0

    def test_a_bootstrap_is_looked_for_once_a_pass(self, monkeypatch):
        looks = []
        monkeypatch.setattr(metric_module, "_inside_bootstrap", lambda: looks.append(1))
        metric = make_metric()
        for _ in range(2):
            run_pass(metric)
            metric.reset()
        assert len(looks) == 2

    def test_every_pass_of_a_bootstrap_is_recognised(self):
        """Also after a reset, in several batches, and when plain passes went before."""
        metric = make_metric()
        run_pass(metric)
        boot = BootStrapper(metric, num_bootstraps=3, sampling_strategy="multinomial")
        for _ in range(2):
            for values in correct(71, SIZE).split(50):
                boot.update(values)
            with pytest.warns(HoldoutWarning, match="bootstrap"):
                assert boot.compute()["mean"].isnan()
            boot.reset()
        assert metric.holdout.status().queries == 1

    def test_merge_state_is_refused(self):
        metric, other = make_metric(), make_metric()
        other.update(correct(5, 10))
        for incoming in (other, {}):
            with pytest.raises(HoldoutError, match="merged"):
                metric.merge_state(incoming)
