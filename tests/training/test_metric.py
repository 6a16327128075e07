"""ReusableHoldoutMetric under everything torchmetrics does to a metric."""

import copy
import io
import os
import pickle
import traceback

import pytest
import torch
import torch_holdout as th
import torch_holdout.training.metric as metric_module
from torch import nn
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutWarning,
    InvalidArgumentError,
    WeightsChangedError,
)
from torchmetrics import MetricCollection

from support.builders.holdouts import correct, make_holdout
from support.builders.metrics import EXACT, RAW, SIZE, make_metric, run_pass
from support.oracles.leaks import raw_hits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.metric = make_metric(self)


class Functional(nn.Module):
    """Uses chance in a way no class tells."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)


class TestPlainLoop:
    def test_one_row_per_pass(self):
        metric = make_metric()
        for index in range(3):
            metric.reset()
            value = run_pass(metric)
            assert value.dtype == torch.float64
            assert value.ndim == 0
            assert metric.holdout.status().queries == index + 1

    def test_compute_again_costs_nothing(self):
        metric = make_metric()
        first = run_pass(metric)
        metric._computed = None  # as wrappers do
        assert metric.compute() == first
        assert metric.holdout.status().queries == 1

    def test_the_same_weights_are_free(self):
        model = nn.Linear(2, 2)
        metric = make_metric(model)
        first = run_pass(metric)
        for _ in range(3):
            metric.reset()
            assert run_pass(metric) == first
            assert metric.answer.kind == "repeat"
        with torch.no_grad():
            model.weight[0, 0] += 1e-6
        metric.reset()
        run_pass(metric)
        assert metric.holdout.status().queries == 2

    def test_forked_processes_ask_for_themselves(self, tmp_path):
        holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", size=SIZE, mechanism=EXACT)
        metric = make_metric(holdout=holdout)
        values = []
        for count in (20, 90):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(write, str(float(run_pass(metric, count))).encode())
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            values.append(float(os.read(read, 100)))
        assert values == pytest.approx([20 / SIZE, 90 / SIZE], abs=1 / 64)

    def test_version_is_part_of_the_query(self):
        model, holdout = nn.Linear(2, 2), make_holdout(size=SIZE, budget=20)
        for version in ("a", "b", "a"):
            run_pass(make_metric(model, holdout=holdout, version=version))
        assert holdout.status().queries == 2

    def test_train_guess(self):
        mechanism = th.Thresholdout(threshold=0.1, sigma=0.0, guess="train")
        metric = make_metric(holdout=make_holdout(size=SIZE, mechanism=mechanism))
        metric.update_train(correct(75, 100))
        assert run_pass(metric) == pytest.approx(0.75, abs=1e-9)
        assert metric.answer.kind == "guess"
        metric.reset()
        with pytest.raises(InvalidArgumentError, match="update_train"):
            run_pass(metric)
        assert metric.holdout.status().queries == 1

    def test_a_partial_pass_comes_before_a_missing_guess(self):
        """Lightning's sanity check runs before any training value exists."""
        mechanism = th.Thresholdout(threshold=0.1, sigma=0.0, guess="train")
        metric = make_metric(holdout=make_holdout(size=SIZE, mechanism=mechanism))
        metric.update(correct(5, 10))
        with pytest.warns(HoldoutWarning, match="all 97 examples"):
            assert metric.compute().isnan()

    def test_plot_shows_the_release(self):
        import matplotlib

        matplotlib.use("Agg")
        metric = make_metric()
        run_pass(metric)
        metric.plot()
        assert metric.holdout.status().queries == 1

    def test_forward_returns_none(self):
        metric = make_metric()
        assert metric(correct(71, SIZE)) is None
        metric.compute()
        assert metric.holdout.status().queries == 1

    def test_arguments_of_the_statistics_own_function(self):
        def absolute(prediction, target):
            return (prediction - target).abs()

        statistic = th.BoundedMean(0.0, 4.0, per_example=absolute)
        holdout = make_holdout(statistics={"mae": statistic}, mechanism=EXACT, size=4, grid=16)
        metric = th.ReusableHoldoutMetric(holdout, "mae")
        metric.update(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 1.0, 1.0, 1.0]))
        assert metric.compute() == 1.5


class TestPartialPasses:
    def test_each_is_said_at_once_and_never_charged(self):
        metric = make_metric()
        for wrong in (10, 96, 98):
            metric.reset()
            metric.update(correct(5, wrong))
            with pytest.warns(HoldoutWarning, match=r"all 97 examples.* reset\(\).* Computed NaN"):
                assert metric.compute().isnan()
            assert metric.answer is None
            assert "all 97 examples" in metric.problem
        assert metric.holdout.status().queries == 0
        metric.reset()
        assert not run_pass(metric).isnan()
        assert metric.problem is None

    def test_a_second_pass_without_reset_is_not_the_holdout(self):
        metric = make_metric()
        run_pass(metric)
        with pytest.warns(HoldoutWarning, match=r"reset\(\)"):
            assert run_pass(metric).isnan()
        assert metric.holdout.status().queries == 1
        assert metric.answer is None  # that of the pass before is not this pass's

    def test_compute_without_update(self):
        metric = make_metric()
        with pytest.warns(UserWarning, match="before the"), pytest.warns(HoldoutWarning):
            assert metric.compute().isnan()


