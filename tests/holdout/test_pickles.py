"""Pickles name public paths only, and those of version 0.1.0 go on working."""

import importlib
import inspect
import pickle
import pickletools
import shutil
import warnings
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch_holdout.holdout import Answer
from torch_holdout.statistics import Statistic

from support.builders.holdouts import ask, correct, make_holdout

ASSETS = Path(__file__).parent.parent / "assets"
ROOMS = [
    importlib.import_module(f"torch_holdout.{room}")
    for room in ("statistics", "mechanisms", "holdout", "training")
]
MECHANISMS = [
    th.Thresholdout(threshold=0.05, sigma=0.0, guess="last"),
    th.SparseVector(threshold=0.1, sigma=0.02),
    th.Ladder(step=0.01),
    th.LaplaceMechanism(epsilon=0.1),
    th.GaussianMechanism(sigma=0.1),
    th.EffectiveRounds(threshold=0.1, sigma=0.02, rounds=3),
]
STATISTICS = [
    th.ZeroOne(),
    th.CrossEntropy(5.0),
    th.BoundedMean(0.0, 2.0),
    th.BoundedMean(0.0, 2.0, mode="max", per_example=functional.l1_loss),
    th.Blockwise(functional.l1_loss, 5, 0.0, 1.0, mode="min"),
]


def asked_metric():
    metric = th.ReusableHoldoutMetric(make_holdout(), "val_acc", model=torch.nn.Linear(2, 2).eval())
    metric.update(correct(30))
    metric.compute()
    return metric


def globals_of(dumped):
    """Every module and name that a pickle imports, whichever way the protocol writes them."""
    found, texts, memo = [], [], {}
    for code, argument, _ in pickletools.genops(dumped):
        if code.name == "GLOBAL":
            found.append(tuple(argument.split(" ")))
        elif code.name == "STACK_GLOBAL":
            found.append(tuple(texts[-2:]))
        elif code.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else None
        elif code.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo.get(argument))
        elif "UNICODE" in code.name:
            texts.append(argument)
        else:
            texts.append(None)
    return {pair for pair in found if pair[0].split(".")[0] == "torch_holdout"}


def private_of(dumped):
    """Names in a pickle that are not public: of a file inside a room, or with an underscore."""
    rooms = {room.__name__ for room in ROOMS}
    return {
        (module, name)
        for module, name in globals_of(dumped)
        if module not in rooms or (name.startswith("_") and name != "_handle")
    }


@pytest.mark.parametrize("protocol", [2, 4, 5])
class TestNames:
    @pytest.mark.parametrize("value", [*MECHANISMS, *STATISTICS], ids=lambda v: type(v).__name__)
    def test_of_what_a_holdout_is_made_of(self, value, protocol):
        dumped = pickle.dumps(value, protocol)
        assert globals_of(dumped)
        assert private_of(dumped) == set()
        assert pickle.loads(dumped) == value

    def test_of_a_holdout(self, protocol):
        names = {f"s{number}": each for number, each in enumerate(STATISTICS)}
        holdout = make_holdout(statistics=names)
        dumped = pickle.dumps(holdout, protocol)
        assert ("torch_holdout.holdout", "_handle") in globals_of(dumped)
        assert private_of(dumped) == set()

    def test_of_an_answer_and_a_metric(self, protocol):
        metric = asked_metric()
        dumped = pickle.dumps((metric.answer, metric), protocol)
        expected = {
            ("torch_holdout.holdout", "Answer"),
            ("torch_holdout.training", "ReusableHoldoutMetric"),
        }
        assert expected <= globals_of(dumped)
        assert private_of(dumped) == set()
        assert pickle.loads(dumped)[1].answer == metric.answer

    def test_twin_that_names_a_file_is_caught(self, protocol, monkeypatch):
        monkeypatch.setattr(Answer, "__module__", "torch_holdout.holdout.results")
        dumped = pickle.dumps([th.Ladder(step=0.1), Answer(0.5, "release", 1)], protocol)
        assert private_of(dumped) == {("torch_holdout.holdout.results", "Answer")}


