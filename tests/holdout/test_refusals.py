"""What the door does not take."""

import pickle
import re

import pytest
import torch
import torch_holdout as th
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout.errors import (
    HoldoutError,
    InvalidArgumentError,
    LedgerError,
    PartialPassError,
    WeightsChangedError,
)

from support.builders.holdouts import ask, correct, make_holdout, sums_of

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")
TRAIN = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


class TestRefusals:
    """Nothing is charged for a mistake, and nothing raw is told."""

    @pytest.mark.parametrize(
        "change",
        [
            {"budget": 0},
            {"budget": -1},
            {"budget": 2.5},
            {"budget": True},
            {"budget": "5"},
            {"size": 0},
            {"size": -3},
            {"size": 1.5},
            {"size": None},
            {"delta": 0.0},
            {"delta": 1.0},
            {"delta": -1e-6},
            {"delta": float("nan")},
            {"grid": 0},
            {"grid": 2.0},
            {"resolution": 0},
            {"resolution": 2**25},
            {"name": ""},
            {"name": " "},
            {"name": None},
            {"name": "x" * 300},
            {"statistics": {}},
            {"statistics": None},
            {"statistics": {"a": 3}},
            {"statistics": {5: th.ZeroOne()}},
            {"statistics": [th.ZeroOne()]},
            {"mechanism": None},
            {"mechanism": "thresholdout"},
            {"seed": 1.5},
            {"fingerprint": "abc"},
            {"size": 2**40, "resolution": 2**24},
            {"mechanism": th.Thresholdout(threshold=0.1, sigma=1e-11, guess="last")},
            {"mechanism": th.Thresholdout(threshold=0.1, sigma=1e3, guess="last"), "size": 2**35},
            {
                "mechanism": th.Thresholdout(
                    threshold=0.1, sigma=0.1, guess="last", initial={"x": 1}
                )
            },
            {
                "mechanism": th.Thresholdout(
                    threshold=0.1, sigma=0.1, guess="last", initial={"val_acc": 2}
                )
            },
        ],
        ids=str,
    )
    def test_bad_parameters(self, change):
        with pytest.raises(InvalidArgumentError, match="Expected"):
            make_holdout(**change)

    @pytest.mark.parametrize(
        "change",
        [
            {"sigma": -0.1},
            {"sigma": 1e308},
            {"sigma": 1e-300},
            {"sigma": float("nan")},
            {"sigma": "0.1"},
            {"sigma": None},
            {"threshold": -0.1},
            {"threshold": float("inf")},
            {"threshold": 1.5},
            {"guess": "first"},
            {"guess": "train", "initial": {"val_acc": 0.5}},
        ],
        ids=str,
    )
    def test_bad_mechanisms(self, change):
        with pytest.raises(InvalidArgumentError, match="Expected"):
            th.Thresholdout(**{"threshold": 0.1, "sigma": 0.1, "guess": "last", **change})

    def test_fingerprint_of_another_size(self):
        data = torch.utils.data.TensorDataset(torch.arange(49))
        with pytest.raises(InvalidArgumentError, match="49"):
            make_holdout(fingerprint=th.fingerprint(data))

    @pytest.mark.parametrize("size", [0, 1, 49, 51, 100])
    def test_partial_or_repeated_passes(self, size):
        holdout = make_holdout()
        sums = holdout.accumulator("val_acc")
        if size:
            sums.update(correct(size // 2, size))
        came = "2 values for each example" if size == 100 else "another number of values"
        with pytest.raises(PartialPassError, match=f"each once, but got {came}") as caught:
            holdout.release("val_acc", sums, query="a")
        assert holdout.status().queries == 0
        # How many came may be a value: of a step that filters.
        assert set(re.findall(r"\d+", str(caught.value))) <= {"50", "2", "1"}

    @pytest.mark.parametrize("count", [5, 35])
    def test_values_per_token_are_named(self, count):
        holdout = make_holdout()
        sums = holdout.accumulator("val_acc")
        for _ in range(10):
            sums.update(torch.ones(5 * count, dtype=torch.bool))
        with pytest.raises(PartialPassError, match=f"{count} values for each example. Reduce"):
            holdout.release("val_acc", sums, query="a")

    def test_wrong_things_at_the_door(self):
        holdout = make_holdout()
        good = sums_of(holdout, correct(25))
        other = make_holdout(resolution=10)
        bounds = make_holdout(statistics={"val_acc": th.BoundedMean(0, 2)})
        cases = [
            ("unknown", good, {}),
            (None, good, {}),
            ("val_acc", 0.731, {}),
            ("val_acc", torch.tensor(0.731), {}),
            ("val_acc", None, {}),
            ("val_acc", sums_of(other, correct(25)), {}),
            ("val_acc", sums_of(bounds, correct(25)), {}),
            ("val_acc", good, {"guess": 0.5}),
            ("val_acc", good, {"query": None}),
            ("val_acc", good, {"query": 5}),
        ]
        for name, sums, options in cases:
            with pytest.raises(InvalidArgumentError) as caught:
                holdout.release(name, sums, **{"query": "a", **options})
            assert "0.731" not in str(caught.value)
        assert holdout.status().queries == 0

    @pytest.mark.parametrize("guess", [None, float("nan"), "0.5", True])
    def test_bad_train_guesses(self, guess):
        holdout = make_holdout(mechanism=TRAIN)
        with pytest.raises(InvalidArgumentError, match="guess"):
            ask(holdout, 25, "a", guess=guess)
        with pytest.raises(InvalidArgumentError, match="guess"):
            ask(holdout, 25, "a", guess=holdout.accumulator("val_acc", role="guess"))
        assert holdout.status().queries == 0

    def test_nan_values_take_the_worse_bound(self):
        holdout = make_holdout(mechanism=LAST, statistics={"loss": th.BoundedMean(0.0, 5.0)})
        values = torch.full((50,), float("nan"))
        assert holdout.release("loss", sums_of(holdout, values, "loss"), query="a").value == 5.0

    def test_weights_that_changed_during_the_pass(self):
        holdout = make_holdout()
        model = torch.nn.Linear(2, 2)
        before = weights_fingerprint(model)
        with torch.no_grad():
            model.bias += 1
        query = before.confirmed_by(weights_fingerprint(model))
        with pytest.raises(WeightsChangedError, match="Nothing was released"):
            holdout.release("val_acc", sums_of(holdout, correct(25)), query=query)
        assert holdout.status().queries == 0

    def test_holdout_and_guess_sums_cannot_be_swapped(self):
        """A guess is published as it is: the holdout's own sum in its place would be a leak."""
        holdout = make_holdout(mechanism=TRAIN)
        own = sums_of(holdout, correct(25))
        training = holdout.accumulator("val_acc", role="guess")
        training.update(correct(25))
        for sums, guess in ((own, own), (training, own), (training, training)):
            with pytest.raises(InvalidArgumentError, match="role"):
                holdout.release("val_acc", sums, query="a", guess=guess)
        assert holdout.release("val_acc", own, query="a", guess=training).kind == "guess"

    def test_sums_of_another_holdout_or_statistic_are_refused(self):
        """A second account without noise would otherwise answer for the first one's data."""
        statistics = {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}
        holdout = make_holdout(statistics=statistics)
        bare = make_holdout(statistics=statistics, mechanism=LAST)
        for sums in (sums_of(holdout, correct(25)), sums_of(bare, correct(25), "other")):
            with pytest.raises(InvalidArgumentError, match="another holdout, statistic"):
                bare.release("val_acc", sums, query="a")

    def test_a_replaced_ledger_is_noticed(self, url, tmp_path):
        holdout = make_holdout(url)
        holdout.status()
        dumped = pickle.dumps(holdout)
        (tmp_path / "holdout.db").unlink()
        make_holdout(url, budget=50).status()
        with pytest.raises(LedgerError, match="replaced"):
            ask(holdout, 25, "a")
        with pytest.raises(HoldoutError, match="replaced"):
            ask(pickle.loads(dumped), 25, "a")
        assert make_holdout(url, budget=50).status().queries == 0

    def test_a_refused_pickle_leaves_no_file_behind(self, url, tmp_path):
        dumped = pickle.dumps(make_holdout(url))
        (tmp_path / "holdout.db").unlink()
        with pytest.raises(LedgerError):
            pickle.loads(dumped).status()
        assert not (tmp_path / "holdout.db").exists()


def two_statistics(mechanism, **changes):
    statistics = {"a": th.ZeroOne(), "b": th.ZeroOne()}
    return make_holdout(statistics=statistics, mechanism=mechanism, **changes)


def test_a_guess_that_is_missing_for_one_statistic_charges_none():
    holdout = two_statistics(th.Thresholdout(threshold=0.05, sigma=0.01, guess="train"))
    sums = {name: sums_of(holdout, correct(20), name) for name in ("a", "b")}
    before = holdout.status()
    with pytest.raises(InvalidArgumentError, match="Nothing was charged"):
        holdout.release_all(sums, query="q", guesses={"a": 0.1})
    assert holdout.status() == before


def test_a_guess_for_what_is_not_asked_is_left_aside():
    holdout = two_statistics(th.EffectiveRounds(threshold=0.05, sigma=0.01, rounds=3), budget=3)
    sums = sums_of(holdout, correct(20), "a")
    given = {"a": 0.4, "b": sums_of(holdout, correct(20), "b")}
    assert holdout.release_all({"a": sums}, query="q", guesses=given)["a"].kind in (
        "guess",
        "release",
    )


def test_first_guesses_are_fixed_when_the_holdout_is_made():
    initial = {"val_acc": 0.5}
    rule = th.Thresholdout(threshold=0.1, sigma=0.0, guess="last", initial=initial)
    holdout = make_holdout(mechanism=rule)
    initial["val_acc"] = 0.8
    assert ask(holdout, 40, "q").kind == "release"  # 0.8 is far from the guess that counts
