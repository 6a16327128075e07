"""Nothing is read back from the device while queries are answered."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout._noise.streams import SystemNoise
from torch_holdout.prediction import PrivacyBudget, PrivatePredictor, plain_inputs
from torch_holdout.prediction.mechanisms import (
    ConfidentGNMax,
    GNMax,
    NeighbourVotes,
    NoisyMean,
    PermuteAndFlip,
    SoftMajority,
)
from torch_holdout.prediction.mechanisms.base import Setting

from support.builders.members import Members, queries
from support.builders.nearest import VOTES, make_predictor
from support.oracles.host_reads import HostReads

BUDGET = PrivacyBudget(epsilon=900.0, delta=1e-5)
MECHANISMS = [
    (SoftMajority(eta=0.1), 3),
    (PermuteAndFlip(epsilon=0.1), 3),
    (GNMax(sigma=10.0), 3),
    (ConfidentGNMax(threshold=10.0, sigma_check=10.0, sigma_answer=10.0), 3),
    (NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5), 1),
    (NoisyMean(low=0.0, high=1.0, noise="gaussian", sigma=0.5), 1),
    (NoisyMean(low=0.0, high=1.0, noise="gaussian", sigma=0.5, simplex=True), 3),
]
named = pytest.mark.parametrize(
    ("mechanism", "outputs"), MECHANISMS, ids=lambda value: type(value).__name__
)


@pytest.fixture(autouse=True)
def _counting_is_allowed(monkeypatch):
    """A predictor refuses modes, which would see votes; here one counts what it does."""
    modes = plain_inputs._modes

    def others():
        return (mode for mode in modes() if not isinstance(mode, HostReads))

    monkeypatch.setattr(plain_inputs, "_modes", others)


def make(mechanism, outputs, **options):
    ensemble = Members(num_outputs=outputs)
    return PrivatePredictor(
        ensemble, mechanism, budget=BUDGET, ledger="memory://", name="records", **options
    )


@named
def test_no_host_read_per_batch(mechanism, outputs):
    ask_without_host_reads(make(mechanism, outputs))


def test_no_host_read_per_batch_of_neighbours():
    ask_without_host_reads(make_predictor(VOTES))


def ask_without_host_reads(predictor):
    x = queries(10)
    predictor(x)
    with HostReads() as reads:
        for _ in range(3):
            predictor(x)
        assert reads.count == 0
    assert predictor.status().queries == 40


def test_tracking_a_private_loss_reads_nothing_either():
    predictor, x = make(SoftMajority(eta=0.1), 3, track_private_loss=True), queries(10)
    predictor(x)
    with HostReads() as reads:
        predictor(x)
        assert reads.count == 0


def test_twin_a_cache_does_read():
    predictor, x = make(SoftMajority(eta=0.1), 3, cache=10), queries(10)
    with HostReads() as reads:
        predictor(x)
        assert reads.count > 0


def test_answers_of_neighbours_stay_on_the_device():
    """Fake CUDA tensors, as below; the search is in ``nearest/test_search.py``."""
    mechanism = NeighbourVotes(rate=0.5, k=5, sigma=3.0, margin=2)
    with FakeTensorMode():
        table = torch.empty(7, mechanism.reach, dtype=torch.int32, device="cuda")
        setting = Setting(num_parts=1, num_outputs=4)
        answers = mechanism.answer(table, setting, FakeUniforms())
        assert (answers.device.type, answers.shape) == ("cuda", (7,))


@named
def test_answers_stay_on_the_device(mechanism, outputs):
    """Fake CUDA tensors: shapes and devices are real, values are not."""
    setting = Setting(num_parts=20, num_outputs=outputs)
    with FakeTensorMode():
        raw = torch.empty(20, 7, outputs, device="cuda")
        table = mechanism.table(raw)
        assert table.device.type == "cuda"
        answers = mechanism.answer(table, setting, FakeUniforms())
        assert answers.device.type == "cuda"
        assert answers.shape[0] == 7


class FakeUniforms:
    """The draws of ``Uniforms`` as fake tensors, which cannot be made from bytes."""

    def draw(self, shape, device="cpu"):
        return torch.empty(shape, dtype=torch.int64, device=device)

    def laplace(self, scale, shape, device="cpu"):
        return torch.empty(shape, dtype=torch.int64, device=device)

    def gaussian(self, scale, shape, device="cpu"):
        return torch.empty(shape, dtype=torch.int64, device=device)

    def normal(self, shape, device="cpu"):
        return torch.empty(shape, dtype=torch.float64, device=device)


def test_the_fake_draws_have_the_shapes_of_the_real_ones():
    real, fake = SystemNoise().uniforms(), FakeUniforms()
    for name, arguments in (
        ("draw", ()),
        ("laplace", (3.0,)),
        ("gaussian", (3.0,)),
        ("normal", ()),
    ):
        one, other = (getattr(u, name)(*arguments, (2, 3)) for u in (real, fake))
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