class TestExhaustion:
    def exhausted(self, **options):
        metric = make_metric(holdout=make_holdout(size=SIZE, budget=1, mechanism=EXACT), **options)
        run_pass(metric)
        metric.reset()
        return metric

    def test_raises_by_default(self):
        with pytest.raises(BudgetExhaustedError, match="fresh holdout"):
            run_pass(self.exhausted())

    def test_freeze_repeats_the_last_answer_marked_stale(self):
        metric = self.exhausted(on_exhausted="freeze")
        with pytest.warns(HoldoutWarning, match="stale"):
            value = run_pass(metric, count=10)
        assert value == 47 / 64
        assert (metric.answer.kind, metric.answer.is_release) == ("exhausted", False)

    def test_freeze_without_an_answer_is_nan(self):
        first = self.exhausted()
        metric = make_metric(holdout=first.holdout, on_exhausted="freeze")
        with pytest.warns(HoldoutWarning, match="stale"):
            assert run_pass(metric).isnan()


class TestCopies:
    @pytest.mark.parametrize(
        "duplicate",
        [
            lambda m: m.clone(),
            copy.deepcopy,
            lambda m: pickle.loads(pickle.dumps(m)),
            lambda m: MetricCollection({"a": m}).clone()["a"],
        ],
        ids=["clone", "deepcopy", "pickle", "collection"],
    )
    def test_share_the_budget_and_drop_the_sums(self, duplicate):
        metric = make_metric()
        metric.update(correct(40, 60))
        twin = duplicate(metric)
        assert raw_hits(twin.__dict__, [40 / 60]) == []
        with pytest.warns(HoldoutWarning, match="copied or unpickled in the middle of a pass"):
            assert twin.compute().isnan()  # the half pass was not copied
        again = duplicate(twin)
        again.update(correct(31, 37))
        with pytest.warns(HoldoutWarning, match="in the middle of a pass"):
            again.compute()
        twin.reset()
        run_pass(twin)
        assert twin.holdout.status().queries == 1
        assert metric.holdout.status().queries == 1
        assert metric._sums._kept == 60  # the original goes on where it was

    def test_a_deepcopied_model_is_asked_about_itself(self):
        net = Net().eval()
        twin = copy.deepcopy(net)
        assert twin.metric._model.target is twin
        assert net.metric.clone()._model.target is net
        assert pickle.loads(pickle.dumps(net)).metric._model.target is not net
        assert "metric" not in "".join(net.state_dict())
        run_pass(net.metric), run_pass(twin.metric)
        assert net.metric.holdout.status().queries == 1

    def test_a_model_copied_after_its_metric_is_followed_too(self):
        layer = nn.Linear(2, 2)
        both = nn.ModuleList([make_metric(layer), layer])
        twin = copy.deepcopy(both)
        assert twin[0]._model.target is twin[1]

    def test_state_dict_is_empty_whatever_is_asked(self):
        metric = make_metric()
        metric.persistent(True)
        run_pass(metric)
        assert metric.state_dict() == {}
        assert metric.metric_state == {}
        buffer = io.BytesIO()
        torch.save(metric, buffer)
        assert raw_hits(buffer.getvalue(), [RAW]) == []

    def test_precision_and_device_moves_change_nothing(self):
        reference = run_pass(make_metric(holdout=make_holdout(size=SIZE, mechanism=EXACT)))
        for change in (
            lambda m: m.to(torch.float16),
            lambda m: m.half(),
            lambda m: m.set_dtype(torch.bfloat16),
            lambda m: m.to("cpu"),
            lambda m: m.double(),
        ):
            metric = make_metric(holdout=make_holdout(size=SIZE, mechanism=EXACT))
            metric = change(metric)
            value = run_pass(metric)
            assert value == reference
            assert value.dtype == torch.float64


