"""What answers cost, and that no more than the budget leave."""

import math

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import LedgerError
from torch_holdout.ledger.holdouts import Account

from support.builders.holdouts import ask, correct, make_holdout, sums_of

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")


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
