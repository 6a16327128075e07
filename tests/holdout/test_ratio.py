"""Ratios at the door: quotients are compared and published, both sums are kept until closing."""

import math
import pickle
import sqlite3
from contextlib import closing as closed_after
from fractions import Fraction

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.ratios import quotient_interval
from torch_holdout.bounds.sealed_runs import evaluation_bracket
from torch_holdout.errors import InvalidArgumentError, LedgerError, PartialPassError
from torch_holdout.ledger import verify
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.ledger.run_events import part_names

SIZE, LEVELS = 200, 65536
LADDER = th.Ladder(step=0.01)
TOKENS = 64 + (torch.arange(SIZE) * 7) % 65  # 64 to 128
LOSS = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(64, 128), 0.0, 10.0)
FROM_0 = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(0, 128), 0.0, 10.0)


def account(mechanism=LADDER, url="memory://", statistics=None, budget=5, **more):
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics=statistics or {"loss": LOSS}, mechanism=mechanism,
        budget=budget, **more,
    )  # fmt: skip


def sums_of(holdout, level, name="loss", tokens=TOKENS, **more):
    """A pass whose long sequences have larger losses per token, by about ``level``."""
    sums = holdout.accumulator(name, **more)
    sums.update(losses_of(level, tokens), tokens)
    return sums


def losses_of(level, tokens=TOKENS):
    return (level * tokens * (0.5 + tokens / 128)).double()


def plain(level, tokens=TOKENS):
    """The quotient of the clipped, rounded values, exactly."""
    means = []
    for values, low, high in ((losses_of(level, tokens), 0, 1280), (tokens, 64, 128)):
        unit = (values.double().clamp(low, high) - low) / (high - low)
        total = int((unit * LEVELS).round().sum())
        means.append(low + (high - low) * Fraction(total, SIZE * LEVELS))
    return means[0] / means[1]


def evaluate(holdout, run, level, query, **more):
    return run.evaluate({"loss": sums_of(holdout, level)}, query=query, **more)