class TestModel:
    @pytest.mark.parametrize(
        "layer",
        [
            nn.BatchNorm1d(3),
            nn.Dropout(0.1),
            nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)),
            nn.LSTM(3, 3, 2, dropout=0.1),
            nn.RReLU(),
            nn.InstanceNorm1d(3, track_running_stats=True),
            nn.MultiheadAttention(4, 2, dropout=0.1),
            Functional(),
            nn.Sequential(Functional()),
            nn.TransformerEncoderLayer(4, 2, 8),
        ],
        ids=lambda layer: type(layer).__name__,
    )
    def test_training_mode_is_refused_where_it_matters(self, layer):
        metric = make_metric(layer.train())
        with pytest.raises(WeightsChangedError, match=r"eval\(\)"):
            metric.update(correct(71, SIZE))
        layer.eval()
        metric.reset()
        run_pass(metric)
        assert metric.holdout.status().queries == 1

    def test_batchnorm_without_running_statistics_is_refused_even_in_eval(self):
        metric = make_metric(nn.BatchNorm1d(3, track_running_stats=False).eval())
        with pytest.raises(WeightsChangedError, match="running statistics"):
            metric.update(correct(71, SIZE))

    def test_training_mode_does_not_matter_otherwise(self):
        run_pass(make_metric(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)).train()))

    def test_training_mode_in_the_middle_of_a_pass_is_noticed(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
        metric = make_metric(model)
        metric.update(correct(40, 60))
        model.train()
        metric.update(correct(31, 37))
        with pytest.raises(WeightsChangedError, match=r"eval\(\)"):
            metric.compute()
        assert metric.holdout.status().queries == 0

    def test_weights_that_change_during_the_pass_release_nothing(self):
        model = nn.Linear(2, 2)
        metric = make_metric(model)
        metric.update(correct(40, 60))
        with torch.no_grad():
            model.weight += 1
        metric.update(correct(31, 37))
        with pytest.raises(WeightsChangedError):
            metric.compute()
        assert metric.holdout.status().queries == 0

    def test_buffers_count(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
        metric = make_metric(model)
        run_pass(metric)
        model[1].running_var += 1
        metric.reset()
        run_pass(metric)
        assert metric.holdout.status().queries == 2


class TestFrames:
    """Some loggers print local variables; the user's own frame has its own tensors anyway."""

    def below(self, error):
        """Return the tensors in the frames below this file's, of the error and what is chained."""
        found, chain = [], [error]
        while chain:
            error = chain.pop()
            frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
            while frames and frames[0].f_code.co_filename != __file__:
                frames.pop(0)
            for frame in frames:
                if frame.f_code.co_filename != __file__:
                    found += self.tensors(frame.f_locals.values())
            chain += [each for each in (error.__cause__, error.__context__) if each is not None]
        return found

    def tensors(self, values):
        for value in values:
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, list | tuple | dict):
                yield from self.tensors(value.values() if isinstance(value, dict) else value)

    @pytest.mark.parametrize("way", ["update", "__call__", "forward"])
    @pytest.mark.parametrize(
        "arguments",
        [(torch.tensor(0.731),), (torch.rand(3, 4),), (torch.rand(5), torch.rand(4)), (1, 2, 3)],
        ids=["mean", "matrix", "lengths", "numbers"],
    )
    def test_errors_leave_without_the_batch(self, way, arguments):
        metric = make_metric()
        with pytest.raises(InvalidArgumentError, match="Expected") as caught:
            getattr(metric, way)(*arguments)
        assert list(self.below(caught.value)) == []

    @pytest.mark.parametrize(
        "copied", [lambda m: m.clone(), lambda m: pickle.loads(pickle.dumps(m))]
    )
    def test_copies_too(self, copied):
        with pytest.raises(InvalidArgumentError) as caught:
            copied(make_metric()).update(torch.rand(3, 4))
        assert list(self.below(caught.value)) == []

    def test_an_error_of_the_users_function_too(self):
        def broken(values):
            return values.nothing

        statistic = th.BoundedMean(0.0, 1.0, per_example=broken)
        holdout = make_holdout(statistics={"x": statistic}, size=4)
        with pytest.raises(InvalidArgumentError, match="AttributeError") as caught:
            th.ReusableHoldoutMetric(holdout, "x").update(torch.rand(4))
        assert list(self.below(caught.value)) == []

    def test_twin_that_keeps_its_frames_is_caught(self, monkeypatch):
        monkeypatch.setattr(metric_module, "without_frames", lambda action: action)
        with pytest.raises(InvalidArgumentError) as caught:
            make_metric().update(torch.rand(3, 4))
        assert len(self.below(caught.value)) > 2


@pytest.mark.parametrize(
    "change",
    [{"holdout": 5}, {"name": "nope"}, {"model": "net"}, {"version": 3}, {"on_exhausted": "stop"}],
    ids=str,
)
def test_bad_arguments(change):
    arguments = {"holdout": make_holdout(), "name": "val_acc", **change}
    with pytest.raises(InvalidArgumentError, match="Expected"):
        th.ReusableHoldoutMetric(**arguments)


def test_nothing_raw_is_reachable_from_a_metric_in_use():
    metric = make_metric(holdout=make_holdout(size=SIZE, budget=20))
    for values in correct(71, SIZE).split(10):
        metric.update(values)
    for shown in (repr(metric), str(metric), str(vars(metric)), str(metric.metric_state)):
        assert raw_hits(shown, [RAW, 71 * 65536.0]) == []
    metric.compute()
    assert raw_hits(metric.__dict__, [RAW, 71 * 65536.0]) == []
    assert metric.higher_is_better
