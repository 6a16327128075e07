"""Nothing is read from the device while a pass runs, and once at its end."""

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout.training.evaluation import Evaluation

from support.builders.holdouts import make_holdout
from support.oracles.host_reads import HostReads


@pytest.mark.parametrize("batches", [1, 10, 500])
@pytest.mark.parametrize("inference", [True, False])
def test_one_host_read_per_evaluation(batches, inference):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    mechanism = th.Thresholdout(threshold=0.1, sigma=0.01, guess="train")
    holdout = make_holdout(size=500, mechanism=mechanism)
    holdout.status()
    metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=model)
    x, y = torch.randn(500, 4), torch.randint(3, (500,))
    with HostReads() as reads, torch.inference_mode(inference):
        for inputs, target in zip(x.chunk(batches), y.chunk(batches), strict=True):
            metric.update(model(inputs), target)
        metric.update_train(model(x), y)
        assert reads.count == 0
        metric.compute()
        assert reads.count == 1
        metric.compute()
        assert reads.count == 1


@pytest.mark.parametrize("batches", [1, 50])
def test_one_host_read_for_several_statistics_and_a_guess(batches):
    """What the Lightning guard does in an evaluation."""
    statistics = {"loss": th.CrossEntropy(5.0), "acc": th.ZeroOne(), "more": th.ZeroOne()}
    mechanism = th.Thresholdout(threshold=0.1, sigma=0.01, guess="train")
    holdout = make_holdout(size=500, mechanism=mechanism, statistics=statistics)
    holdout.status()
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    x, y = torch.randn(500, 4), torch.randint(3, (500,))
    with HostReads() as reads, torch.inference_mode():
        evaluation = Evaluation(holdout, model, version="", rank=0, world=1)
        evaluation.look_at_weights()
        evaluation.add_guess(dict.fromkeys(statistics, (model(x), y)))
        for inputs, target in zip(x.chunk(batches), y.chunk(batches), strict=True):
            evaluation.add(dict.fromkeys(statistics, (model(inputs), target)))
        evaluation.look_at_weights()
        assert reads.count == 0
        assert set(evaluation.ask()) == set(statistics)
        assert reads.count == 1


def test_the_counter_counts():
    with HostReads() as reads:
        torch.ones(2).sum().item()
        bool(torch.ones(1))
        torch.ones(2).tolist()
    assert reads.count >= 3


def test_the_counter_can_leave_out_the_hosts_own_tensors():
    weights, own = torch.ones(3), torch.ones(3)
    with HostReads([weights]) as reads:
        own.sum().item()
        (own + 1).tolist()
        assert reads.count == 0
        buffer = torch.zeros(2)
        buffer[:1] = (weights * 2).sum()
        assert reads.count == 0
        buffer.tolist()
        (own + weights).max().item()
        assert reads.count == 2
    own.tolist()
    assert reads.count == 2


@pytest.mark.parametrize(
    "statistic",
    [
        th.ZeroOne(),
        th.CrossEntropy(5.0),
        th.BoundedMean(0, 1, per_example=lambda p, t: p.select(1, 0)),
    ],
    ids=["ZeroOne", "CrossEntropy", "per_example"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_update_path_runs_on_fake_cuda(statistic, dtype):
    """Fake tensors have no data: whatever reads the device raises."""
    with FakeTensorMode():
        sums = statistic.accumulator(65536)
        for _ in range(10):
            logits = torch.empty(7, 3, device="cuda", dtype=dtype)
            sums.update(logits, torch.empty(7, device="cuda", dtype=torch.int64))
        assert sums._sealed.device.type == "cuda"
        assert sums._kept == 70


def fake_model():
    """A module with fake CUDA weights (a build without CUDA cannot initialise real ones)."""
    model = nn.Linear(1, 1)
    model.weight = nn.Parameter(torch.empty(3, 4, device="cuda"))
    model.bias = nn.Parameter(torch.empty(3, device="cuda"))
    model.register_buffer("counter", torch.empty((), device="cuda", dtype=torch.int64))
    return model


def test_fingerprint_runs_on_fake_cuda():
    with FakeTensorMode():
        model = fake_model()
        lanes = weights_fingerprint(model).lanes
        assert (lanes.device.type, lanes.dtype) == ("cuda", torch.int64)


def test_the_metric_itself_runs_on_fake_cuda():
    holdout = make_holdout(size=20)
    holdout.status()
    with FakeTensorMode():
        model = fake_model()
        metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=model)
        for _ in range(2):
            logits = torch.empty(10, 3, device="cuda")
            metric.update(logits, torch.empty(10, device="cuda", dtype=torch.int64))


def test_twin_that_reads_per_batch_is_caught():
    def reads(preds, target):
        return preds.select(1, 0) if preds.sum() > 0 else preds.select(1, 1)

    statistic = th.BoundedMean(0, 1, per_example=reads)
    with FakeTensorMode(), pytest.raises((DataDependentOutputException, th.HoldoutError)):
        statistic.accumulator(1).update(
            torch.empty(7, 3, device="cuda"), torch.empty(7, device="cuda")
        )