class TestLive:
    def test_the_answer_is_the_quotient_on_the_grid(self):
        holdout, step = account(grid=512), 10 / 512
        answer = holdout.release("loss", sums_of(holdout, 1.3), query="a")
        assert abs(answer.value - float(plain(1.3))) <= step / 2
        assert answer.value / step == pytest.approx(round(answer.value / step))
        mean_of_quotients = float((losses_of(1.3) / TOKENS).mean())
        assert abs(mean_of_quotients - float(plain(1.3))) > step / 2  # the twin is told apart

    def test_a_ladder_compares_quotients(self):
        """More tokens and a larger sum of losses, yet less loss for each token: an improvement."""
        holdout = account()
        first = holdout.release("loss", sums_of(holdout, 2.0, tokens=TOKENS // 2 + 32), query="a")
        more = sums_of(holdout, 1.8, tokens=torch.full((SIZE,), 128))
        second = holdout.release("loss", more, query="b")
        worse = holdout.release("loss", sums_of(holdout, 2.2), query="c")
        assert losses_of(1.8, torch.full((SIZE,), 128)).sum() > losses_of(2.0).sum()
        assert (first.kind, worse.kind, worse.value) == ("release", "guess", first.value)
        assert second.kind == "guess"  # 1.8 * 1.5 is worse than 2.0 * 1.25
        better = holdout.release("loss", sums_of(holdout, 1.5), query="d")
        assert (better.kind, better.value < first.value) == ("release", True)

    @pytest.mark.parametrize("given", ["sums", "number"])
    def test_training_values_are_divided_too(self, given):
        rule = th.Thresholdout(threshold=0.02, sigma=0.0, guess="train")
        holdout = account(rule)
        guess = float(plain(1.3))
        if given == "sums":
            guess = holdout.accumulator("loss", role="guess")
            for half in range(2):
                guess.update(losses_of(1.3)[half::2], TOKENS[half::2])
        near = holdout.release("loss", sums_of(holdout, 1.31), query="a", guess=guess)
        far = holdout.release("loss", sums_of(holdout, 2.5), query="b", guess=guess)
        assert (near.kind, far.kind) == ("guess", "release")
        grid = StoredStatistic(holdout.status().statistics["loss"]).grid
        assert near.value == pytest.approx(float(plain(1.3)), abs=5 / grid)

    def test_a_repeat_is_free_and_a_copy_is_the_same_account(self):
        holdout = account()
        first = holdout.release("loss", sums_of(holdout, 1.3), query="a")
        again = pickle.loads(pickle.dumps(holdout))
        repeated = again.release("loss", sums_of(again, 1.9), query="a")
        assert (repeated.kind, repeated.value) == ("repeat", first.value)
        assert again.budget_left == 4

    def test_a_partial_pass_is_refused(self):
        holdout = account()
        sums = holdout.accumulator("loss")
        sums.update(losses_of(1.0)[1:], TOKENS[1:])
        with pytest.raises(PartialPassError, match="Nothing was released"):
            holdout.release("loss", sums, query="a")
        assert holdout.budget_left == 5

    def test_the_certificate_pays_for_both_sums(self):
        """By hand: two Hoeffding bounds at half of the failure, the denominator at least 64."""
        holdout = account()
        answer = holdout.release("loss", sums_of(holdout, 1.3), query="a")
        bracket = math.log(2 / 0.05) + math.log(math.pi**4 / 36)
        mean = math.sqrt((bracket + math.log(2)) / (2 * SIZE)) + 0.5 / LEVELS
        grid = StoredStatistic(holdout.status().statistics["loss"]).grid
        rounding = 5 / (SIZE * LEVELS)
        tolerance = (1280 * mean + 10 * 64 * mean) / 64 + 5 / grid + rounding
        claim = holdout.certificate()
        assert claim.user_tolerance["loss"] == pytest.approx(tolerance, rel=1e-12)
        assert claim.tolerance == pytest.approx(tolerance / 10)
        assert "the quotient of both means" in claim.covers
        interval = holdout.interval(answer)
        near = answer.value + 5 / grid + rounding
        assert interval.high == pytest.approx(near + (1280 + 64 * near) * mean / 64, rel=1e-12)
        assert 0 <= interval.low < interval.high < answer.value + tolerance

    def test_prices_say_what_is_claimed_afterwards(self):
        holdout = account()
        expected = holdout.prices().next.by_statistic["loss"]
        holdout.release("loss", sums_of(holdout, 1.3), query="a")
        assert holdout.certificate().user_tolerance["loss"] == pytest.approx(expected)

    def test_a_denominator_from_0_claims_nothing_and_says_so(self):
        holdout = account(statistics={"loss": FROM_0, "acc": th.ZeroOne()})
        answer = holdout.release("loss", sums_of(holdout, 1.3), query="a")
        interval = holdout.interval(answer)
        assert (interval.low, interval.high) == (0.0, 10.0)
        claim = holdout.certificate()
        assert (claim.unclaimed, claim.vacuous) == (("loss",), True)
        assert claim.user_tolerance["loss"] == 10.0
        assert claim.user_tolerance["acc"] < 1
        assert "the denominator may be 0" in str(claim)
        assert "register its smallest value, or close" in str(claim)
        (value,) = holdout.close().values
        assert value.low > 0
        assert value.high < 10.0

    def test_closing_shows_both_sums_behind_an_answer(self):
        holdout = account()
        holdout.release("loss", sums_of(holdout, 1.3), query="a")
        (value,) = holdout.close().values
        assert value.exact
        assert value.value == float(plain(1.3))
        assert [part.statistic for part in value.parts] == ["loss numerator", "loss denominator"]
        assert value.parts[1].value == pytest.approx(float(TOKENS.double().mean()), abs=1e-3)


class TestSealed:
    def test_patience_compares_quotients(self):
        """The losses' sum falls until pass 5; the loss for each token is least in pass 2."""
        holdout = account(th.Sealed(evaluations=10))
        levels = [(2.0, 128), (1.0, 128), (1.1, 96), (1.2, 80), (1.3, 64), (1.4, 64)]
        with holdout.run(stop=th.Patience("loss", patience=3)) as run:
            for epoch, (level, most) in enumerate(levels):
                tokens = torch.full((SIZE,), most)
                sums = holdout.accumulator("loss")
                sums.update(level * tokens.double(), tokens)
                if run.evaluate({"loss": sums}, query=str(epoch)).stop:
                    break
        assert (run.outcome.stopped_at, run.outcome.best_evaluation) == (5, 2)
        found = holdout.close()
        assert [value.value for value in found.curve("loss")] == pytest.approx(
            [level for level, _ in levels[:5]], abs=2e-3
        )
        assert found.best.evaluation == 2

    @pytest.mark.parametrize(("min_delta", "best"), [(0.0, 4), (0.2, 3), (0.6, 1)])
    def test_min_delta_is_in_the_quotients_units(self, min_delta, best):
        holdout = account(th.Sealed(evaluations=10))
        stop = th.Patience("loss", patience=9, min_delta=min_delta)
        with holdout.run(stop=stop) as run:
            for epoch, level in enumerate((1.2, 1.1, 0.85, 0.8)):  # times about 1.25
                evaluate(holdout, run, level, str(epoch))
        assert run.outcome.best_evaluation == best

    def test_a_tie_is_no_improvement(self):
        holdout = account(th.Sealed(evaluations=10))
        with holdout.run(stop=th.Patience("loss", patience=2)) as run:
            for epoch in range(3):
                tokens = torch.full((SIZE,), 64 * (1 + epoch % 2))  # the same quotient, other sums
                sums = holdout.accumulator("loss")
                sums.update(2.5 * tokens, tokens)
                run.evaluate({"loss": sums}, query=str(epoch))
        assert (run.outcome.best_evaluation, run.outcome.stopped_at) == (1, 3)

    def test_records_and_the_winner_are_by_quotients(self):
        holdout = account(th.Sealed(evaluations=4))
        records = []
        for number, (level, tokens) in enumerate([(1.5, 64), (1.2, 128), (1.3, 64)]):
            with holdout.run() as run:
                each, sums = torch.full((SIZE,), tokens), holdout.accumulator("loss")
                sums.update(level * each.double(), each)
                run.evaluate({"loss": sums}, query=str(number))
            records.append(run.record())
        assert records == [True, True, False]  # the sum of the losses is largest in run 2
        assert holdout.winner() == 2
        assert holdout.close().best.run == 2

    @pytest.mark.parametrize("zero_one", [False, True])
    def test_each_interval_is_the_quotient_of_two(self, zero_one):
        """By hand, from the bracket: ln K for two statistics, ln 2 for two sums."""
        group = th.Ratio(th.ZeroOne(), th.ZeroOne(), 0.0, 1.0, mode="max")
        holdout = account(
            th.Sealed(evaluations=10), statistics={"loss": LOSS, "group": group}, budget=2
        )
        member = torch.arange(SIZE) % 4 < 3
        right = member & (torch.arange(SIZE) % 5 < 4)
        with holdout.run() as run:
            sums = {"loss": sums_of(holdout, 1.3), "group": holdout.accumulator("group")}
            sums["group"].update(right, member)
            run.evaluate(sums, query="a")
        bracket = evaluation_bracket(
            failure=0.05, run=1, runs=2, evaluation=1, evaluations=10, statistics=2
        )
        columns, bounds = ((losses_of(1.3), TOKENS), ((0, 1280), (64, 128)))
        if zero_one:
            columns, bounds = ((right, member), ((0, 1), (0, 1)))
        ends = []
        for values, (low, high) in zip(columns, bounds, strict=True):
            levels = ((values.double() - low) / (high - low) * LEVELS).round().long()
            found = closing_interval(
                kind="zero_one" if zero_one else "mean", total=int(levels.sum()),
                squares=int((levels * levels).sum()), units=SIZE, resolution=LEVELS,
                bracket=bracket + math.log(2),
            )  # fmt: skip
            ends.append(tuple(low + (high - low) * end for end in found))
        (value,) = holdout.close().curve("group" if zero_one else "loss")
        cut = (0.0, 1.0) if zero_one else (0.0, 10.0)
        assert (value.low, value.high) == quotient_interval(*ends, *cut)
        assert value.value in value
        if zero_one:
            assert value.value == float(right.sum() / member.sum().double())

    def test_the_certificate_of_the_open_account_is_wider_than_what_closing_shows(self):
        holdout = account(th.Sealed(evaluations=4))
        with holdout.run() as run:
            evaluate(holdout, run, 1.3, "a")
        before = holdout.certificate()
        expected = holdout.prices().next.by_statistic["loss"]
        assert before.sealed
        assert before.user_tolerance["loss"] <= expected
        (value,) = holdout.close().values
        assert value.high - value.value < before.user_tolerance["loss"]
        assert value.value - value.low < before.user_tolerance["loss"]

    def test_a_run_that_is_given_up_takes_its_sums_along(self, tmp_path):
        holdout = account(th.Sealed(evaluations=4), f"sqlite:///{tmp_path}/a.db")
        run = holdout.run()
        evaluate(holdout, run, 1.3, "a")
        run.give_up()
        with sqlite3.connect(f"{tmp_path}/a.db") as ledger:
            assert ledger.execute("SELECT count(*) FROM th_secret_sums").fetchone() == (0,)
        assert not verify(f"sqlite:///{tmp_path}/a.db").findings

    def test_a_challenge_is_refused(self):
        holdout = account(th.Sealed(evaluations=4))
        with pytest.raises(InvalidArgumentError, match=r"Ratio.*Nothing was charged"):
            holdout.challenge("loss", losses_of(1.0), query="a")


@pytest.mark.parametrize(
    "mechanism",
    [
        th.Sealed(evaluations=4, epsilon=1.0),
        th.Ladder(step=0.01, sigma=0.01),
        th.Thresholdout(threshold=0.02, sigma=0.01, guess="last"),
        th.LaplaceMechanism(epsilon=0.1),
        th.GaussianMechanism(sigma=0.1),
    ],
)
def test_noise_is_refused_when_the_holdout_is_made(mechanism):
    with pytest.raises(InvalidArgumentError, match=r"without noise.*Nothing was charged"):
        account(mechanism)


def test_a_plan_with_noise_is_refused_and_one_of_runs_is_taken():
    noisy = th.plan(size=100_000, queries=20, budget=2)
    assert noisy.mechanism.is_private()
    with pytest.raises(InvalidArgumentError, match="without noise"):
        th.ReusableHoldout("memory://", name="val", statistics={"loss": LOSS}, plan=noisy)
    silent = th.plan(size=SIZE, queries=20)
    th.ReusableHoldout.open("memory://", name="val", statistics={"loss": LOSS}, plan=silent)


def test_a_long_name_leaves_no_room_for_its_parts():
    name = "a" * 190
    with pytest.raises(InvalidArgumentError, match="at most 188 characters"):
        account(statistics={name: LOSS})
    account(statistics={"a" * 188: LOSS})
    assert max(map(len, part_names("a" * 188))) <= 200


def test_no_statistic_can_have_the_name_of_a_part():
    for name in part_names("loss"):
        with pytest.raises(InvalidArgumentError, match="printable"):
            account(statistics={"loss": LOSS, name: th.ZeroOne()})


def test_other_bounds_of_a_part_are_another_registration(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    account(url=url).status()
    other = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(32, 128), 0.0, 10.0)
    with pytest.raises(th.HoldoutMismatchError, match=r"denominator\.low: stored 64"):
        account(url=url, statistics={"loss": other}).status()


class TestEdits:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "holdout.db"

    def closed(self, path, mechanism):
        holdout = account(mechanism, f"sqlite:///{path}")
        if mechanism.shows_values:
            holdout.release("loss", sums_of(holdout, 1.3), query="a")
        else:
            with holdout.run() as run:
                evaluate(holdout, run, 1.3, "a")
        return holdout

    def edit(self, path, statement):
        with closed_after(sqlite3.connect(path)) as ledger, ledger:
            assert ledger.execute(statement).rowcount

    @pytest.mark.parametrize("mechanism", [LADDER, th.Sealed(evaluations=4)])
    def test_an_untouched_ledger_is_intact(self, path, mechanism):
        holdout = self.closed(path, mechanism)
        assert not verify(f"sqlite:///{path}").findings
        holdout.close()
        assert not verify(f"sqlite:///{path}").findings

    @pytest.mark.parametrize("mechanism", [LADDER, th.Sealed(evaluations=4)])
    @pytest.mark.parametrize("place", ["loss", *part_names("loss")])
    def test_a_published_sum_that_was_edited_is_found(self, path, mechanism, place):
        self.closed(path, mechanism).close()
        self.edit(path, f"UPDATE th_closed_sums SET total = total + 1 WHERE statistic = '{place}'")
        found = verify(f"sqlite:///{path}")
        assert "published sums were edited" in str(found.findings)

    @pytest.mark.parametrize("mechanism", [LADDER, th.Sealed(evaluations=4)])
    @pytest.mark.parametrize("place", ["loss", *part_names("loss")])
    def test_a_secret_sum_edited_before_closing_does_not_fit_the_others(
        self, path, mechanism, place
    ):
        holdout = self.closed(path, mechanism)
        self.edit(path, f"UPDATE th_secret_sums SET total = total - 9999 WHERE statistic='{place}'")
        holdout.close()
        assert "not the quotient of its two sums" in str(verify(f"sqlite:///{path}").findings)
        with pytest.raises(LedgerError):
            account(mechanism, f"sqlite:///{path}").close()

    @pytest.mark.parametrize("place", part_names("loss"))
    def test_a_lost_part_is_found(self, path, place):
        self.closed(path, th.Sealed(evaluations=4))
        self.edit(path, f"DELETE FROM th_secret_sums WHERE statistic = '{place}'")
        assert "not those of its evaluations" in str(verify(f"sqlite:///{path}").findings)