def test_no_example_is_lost():
    """doctest finds a class under its public path, but the methods' examples only in its file."""
    classes = [
        kind
        for room in ROOMS
        for kind in vars(room).values()
        if inspect.isclass(kind) and kind.__module__ == room.__name__
    ]
    assert th.BoundedMean in classes
    for kind in classes:
        for name, member in vars(kind).items():
            text = getattr(member, "__doc__", None)
            own = isinstance(text, str) and text != type(member).__doc__  # a default of 0 has int's
            assert name == "__doc__" or not own or ">>>" not in text


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("metrics.ReusableHoldoutMetric", th.ReusableHoldoutMetric),
        ("results.Answer", th.Answer),
        ("blockwise.Blockwise", th.Blockwise),
        ("statistics.BoundedMean", th.BoundedMean),
        ("mechanisms.sparse.SparseVector", th.SparseVector),
        ("mechanisms.thresholdout.Thresholdout", th.Thresholdout),
    ],
)
def test_old_names_load(path, new):
    module, name = f"torch_holdout.{path}".rsplit(".", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert pickle.loads(f"c{module}\n{name}\n.".encode()) is new


class TestVersion010:
    """Real pickles of version 0.1.0: of a holdout, what it was made of, and a metric."""

    @pytest.fixture(autouse=True)
    def ledger(self, tmp_path, monkeypatch):
        shutil.copy(ASSETS / "handles_v0_1_0.db", tmp_path / "holdout.db")
        (tmp_path / "holdout.db").chmod(0o600)
        monkeypatch.chdir(tmp_path)  # where the handles look for it

    def loaded(self, name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return pickle.loads((ASSETS / name).read_bytes())

    def test_a_holdout_goes_on(self):
        holdout = self.loaded("handles_v0_1_0.pickle")["holdout"]
        assert (holdout.status().releases, holdout.budget_left) == (1, 4)
        assert ask(holdout, 45, "new") == Answer(0.90625, "release", 3, "release")
        again = pickle.loads(pickle.dumps(holdout))
        assert ask(again, 45, "new") == Answer(0.90625, "repeat", 3, "release")

    def test_every_statistic_of_it_can_be_asked(self):
        holdout = self.loaded("handles_v0_1_0.pickle")["holdout"]
        logits, target = torch.zeros(50, 2), torch.zeros(50, dtype=torch.int64)
        for name, batch in {
            "val_loss": (logits, target),
            "val_mean": (torch.ones(50),),
            "val_blocks": (torch.ones(50), torch.full((50,), 0.5)),
        }.items():
            sums = holdout.accumulator(name)
            sums.update(*batch)
            assert holdout.release(name, sums, query="new").kind == "release"

    def test_what_it_was_made_of_is_the_same(self):
        found = self.loaded("handles_v0_1_0.pickle")
        assert found["mechanisms"] == MECHANISMS
        assert found["statistics"] == [s for s in STATISTICS if s != STATISTICS[3]]
        for old, new in zip(found["statistics"], STATISTICS[:3] + STATISTICS[4:], strict=True):
            assert isinstance(old, Statistic)
            assert (repr(old), old.identity(), old.source()) == (
                repr(new),
                new.identity(),
                new.source(),
            )
        assert found["answer"] == Answer(0.59375, "release", 4, "release")

    def test_a_metric_shows_its_answer_and_goes_on(self):
        metric = self.loaded("metric_v0_1_0.pickle")
        assert metric.answer == Answer(0.59375, "release", 4, "release")
        assert float(metric.compute()) == 0.59375
        metric.reset()
        metric.update(correct(45))
        assert float(metric.compute()) == 0.90625
        assert metric.holdout.budget_left == 3
