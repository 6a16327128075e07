"""The door: what it answers, charges and refuses."""

import copy
import math
import pickle

import pytest
import torch
import torch_holdout as th
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout.errors import (
    HoldoutError,
    HoldoutMismatchError,
    InvalidArgumentError,
    LedgerError,
    PartialPassError,
    WeightsChangedError,
)
from torch_holdout.ledger.holdouts import Account

from support.builders.holdouts import ask, correct, make_holdout, sums_of

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")
TRAIN = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


class TestAnswers:
    """Without noise the rule can be followed by hand."""

    def test_last_guess(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        first = ask(holdout, 25, "a")
        assert first == th.Answer(0.5, "release", 4, "release")  # no guess yet: forced
        assert ask(holdout, 27, "b") == th.Answer(0.5, "guess", 4, "guess")
        assert ask(holdout, 28, "c") == th.Answer(0.56, "release", 3, "release")
        assert ask(holdout, 26, "d") == th.Answer(0.56, "guess", 3, "guess")

    def test_a_returned_guess_never_becomes_last(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        for count in (25, 26, 27):
            ask(holdout, count, str(count))
        assert ask(holdout, 28, "28").kind == "release"

    def test_first_guess_can_be_given(self):
        mechanism = th.Thresholdout(
            threshold=0.05, sigma=0.0, guess="last", initial={"val_acc": 0.5}
        )
        holdout = make_holdout(mechanism=mechanism)
        assert ask(holdout, 26, "a") == th.Answer(0.5, "guess", 5, "guess")
        assert ask(holdout, 40, "b").kind == "release"

    def test_train_guess_by_value_and_by_sums(self):
        holdout = make_holdout(mechanism=TRAIN, grid=50)
        assert ask(holdout, 25, "a", guess=0.52).value == pytest.approx(0.52)
        assert ask(holdout, 25, "b", guess=0.60) == th.Answer(0.5, "release", 4, "release")
        train = holdout.accumulator("val_acc", role="guess")
        train.update(correct(77, 150))
        answer = ask(holdout, 25, "c", guess=train)
        assert answer.kind == "guess"
        assert answer.value == pytest.approx(77 / 150, abs=1e-12)

    def test_values_are_in_the_users_units(self):
        loss = th.BoundedMean(-2.0, 6.0)
        holdout = make_holdout(mechanism=LAST, statistics={"loss": loss}, grid=8)
        sums = sums_of(holdout, torch.full((50,), 3.0), "loss")
        assert holdout.release("loss", sums, query="a").value == 3.0

    def test_answers_lie_on_the_grid(self):
        holdout = make_holdout(
            mechanism=th.Thresholdout(threshold=0.0, sigma=0.1, guess="last"), budget=40, grid=16
        )
        for index in range(30):
            value = ask(holdout, 25, str(index)).value
            assert 0 <= value <= 1
            assert (value * 16).is_integer()

    def test_default_grid_is_the_power_of_two_from_four_root_n(self):
        for size, grid in ((50, 32), (64, 32), (65, 64), (10_000, 512)):
            statistics = make_holdout(size=size).status().statistics
            assert statistics["val_acc"]["grid"] == grid


class TestRepeats:
    def test_free_with_value_and_kind(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 25, "a")
        ask(holdout, 26, "b")
        assert ask(holdout, 25, "a") == th.Answer(0.5, "repeat", 4, "release")
        assert ask(holdout, 26, "b") == th.Answer(0.5, "repeat", 4, "guess")
        # Whatever the pass says now: the answer to a query is given once.
        assert ask(holdout, 50, "a").value == 0.5
        assert holdout.status().queries == 2

    def test_a_repeat_does_not_move_last(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 10, "a"), ask(holdout, 40, "b"), ask(holdout, 10, "a")
        assert ask(holdout, 40, "c").kind == "guess"

    def test_after_exhaustion(self):
        holdout = make_holdout(mechanism=LAST, budget=1, grid=50)
        ask(holdout, 25, "a")
        answer = ask(holdout, 26, "b")
        assert (answer.kind, answer.budget_left, answer.source) == ("exhausted", 0, None)
        assert math.isnan(answer.value)
        assert ask(holdout, 25, "a") == th.Answer(0.5, "repeat", 0, "release")
        assert holdout.status().queries == 1

    def test_another_statistic_or_source_is_another_query(self):
        statistics = {"a": th.ZeroOne(), "b": th.ZeroOne()}
        holdout = make_holdout(mechanism=LAST, statistics=statistics)
        for name in statistics:
            assert (
                holdout.release(name, sums_of(holdout, correct(9), name), query="w").kind
                == "release"
            )
        assert holdout.status().queries == 2

    def test_the_position_counts_queries_not_repeats(self):
        holdout = make_holdout(mechanism=LAST)
        for _ in range(3):
            ask(holdout, 25, "a")
        ask(holdout, 25, "b")
        assert holdout.status().queries == 2


class TestFresh:
    def test_forces_a_release_and_keeps_the_first_answer(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 25, "a")
        ask(holdout, 26, "b")
        assert ask(holdout, 26, "b", fresh=True) == th.Answer(0.52, "release", 3, "release")
        assert ask(holdout, 26, "b", fresh=True).budget_left == 2
        assert ask(holdout, 26, "b") == th.Answer(0.5, "repeat", 2, "guess")
        assert holdout.status().queries == 4

    def test_is_refused_when_the_budget_is_gone(self):
        holdout = make_holdout(mechanism=LAST, budget=1)
        ask(holdout, 25, "a")
        assert ask(holdout, 25, "a", fresh=True).kind == "exhausted"


class TestBudget:
    def releases_of(self, holdout, attempts=12):
        kinds = [ask(holdout, 4 * i % 50, str(i), fresh=True).kind for i in range(attempts)]
        return kinds.count("release")

    def test_exactly_the_budget(self):
        assert self.releases_of(make_holdout(budget=5)) == 5

    def test_twin_with_one_too_many_is_caught(self):
        assert self.releases_of(make_holdout(budget=6)) != 5

    def test_an_edited_budget_gives_a_live_handle_nothing(self):
        holdout = make_holdout(budget=5)
        holdout.status()
        with holdout._ledger._transaction() as connection:
            connection.exec_driver_sql("UPDATE th_holdouts SET budget = budget + 1")
        with pytest.raises(LedgerError, match="fit together"):
            self.releases_of(holdout)

    def test_the_database_itself_refuses_one_too_many(self, monkeypatch):
        left = property(lambda a: a.budget - a.releases + 1)
        monkeypatch.setattr(Account, "budget_left", left)
        with pytest.raises(LedgerError, match="th_budget_holds"):
            self.releases_of(make_holdout(budget=5))

    def test_no_comparison_after_the_last_release(self):
        holdout = make_holdout(mechanism=LAST, budget=1)
        ask(holdout, 25, "a")
        assert ask(holdout, 25, "b").kind == "exhausted"  # it would have been a free guess


class TestCharges:
    A = 1 / (50 * 0.01)  # = 2

    def holdout(self, **changes):
        """Seeded so that the noise is known; threshold far away or at zero decides the kind."""
        return make_holdout(seed=1, **changes)

    def test_forced_release_costs_the_answer_only(self):
        holdout = self.holdout()
        ask(holdout, 25, "a")
        assert holdout.status().epsilon_spent == pytest.approx(self.A)
        assert holdout.status().rounds == 0

    def test_a_touched_round_costs_once(self):
        holdout = self.holdout(mechanism=th.Thresholdout(threshold=0.9, sigma=0.01, guess="last"))
        ask(holdout, 25, "a")
        for query in "bcd":
            assert ask(holdout, 25, query).kind == "guess"
        assert holdout.status().epsilon_spent == pytest.approx(2 * self.A)
        assert holdout.status().rounds == 1

    def test_a_forced_release_closes_the_open_round(self):
        statistics = {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}
        mechanism = th.Thresholdout(threshold=0.9, sigma=0.01, guess="last")
        holdout = self.holdout(mechanism=mechanism, statistics=statistics)
        ask(holdout, 25, "a")
        ask(holdout, 25, "b")  # opens a round
        with holdout._ledger.account(holdout._attached()) as account:
            assert account.threshold(50) is not None
        holdout.release("other", sums_of(holdout, correct(25), "other"), query="a")
        with holdout._ledger.account(holdout._attached()) as account:
            assert account.threshold(50) is None
        ask(holdout, 25, "c")  # opens the next one
        assert holdout.status().rounds == 2
        assert holdout.status().epsilon_spent == pytest.approx(4 * self.A)

    def test_one_threshold_until_it_fires(self):
        mechanism = th.Thresholdout(threshold=0.3, sigma=0.01, guess="last")
        holdout = self.holdout(mechanism=mechanism)
        ask(holdout, 25, "a")
        seen = []
        for query in "bcd":
            ask(holdout, 25, query)
            with holdout._ledger.account(holdout._attached()) as account:
                seen.append(account.threshold(50))
        assert len(set(seen)) == 1
        assert ask(holdout, 50, "e").kind == "release"
        ask(holdout, 50, "f")
        with holdout._ledger.account(holdout._attached()) as account:
            assert account.threshold(50) not in (None, *seen)

    def test_cap_is_fixed_from_the_start(self):
        holdout = self.holdout()
        before = holdout.status().epsilon
        assert before == pytest.approx(2 * 5 * self.A)
        for index in range(9):
            ask(holdout, 5 * index, str(index))
        status = holdout.status()
        assert status.epsilon == before
        assert status.epsilon_spent <= status.epsilon

    def test_spent_never_exceeds_the_cap_with_every_round_touched(self):
        mechanism = th.Thresholdout(
            threshold=0.0, sigma=0.01, guess="last", initial={"val_acc": 0.5}
        )
        holdout = self.holdout(mechanism=mechanism)
        index = 0
        while not holdout.status().exhausted:
            ask(holdout, index % 50, str(index))
            index += 7
        status = holdout.status()
        assert status.epsilon_spent == pytest.approx(status.epsilon)

    def test_delta_gives_the_tighter_cap(self):
        mechanism = th.Thresholdout(threshold=0.05, sigma=0.1, guess="last")
        pure = make_holdout(size=1000, budget=100, mechanism=mechanism).status().epsilon
        status = make_holdout(size=1000, budget=100, mechanism=mechanism, delta=1e-6).status()
        assert status.delta == 1e-6
        assert status.epsilon < pure / 3

    def test_without_noise_epsilon_is_infinite(self):
        holdout = make_holdout(mechanism=LAST)
        ask(holdout, 25, "a")
        status = holdout.status()
        assert math.isinf(status.epsilon)
        assert math.isinf(status.epsilon_spent)
        assert "infinite" in str(status)


class TestIdentity:
    """Copies are handles to one account; nothing refunds."""

    def test_copies_share_one_budget(self, url):
        holdout = make_holdout(url)
        copies = [
            copy.copy(holdout),
            copy.deepcopy(holdout),
            pickle.loads(pickle.dumps(holdout)),
            copy.deepcopy({"callback": holdout})["callback"],
            make_holdout(url),
            th.ReusableHoldout.open(url, **arguments()),
        ]
        for index, one in enumerate(copies):
            ask(one, 8 * index, f"q{index}", fresh=True)
        assert [one.status().budget_left for one in copies] == [0] * len(copies)
        assert holdout.status().releases == 5

    def test_a_pickle_of_a_memory_holdout_works_in_its_process_only(self):
        holdout = make_holdout()
        twin = pickle.loads(pickle.dumps(holdout))
        ask(twin, 25, "a")
        assert holdout.status().releases == 1
        dumped = pickle.dumps(holdout)
        del holdout, twin
        with pytest.raises(LedgerError, match="gone"):
            pickle.loads(dumped).status()

    def test_a_pickle_never_recreates_a_deleted_ledger(self, url, tmp_path):
        dumped = pickle.dumps(make_holdout(url))
        (tmp_path / "holdout.db").unlink()
        with pytest.raises(LedgerError):
            pickle.loads(dumped).status()

    def test_a_pickle_does_not_carry_the_data_hash(self, url):
        data = torch.utils.data.TensorDataset(torch.arange(50))
        found = th.fingerprint(data)
        dumped = pickle.dumps(make_holdout(url, fingerprint=found))
        assert found._digest not in dumped
        assert pickle.loads(dumped).status().renaming_detected

    def test_renaming_does_not_refill(self, url):
        data = torch.utils.data.TensorDataset(torch.arange(50))
        make_holdout(url, fingerprint=th.fingerprint(data)).status()
        with pytest.raises(HoldoutMismatchError, match="does not refill"):
            make_holdout(url, name="again", fingerprint=th.fingerprint(data)).status()

    def test_one_release_is_no_plural(self):
        holdout = make_holdout()
        assert "asked 0 times: 0 releases, 0 guesses" in str(holdout.status())
        ask(holdout, 30, "q")
        assert "asked 1 time: 1 release, 0 guesses" in str(holdout.status())

    def test_without_fingerprint_status_says_so(self):
        assert "renaming is not detected" in str(make_holdout().status())

    @pytest.mark.parametrize(
        "change",
        [
            {"size": 51},
            {"budget": 6},
            {"delta": 1e-6},
            {"grid": 7},
            {"resolution": 100},
            {"seed": 3},
            {"mechanism": LAST},
            {"mechanism": th.Thresholdout(threshold=0.05, sigma=0.01, guess="train")},
            {"statistics": {"val_acc": th.BoundedMean(0.0, 2.0, mode="max")}},
            {"statistics": {"val_acc": th.BoundedMean(0.0, 1.0, mode="min")}},
            {"statistics": {"other": th.ZeroOne()}},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_any_changed_parameter_is_refused(self, url, change):
        ask(make_holdout(url), 25, "a")
        with pytest.raises(HoldoutMismatchError, match="Nothing was charged"):
            make_holdout(url, **change).status()
        assert make_holdout(url).status().queries == 1

    def test_construction_touches_nothing(self, url, tmp_path):
        make_holdout(url)
        assert list(tmp_path.iterdir()) == []
        th.ReusableHoldout.open(url, **arguments())
        assert (tmp_path / "holdout.db").exists()

    def test_the_address_survives_a_change_of_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        holdout = make_holdout("sqlite:///holdout.db")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ask(pickle.loads(pickle.dumps(holdout)), 25, "a")
        assert [f.name for f in tmp_path.iterdir() if f.is_file()] == ["holdout.db"]


def arguments():
    return {
        "name": "val",
        "size": 50,
        "statistics": {"val_acc": th.ZeroOne()},
        "budget": 5,
        "mechanism": th.Thresholdout(threshold=0.05, sigma=0.01, guess="last"),
    }


class TestSeveralUnits:
    """Statistics over different numbers of units: own thresholds, one budget."""

    class Halves(th.BoundedMean):
        """A statistic whose units are half the examples (stands in for blocks)."""

        def units(self, size):
            return size // 2

    def test_each_units_value_has_its_own_threshold_and_cost(self):
        statistics = {"val_acc": th.ZeroOne(), "blocks": self.Halves(0.0, 1.0)}
        mechanism = th.Thresholdout(
            threshold=0.9, sigma=0.01, guess="last", initial={"val_acc": 0.5, "blocks": 0.5}
        )
        holdout = make_holdout(statistics=statistics, mechanism=mechanism, seed=4)
        status = holdout.status()
        assert status.epsilon == pytest.approx(2 * 5 * 4 + 2)  # a = 4 for 25 units, 2 for 50
        assert ask(holdout, 25, "a").kind == "guess"
        blocks = holdout.accumulator("blocks")
        blocks.update(torch.full((50,), 0.25))
        holdout.release("blocks", blocks, query="a")
        with holdout._ledger.account(holdout._attached()) as account:
            both = account.threshold(50), account.threshold(25)
        assert None not in both
        assert both[0] != both[1]
        assert holdout.status().epsilon_spent == pytest.approx(2 + 4)


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
        with pytest.raises(PartialPassError, match=str(size)):
            holdout.release("val_acc", sums, query="a")
        assert holdout.status().queries == 0

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
        assert list(tmp_path.iterdir()) == []


class TestTracebacks:
    """Some loggers print local variables: neither raw sums nor uncommitted answers may be there."""

    RAW = 37 * 65536

    def everything(self, error):
        """Text of an error, its chain, and the locals of all frames inside the library."""
        texts = []
        while error is not None:
            frames = error.__traceback__
            while frames is not None:
                if "torch_holdout" in frames.tb_frame.f_code.co_filename:
                    texts.append(repr(frames.tb_frame.f_locals))
                frames = frames.tb_next
            texts += [repr(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
        return "".join(texts)

    def failing(self, holdout, kind=HoldoutError):
        with pytest.raises(kind) as caught:
            ask(holdout, 37, "a")
        return caught.value

    def test_ledger_gone(self, url, tmp_path):
        holdout = make_holdout(url)
        holdout.status()
        (tmp_path / "holdout.db").unlink()
        assert str(self.RAW) not in self.everything(self.failing(holdout, LedgerError))

    @pytest.mark.parametrize("where", ["statement", "commit", "after"])
    def test_a_failing_write_hides_the_answer(self, url, monkeypatch, where):
        holdout = make_holdout(url, mechanism=LAST, grid=1000)
        holdout.status()
        record = Account.record

        def failing(self, entry, *more):
            if where == "statement":
                self._connection.exec_driver_sql("SELECT * FROM missing")
            left = record(self, entry, *more)
            if where == "after":
                raise ZeroDivisionError(entry.value)
            self._connection.exec_driver_sql("ROLLBACK")  # the commit then finds no transaction
            return left

        monkeypatch.setattr(Account, "record", failing)
        error = self.failing(holdout)
        assert error.__context__ is None
        assert error.__cause__ is None
        shown = self.everything(error)
        assert "TypeError" not in shown  # it failed where it should
        assert "0.74" not in shown  # 37 of 50
        assert str(self.RAW) not in shown

    def test_an_interrupt_is_passed_on_bare(self, monkeypatch):
        holdout = make_holdout(mechanism=th.Thresholdout(threshold=0.1, sigma=0.1, guess="last"))
        holdout.status()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("torch_holdout.mechanisms.rounds.noisy_answer", interrupted)
        assert str(self.RAW) not in self.everything(self.failing(holdout, KeyboardInterrupt))

    def test_twin_that_keeps_the_frames_is_caught(self, monkeypatch, url, tmp_path):
        monkeypatch.setattr("torch_holdout.holdout.door.without_trace", lambda action: action())
        holdout = make_holdout(url, mechanism=LAST)

        def failing(self, query):
            raise ZeroDivisionError

        monkeypatch.setattr(th.Thresholdout, "decide", failing)
        error = self.failing(holdout, ZeroDivisionError)
        frames, found = error.__traceback__, []
        while frames is not None:
            found += [getattr(v, "total", None) for v in frames.tb_frame.f_locals.values()]
            frames = frames.tb_next
        assert self.RAW in found


class TestStatusAndCertificate:
    def test_texts_show_both_units(self):
        statistics = {"val_loss": th.BoundedMean(0.0, 5.0)}
        status = make_holdout(statistics=statistics).status()
        assert "0.25 (0.05 normalised)" in str(status)
        assert "5 of 5 releases left" in str(status)

    def test_any_noise_gives_a_status(self):
        for sigma in (1e-4, 1e-3, 1.0):
            mechanism = th.Thresholdout(threshold=0.1, sigma=sigma, guess="last")
            status = make_holdout(size=10, mechanism=mechanism, delta=1e-6).status()
            assert 0 < status.epsilon <= 2 * 5 / (10 * sigma) * (1 + 1e-9)

    def test_numbers_from_numpy_are_numbers(self):
        import numpy as np

        mechanism = th.Thresholdout(threshold=np.float32(0.5), sigma=np.float64(0.1), guess="last")
        holdout = make_holdout(size=np.int64(50), budget=np.int32(5), mechanism=mechanism)
        assert ask(holdout, 25, "a").kind == "release"

    def test_the_secret_threshold_is_not_logged(self, caplog):
        import logging

        mechanism = th.Thresholdout(threshold=0.9, sigma=0.01, guess="last")
        holdout = make_holdout(mechanism=mechanism)
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
            logging.getLogger("sqlalchemy.engine").setLevel(logging.DEBUG)
            try:
                for query in "abc":
                    ask(holdout, 25, query)
            finally:
                logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
                logging.getLogger("sqlalchemy.engine").setLevel(logging.NOTSET)
        with holdout._ledger.account(holdout._attached()) as account:
            assert str(account.threshold(50)) not in caplog.text

    def test_seeded_is_marked_everywhere(self):
        holdout = make_holdout(seed=1)
        ask(holdout, 25, "a")
        assert holdout.status().seeded
        assert "SEEDED" in str(holdout.status())
        assert holdout._ledger.summary(holdout._attached()).registration["seeded"]

    def test_certificate_grows_with_releases_and_says_when_it_is_empty(self):
        holdout = make_holdout(size=5000, mechanism=LAST, budget=200)
        first = holdout.certificate().tolerance
        for index in range(20):
            ask(holdout, (index % 2) * 4000, str(index))
        later = holdout.certificate()
        assert first < later.tolerance < 1
        assert later.guess_tolerance > later.tolerance
        assert "transcript counting" in str(later)
        tiny = make_holdout(size=2).certificate()
        assert tiny.vacuous
        assert "larger holdout" in str(tiny)

    @pytest.mark.parametrize("failure", [0.0, 1.0, -1, float("nan")])
    def test_bad_failure_probability(self, failure):
        with pytest.raises(InvalidArgumentError, match="failure"):
            make_holdout().certificate(failure)

    def test_user_units(self):
        holdout = make_holdout(statistics={"val_loss": th.BoundedMean(0.0, 5.0)}, size=5000)
        claim = holdout.certificate()
        assert claim.user_tolerance["val_loss"] == pytest.approx(5 * claim.tolerance)


def test_recall_finds_what_was_asked_and_charges_nothing():
    holdout = make_holdout()
    assert holdout.recall("val_acc", "a") is None
    asked = ask(holdout, 30, "a")
    ask(holdout, 30, "a", fresh=True)
    found = holdout.recall("val_acc", "a")
    assert (found.value, found.kind, found.source) == (asked.value, "repeat", "release")
    assert (found.position, found.budget_left) == (1, 3)
    assert holdout.status().queries == 2
