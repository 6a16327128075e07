"""What every mechanism must do behind the door."""

import math
import pickle

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.ledger.holdouts import Account
from torch_holdout.mechanisms import mechanism_of

from support.builders.holdouts import ask, make_holdout
from support.builders.mechanisms import MECHANISMS, guess_of

every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def spent(holdout):
    status = holdout.status()
    return status.epsilon_spent if status.rho_spent is None else status.rho_spent


@every
class TestContract:
    def test_a_repeat_is_the_stored_answer_and_free(self, mechanism):
        holdout = make_holdout(mechanism=mechanism)
        first = ask(holdout, 20, "a", **guess_of(mechanism))
        before = holdout.status()
        again = ask(holdout, 45, "a", **guess_of(mechanism, 0.1))
        assert (again.value, again.kind, again.source) == (first.value, "repeat", first.kind)
        assert holdout.status() == before

    def test_exhausted_is_final_and_repeats_go_on(self, mechanism):
        holdout = make_holdout(mechanism=mechanism, budget=2, seed=5)
        answers = [
            ask(holdout, 20 + k, f"{k}", **guess_of(mechanism, 0.9 if k % 2 else 0.1))
            for k in range(0, 30, 6)
        ]
        assert holdout.status().exhausted
        cost = spent(holdout)
        assert holdout.status().releases == 2
        gone = ask(holdout, 49, "another", **guess_of(mechanism, 0.0))
        assert (gone.kind, math.isnan(gone.value), gone.budget_left) == ("exhausted", True, 0)
        assert ask(holdout, 49, "0", **guess_of(mechanism)).value == answers[0].value
        assert spent(holdout) == cost

    def test_charges_never_pass_the_cap(self, mechanism):
        holdout = make_holdout(mechanism=mechanism, budget=3, seed=2, delta=1e-6)
        for k in range(20):
            ask(holdout, (13 * k) % 50, f"{k}", **guess_of(mechanism, (k % 7) / 7))
            charges = mechanism.budget_charges({50}, 3)
            cap = math.fsum(
                c.count * (c.rho if mechanism.currency == "rho" else c.epsilon) for c in charges
            )
            assert spent(holdout) <= cap * (1 + 1e-9)
        releases = holdout.status().releases
        if math.isfinite(spent(holdout)):
            assert spent(holdout) <= releases * mechanism.release_charge(50) * (1 + 1e-9) + (
                mechanism.compares * mechanism.charge_per_step(50)
            )

    def test_a_failed_commit_gives_no_answer_and_charges_nothing(self, mechanism, monkeypatch):
        holdout = make_holdout(mechanism=mechanism)
        holdout.status()
        record = Account.record

        def failing(self, entry, *more):
            record(self, entry, *more)
            raise OSError("the disk is full")

        monkeypatch.setattr(Account, "record", failing)
        with pytest.raises(th.HoldoutError, match="OSError in failing") as caught:
            ask(holdout, 20, "a", **guess_of(mechanism))
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        monkeypatch.undo()
        status = holdout.status()
        assert (status.queries, status.releases) == (0, 0)
        assert spent(holdout) in (0.0, math.inf)

    def test_reopened_and_copied_it_is_the_same_account(self, mechanism, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout = make_holdout(url, mechanism=mechanism)
        first = ask(holdout, 20, "a", **guess_of(mechanism))
        for other in (make_holdout(url, mechanism=mechanism), pickle.loads(pickle.dumps(holdout))):
            assert other.status() == holdout.status()
            assert ask(other, 30, "a", **guess_of(mechanism)).value == first.value
        with pytest.raises(th.HoldoutMismatchError):
            make_holdout(url, mechanism=th.Ladder(step=0.123)).status()

    def test_has_a_status_a_certificate_and_intervals(self, mechanism):
        holdout = make_holdout(mechanism=mechanism, delta=1e-6, seed=1)
        answer = ask(holdout, 20, "a", **guess_of(mechanism, 0.05))
        assert "epsilon at most" in str(holdout.status())
        assert "costs" in str(holdout.status())
        claim = holdout.certificate()
        assert claim.tolerance > 0
        assert (claim.guess_tolerance is None) == (mechanism.guess_rule is None)
        assert str(claim)
        assert 0.4 in holdout.interval(answer)

    def test_known_by_its_identity_and_documented(self, mechanism):
        assert mechanism_of(mechanism.identity()) == mechanism
        assert "Guarantee:" in type(mechanism).__doc__
        assert ">>>" in type(mechanism).__doc__

    def test_a_guess_only_where_it_belongs(self, mechanism):
        holdout = make_holdout(mechanism=mechanism)
        if mechanism.wants_guess():
            with pytest.raises(InvalidArgumentError, match="guess with every query"):
                ask(holdout, 20, "a")
        else:
            with pytest.raises(InvalidArgumentError, match="Expected no guess"):
                ask(holdout, 20, "a", guess=0.5)
        assert holdout.status().queries == 0


class TestAnswerEverything:
    @pytest.mark.parametrize("name", ["laplace", "gaussian"])
    def test_every_query_is_a_release(self, name):
        holdout = make_holdout(mechanism=MECHANISMS[name], budget=4)
        kinds = [ask(holdout, 20, f"{k}").kind for k in range(6)]
        assert kinds == ["release"] * 4 + ["exhausted"] * 2

    def test_laplace_charges_epsilon(self):
        holdout = make_holdout(mechanism=th.LaplaceMechanism(epsilon=0.5), budget=4)
        ask(holdout, 20, "a")
        status = holdout.status()
        assert (status.epsilon_spent, status.epsilon) == (0.5, 2.0)
        assert status.cost_per_release == {"val_acc": 0.5}

    def test_gaussian_charges_rho(self):
        mechanism = th.GaussianMechanism(sigma=0.1)
        holdout = make_holdout(mechanism=mechanism, budget=4, delta=1e-6)
        ask(holdout, 20, "a")
        status = holdout.status()
        rho = 1 / (2 * (50 * 0.1) ** 2)
        assert status.rho_spent == pytest.approx(rho)
        assert status.epsilon_spent == math.inf
        assert status.epsilon == pytest.approx(th_epsilon_of_rho(4 * rho), rel=1e-6)
        assert "rho 0.02 spent" in str(status)
        assert make_holdout(mechanism=mechanism, name="pure").status().epsilon == math.inf

    @pytest.mark.parametrize("epsilon", [0, -1, 1e-12, 1e9, float("nan"), "x", True, None])
    def test_bad_epsilon(self, epsilon):
        with pytest.raises(InvalidArgumentError, match="epsilon"):
            th.LaplaceMechanism(epsilon=epsilon)

    @pytest.mark.parametrize("sigma", [0, -1, 1e-15, 1e9, float("nan"), "x"])
    def test_bad_sigma(self, sigma):
        with pytest.raises(InvalidArgumentError, match="sigma"):
            th.GaussianMechanism(sigma=sigma)


def th_epsilon_of_rho(rho):
    from torch_holdout.accounting import epsilon_of_rho

    return epsilon_of_rho(rho, 1e-6)


class TestSparse:
    def test_the_callers_guess_is_returned_while_it_is_near(self):
        holdout = make_holdout(mechanism=th.SparseVector(threshold=0.1, sigma=0.0))
        near = ask(holdout, 20, "a", guess=0.437)
        assert (near.kind, near.value) == ("guess", pytest.approx(0.437))
        far = ask(holdout, 20, "b", guess=0.9)
        assert (far.kind, far.value) == ("release", pytest.approx(0.4, abs=0.02))

    def test_bad_parameters(self):
        with pytest.raises(InvalidArgumentError, match="threshold"):
            th.SparseVector(threshold=1.0, sigma=0.1)
        with pytest.raises(InvalidArgumentError, match="sigma"):
            th.SparseVector(threshold=0.1, sigma=-0.1)


class TestEffectiveRounds:
    def holdout(self, **changes):
        rule = th.EffectiveRounds(threshold=0.1, sigma=0.0, rounds=3)
        return make_holdout(**{"mechanism": rule, "budget": 3, **changes})

    def estimate(self, holdout, count, size=20):
        import torch

        sums = holdout.accumulator("val_acc", role="guess")
        sums.update(torch.arange(size) < count)
        return sums

    def test_estimates_are_rounded_to_the_grid(self):
        holdout = self.holdout(grid=8)
        found = ask(holdout, 20, "a", guess=0.43)
        assert (found.kind, found.value) == ("guess", 3 / 8)

    def test_a_release_discards_the_set(self):
        holdout = self.holdout()
        assert holdout.estimation_set() == 0
        first = self.estimate(holdout, 8)
        assert ask(holdout, 20, "a", guess=first).kind == "guess"
        assert holdout.estimation_set() == 0
        assert ask(holdout, 45, "b", guess=first).kind == "release"
        assert holdout.estimation_set() == 1
        with pytest.raises(th.HoldoutError, match="set 0 has been discarded"):
            ask(holdout, 20, "c", guess=first)
        assert holdout.status().queries == 2
        assert ask(holdout, 20, "c", guess=self.estimate(holdout, 8)).kind == "guess"

    def test_no_more_releases_than_sets(self):
        with pytest.raises(InvalidArgumentError, match="at most 3, the number of estimation sets"):
            self.holdout(budget=4)
        holdout = self.holdout()
        for k in range(3):
            assert ask(holdout, 45, f"{k}", guess=self.estimate(holdout, 1)).kind == "release"
        assert holdout.estimation_set() == 2
        assert ask(holdout, 45, "x", guess=self.estimate(holdout, 1)).kind == "exhausted"

    @pytest.mark.parametrize("rounds", [0, -1, 1.5, None, True])
    def test_bad_rounds(self, rounds):
        with pytest.raises(InvalidArgumentError, match="rounds"):
            th.EffectiveRounds(threshold=0.1, sigma=0.0, rounds=rounds)
