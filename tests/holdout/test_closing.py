"""Closing: for good, with an interval for every evaluation, and nothing that was not kept."""

import math
import shutil
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.sealed_runs import evaluation_bracket
from torch_holdout.errors import HoldoutClosedError, HoldoutError, InvalidArgumentError
from torch_holdout.holdout.closed_values import close_account, published
from torch_holdout.holdout.closing import ClosedRun, ClosedValue, Closing
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.ledger import Ledger, verify

from support.builders.holdouts import ask, make_holdout
from support.builders.sealed import curve, evaluate, make_sealed, passes, play, sealed_runs

ASSETS = Path(__file__).parent.parent / "assets"
context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "support.builders.sealed"])


def value_of(closing, statistic, run, evaluation):
    return closing.curve(statistic, run)[evaluation - 1]


class TestSealed:
    def test_every_value_is_the_holdouts_own(self):
        holdout, _ = sealed_runs()
        closing = holdout.close()
        assert len(closing.values) == 2 * holdout.status().queries
        for run, floor in enumerate((0.42, 0.33, 0.24), 1):
            for epoch, (loss, acc) in enumerate(
                zip(closing.curve("val_loss", run), closing.curve("val_acc", run), strict=True)
            ):
                means = curve(epoch, floor)
                places = torch.arange(400)
                drawn = means["val_loss"] * (1 + 0.5 * torch.cos(3.0 * places))
                assert loss.value == pytest.approx(
                    float(drawn.clamp(0, 5).double().mean()), abs=5e-5
                )
                assert acc.value == round(means["val_acc"] * 400) / 400
                assert loss.value in loss
                assert acc.value in acc
                assert loss.exact
                assert (loss.run, loss.evaluation) == (run, epoch + 1)

    def test_zeros_and_ones_have_the_exact_interval(self):
        holdout = make_sealed()
        play(holdout, "alone", 0.3)
        found = holdout.close().curve("val_acc")
        for value in found:
            bracket = evaluation_bracket(
                failure=0.05, run=1, runs=5, evaluation=value.evaluation, evaluations=40,
                statistics=2, others=0.0,
            )  # fmt: skip
            hits = round(value.value * 400)
            known = {"total": hits * 65536, "squares": hits * 65536**2, "units": 400}
            expected = closing_interval(kind="zero_one", resolution=65536, bracket=bracket, **known)
            assert (value.low, value.high) == expected

    def test_a_loss_has_the_interval_of_its_moments(self):
        """Narrower than the certificate of the open account, which knows no variance."""
        holdout = make_sealed()
        play(holdout, "alone", 0.3)
        before = holdout.certificate().user_tolerance
        for value in holdout.close().curve("val_loss"):
            assert value.high - value.low < before["val_loss"]

    def test_blocks_have_the_interval_of_kl(self):
        def mean(rows):
            return float(rows.mean())

        blocks = th.Blockwise(mean, blocks=20, low=0.0, high=1.0)
        holdout = make_sealed(statistics={"metric": blocks})
        with holdout.run() as run:
            sums = holdout.accumulator("metric")
            sums.update(torch.full((400,), 0.25))
            run.evaluate({"metric": sums}, query="a")
        (value,) = holdout.close().values
        bracket = evaluation_bracket(
            failure=0.05, run=1, runs=5, evaluation=1, evaluations=40, statistics=1, others=0.0
        )
        known = {"total": 20 * 16384, "squares": None, "units": 20, "resolution": 65536}
        expected = closing_interval(kind="blocks", bracket=bracket, **known)
        assert value.value == 0.25
        assert (value.low, value.high) == expected

    def test_a_later_run_pays_for_what_was_said_before(self):
        alone, second = make_sealed(), make_sealed()
        play(second, "first", 0.42)
        play(alone, "the same", 0.33)
        play(second, "the same", 0.33)
        narrow = value_of(alone.close(), "val_acc", 1, 5)
        wide = value_of(second.close(), "val_acc", 2, 5)
        assert narrow.value == wide.value
        assert wide.low < narrow.low
        assert narrow.high < wide.high

    def test_the_failure_is_shared_by_all_intervals(self):
        holdout, _ = sealed_runs()
        usual, careful = holdout.close(), holdout.close(failure=1e-6)
        assert (usual.failure, careful.failure) == (0.05, 1e-6)
        for one, other in zip(usual.values, careful.values, strict=True):
            assert one.value == other.value
            assert other.low <= one.low
            assert one.high <= other.high

    @pytest.mark.parametrize("failure", [0, 1, -1, math.nan, "much", 1e-300])
    def test_a_failure_that_cannot_be_closes_nothing(self, failure):
        holdout = make_sealed()
        with pytest.raises(InvalidArgumentError):
            holdout.close(failure=failure)
        assert not holdout.status().closed

    def test_twice_is_the_same_also_from_a_new_handle(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout, _ = sealed_runs(url)
        first = holdout.close()
        assert holdout.close() == first
        assert make_sealed(url).close() == first
        assert verify(url).findings == []

    def test_by_the_stored_registration_alone(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout, _ = sealed_runs(url)
        ledger = Ledger(url)
        (account,) = ledger.accounts().values()
        reading = AccountReading(ledger.summary(account), ledger.address)
        assert published(ledger, account, reading, 0.05) is None
        closing = close_account(ledger, account)
        assert closing == holdout.close() == close_account(Ledger(url), account)

    def test_nothing_can_be_evaluated_begun_or_ended_afterwards(self):
        holdout, run = sealed_runs()
        holdout.close()
        with pytest.raises(HoldoutClosedError, match="was closed, for good"):
            evaluate(run, holdout, 5, 0.24)
        with pytest.raises(HoldoutClosedError):
            holdout.run()
        with pytest.raises(HoldoutClosedError):
            run.end()
        with pytest.raises(HoldoutClosedError):
            holdout.run(resume=run.id).give_up()

    def test_an_open_run_never_ended_and_has_its_values(self):
        holdout, run = sealed_runs()
        closing = holdout.close()
        last = closing.runs[-1]
        assert last.outcome is None
        assert (last.id, last.evaluations) == (run.id, 5)
        assert len(closing.curve("val_loss", 3)) == 5
        assert "run 3 (wide + dropout): 5 evaluations, never ended" in str(closing)

    def test_the_status_offers_an_open_run_until_it_is_closed(self):
        holdout, run = sealed_runs()
        assert f"resume={run.id!r} goes on" in str(holdout.status())
        holdout.close()
        assert "run 3 (wide + dropout): never ended, 5 evaluations" in str(holdout.status())
        assert "goes on" not in str(holdout.status())

    def test_a_run_given_up_for_free_has_no_values(self):
        holdout = make_sealed()
        run = holdout.run(stop=th.Patience("val_loss", 3))
        evaluate(run, holdout, 0, 0.42)
        run.give_up()
        closing = holdout.close()
        assert closing.values == ()
        assert closing.best is None
        assert closing.best_with_weights is None
        assert closing.not_told_apart() == []
        assert "1 run, 0 values" in str(closing)

    def test_an_account_without_a_run(self):
        closing = make_sealed().close()
        assert (closing.runs, closing.values, closing.best) == ((), (), None)

    def test_the_one_run_of_a_vault(self):
        """One number of half of the data: ln(2/beta), and the price of one evaluation."""
        vault = make_sealed(
            mechanism=th.Sealed(evaluations=1), budget=1, statistics={"val_acc": th.ZeroOne()}
        )
        with vault.run() as run:
            run.evaluate(passes(vault, val_acc=0.75), query="final")
        (value,) = vault.close().values
        bracket = math.log(40) - 2 * math.log(0.95)
        known = {"total": 300 * 65536, "squares": 300 * 65536**2, "units": 400}
        expected = closing_interval(kind="zero_one", resolution=65536, bracket=bracket, **known)
        assert (value.low, value.high) == pytest.approx(expected, abs=1e-12)

    def test_statistics_are_fixed_by_the_first_run_and_by_closing(self, tmp_path):
        """ln K is paid for K statistics; one more would have been cheaper than it is."""
        url = f"sqlite:///{tmp_path}/holdout.db"
        one = {"val_loss": th.BoundedMean(0.0, 5.0)}
        with make_sealed(url, statistics=one).run() as run:
            run.evaluate(passes(make_sealed(url, statistics=one), val_loss=0.3), query="a")
        with pytest.raises(th.HoldoutMismatchError, match="fixed before its first query"):
            make_sealed(url).status()
        make_sealed(url, name="closed", statistics=one).close()
        with pytest.raises(th.HoldoutMismatchError, match="fixed before its first query"):
            make_sealed(url, name="closed").status()
        make_sealed(url, name="fresh", statistics=one).status()
        assert len(make_sealed(url, name="fresh").status().statistics) == 2


def close_at_once(url, ready, results):
    holdout = make_sealed(url)
    holdout.status()
    ready.wait()
    closing = holdout.close()
    results.put((closing.closed_at, len(closing.values), closing.best))


def evaluate_until_closed(url, evaluated, closed, results):
    holdout = make_sealed(url)
    run = holdout.run(stop=th.Patience("val_loss", 30), name="elsewhere")
    for epoch in range(3):
        evaluate(run, holdout, epoch, 0.3)
    evaluated.set()
    closed.wait(60)
    try:
        evaluate(run, holdout, 3, 0.3)
    except HoldoutClosedError as error:
        results.put(str(error))
    else:
        results.put("it was evaluated")


class TestProcesses:
    def test_several_close_at_once_and_one_closing_is_written(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        play(make_sealed(url), "alone", 0.3)
        ready, results = context.Barrier(3), context.Queue()
        workers = [
            context.Process(target=close_at_once, args=(url, ready, results)) for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        found = [results.get(timeout=120) for _ in workers]
        for worker in workers:
            worker.join()
        assert len(set(found)) == 1
        assert verify(url).findings == []

    def test_a_run_of_another_process_ends_with_the_holdout(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        evaluated, closed, results = context.Event(), context.Event(), context.Queue()
        worker = context.Process(
            target=evaluate_until_closed, args=(url, evaluated, closed, results)
        )
        worker.start()
        assert evaluated.wait(120)
        closing = make_sealed(url).close()
        closed.set()
        assert "was closed, for good" in results.get(timeout=120)
        worker.join()
        assert len(closing.values) == 6
        assert make_sealed(url).close() == closing
        assert verify(url).findings == []


NO_NOISE = {
    "ladder": th.Ladder(step=0.05),
    "thresholdout": th.Thresholdout(threshold=0.05, sigma=0.0, guess="last"),
}


class TestLive:
    @pytest.mark.parametrize("mechanism", NO_NOISE)
    def test_exact_values_of_releases_and_of_guesses(self, mechanism):
        holdout = make_holdout(mechanism=NO_NOISE[mechanism], size=500, budget=5)
        counts = (250, 255, 300, 301, 350)
        answers = [ask(holdout, count, f"{count}") for count in counts]
        assert {answer.kind for answer in answers} == {"release", "guess"}
        published = holdout.intervals()
        closing = holdout.close()
        assert [value.value for value in closing.values] == [count / 500 for count in counts]
        for value, live in zip(closing.values, published, strict=True):
            assert value.exact
            assert value.value in value
            assert value.high - value.low < live.high - live.low

    def test_a_loss_is_half_as_wide_as_it_was(self):
        """Twenty values at n = 10,000: half-widths of .04 to .07 of the range fall below .03."""
        holdout = make_holdout(
            size=10_000,
            statistics={"val_loss": th.BoundedMean(0.0, 5.0)},
            mechanism=th.Thresholdout(threshold=0.0, sigma=0.0, guess="last"),
            budget=20,
            grid=256,
        )
        for epoch in range(20):
            sums = holdout.accumulator("val_loss")
            sums.update(0.5 + epoch / 100 + 0.3 * torch.cos(torch.arange(10_000.0)))
            holdout.release("val_loss", sums, query=f"{epoch}")
        assert holdout.status().releases == 20
        live = max((each.high - each.low) / 10 for each in holdout.intervals())
        closed = max((each.high - each.low) / 10 for each in holdout.close().values)
        assert closed < live / 2
        assert 0 < closed < 0.030
        assert 0.040 < live < 0.070

    def test_repeats_are_answered_and_nothing_else(self):
        holdout = make_holdout(mechanism=NO_NOISE["thresholdout"])
        first = ask(holdout, 30, "a")
        holdout.close()
        assert ask(holdout, 30, "a").value == first.value
        assert ask(holdout, 30, "a").kind == "repeat"
        assert holdout.recall("val_acc", "a").value == first.value
        for options in ({}, {"fresh": True}):
            with pytest.raises(HoldoutClosedError, match="Nothing was charged"):
                ask(holdout, 40, "b", **options)
        with pytest.raises(HoldoutClosedError):
            ask(holdout, 30, "a", fresh=True)
        assert holdout.status().closed
        assert (holdout.status().queries, holdout.status().releases) == (1, 1)

    def test_noise_keeps_no_sums_and_closes_with_what_was_published(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout = make_holdout(url, size=500, seed=1)
        answers = [ask(holdout, count, f"{count}") for count in (250, 300, 302, 350)]
        epsilon = holdout.status().epsilon
        with pytest.raises(InvalidArgumentError, match="has kept no sums"):
            holdout.close(exact=True)
        closing = holdout.close()
        assert not closing.exact
        assert [value.value for value in closing.values] == [answer.value for answer in answers]
        assert not any(value.exact for value in closing.values)
        # Releases and guesses may each fail with half of the probability.
        expected = [(each.low, each.high) for each in holdout.intervals(failure=0.025)]
        assert [(value.low, value.high) for value in closing.values] == expected
        assert holdout.status().epsilon == epsilon < math.inf
        assert "no exact value was published" in str(closing)
        assert ask(holdout, 250, "250").kind == "repeat"
        with pytest.raises(HoldoutClosedError):
            ask(holdout, 10, "new")
        assert verify(url).findings == []

    def test_exact_means_nothing_without_noise(self):
        holdout = make_holdout(mechanism=NO_NOISE["ladder"])
        ask(holdout, 30, "a")
        with pytest.raises(InvalidArgumentError, match="Nothing was closed"):
            holdout.close(exact=False)
        assert not holdout.status().closed
        assert holdout.close(exact=True) == holdout.close()

    @pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4"])
    def test_accounts_of_earlier_versions_close_with_what_they_published(self, tmp_path, version):
        shutil.copy(ASSETS / f"ledger_{version}.db", tmp_path / "old.db")
        (tmp_path / "old.db").chmod(0o600)
        ledger = Ledger(f"sqlite:///{tmp_path}/old.db")
        for name, account in ledger.accounts().items():
            answers = ledger.answers(account)
            closing = close_account(ledger, account)
            assert closing.name == name
            assert [value.value for value in closing.values] == [a.value for a in answers]
            assert not any(value.exact for value in closing.values)
            assert close_account(ledger, account) == closing
        assert verify(f"sqlite:///{tmp_path}/old.db").findings == []


def closed_run(number, best=None, weights=None, **changes):
    outcome = th.Outcome(
        best_evaluation=best, stopped_at=9, reason="patience", evaluations=9, passes=9, price=5.0
    )
    own = {"name": None, "outcome": None if best is None else outcome, "statistic": "val_loss"}
    return ClosedRun(
        number=number, evaluations=9, weights=weights, id=f"run{number}", **{**own, **changes}
    )


def closed(values, *runs, mode="min"):
    rows = [
        ClosedValue(run=run, evaluation=i, statistic="val_loss", value=value, low=low, high=high)
        for run, i, value, low, high in values
    ]
    return Closing(
        name="val", size=400, failure=0.05, exact=True, closed_at="2026-11-03T09:05:00+00:00",
        runs=runs, values=tuple(rows), modes={"val_loss": mode},
    )  # fmt: skip


VALUES = [
    (1, 1, 0.50, 0.45, 0.55),
    (1, 2, 0.30, 0.25, 0.35),
    (1, 3, 0.40, 0.35, 0.45),
    (2, 1, 0.34, 0.30, 0.38),
    (2, 2, 0.37, 0.33, 0.41),
    (3, 1, 0.60, 0.55, 0.65),
]


class TestReading:
    def test_who_cannot_be_told_apart(self):
        closing = closed(VALUES, *(closed_run(n) for n in (1, 2, 3)))
        assert (closing.best.run, closing.best.evaluation) == (1, 2)
        assert [(v.run, v.evaluation) for v in closing.not_told_apart()] == [(1, 2), (2, 1)]
        assert [v.evaluation for v in closing.curve(run=1)] == [1, 2, 3]
        assert closing.best_of(run=3).value == 0.60
        assert closing.best_of(run=9) is None

    def test_higher_may_be_better_and_the_first_of_equals_wins(self):
        closing = closed([*VALUES, (3, 2, 0.60, 0.5, 0.7)], closed_run(1), mode="max")
        assert (closing.best.run, closing.best.evaluation) == (3, 1)

    def test_an_unknown_statistic_is_refused(self):
        with pytest.raises(InvalidArgumentError, match="'val_loss'"):
            closed(VALUES, closed_run(1)).best_of("val_acc")

    def test_the_best_whose_weights_exist(self, tmp_path):
        model = torch.nn.Linear(2, 1)
        torch.save({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, tmp_path / "two.pt")
        runs = (closed_run(1, best=2), closed_run(2, best=2, weights=str(tmp_path / "two.pt")))
        closing = closed(VALUES, *runs, closed_run(3))
        assert (closing.best.run, closing.best_with_weights.run) == (1, 2)
        # What patience named, not what another evaluation turned out to be.
        assert closing.best_with_weights.evaluation == 2
        assert closing.load_best(model) == closing.best_with_weights
        assert model.weight.tolist() == [[1.0, 1.0]]
        assert closing.load_best(model, run=2).run == 2

    @pytest.mark.parametrize("run", [None, 1, 3, 77])
    def test_weights_that_are_not_there(self, tmp_path, run):
        gone = closed_run(1, best=2, weights=str(tmp_path / "gone.pt"))
        closing = closed(VALUES, gone, closed_run(3))
        with pytest.raises(HoldoutError, match="there are none"):
            closing.load_best(torch.nn.Linear(2, 1), run)
        with pytest.raises(InvalidArgumentError):
            closing.load_best("a model")

    def test_weights_without_values(self, tmp_path):
        """Noise hides which run is best, and a named evaluation has no value to return."""
        closing = closed([], closed_run(1, best=2, weights=str(tmp_path / "one.pt")))
        assert closing.best_with_weights is None
        with pytest.raises(HoldoutError, match=r"closing\.runs has it as `weights`"):
            closing.load_best(torch.nn.Linear(2, 1))

    def test_the_summary_rounds_intervals_outwards(self):
        values = [(1, 1, 0.31234, 0.25009, 0.350012)]
        text = str(closed(values, closed_run(1, best=1, name="wide")))
        assert "best: run 1, evaluation 1, val_loss 0.3123 in [0.2500, 0.3501]" in text
        assert "run 1 (wide): 9 evaluations, stopped by patience at pass 9, best 1" in text
        assert "with 95 % confidence the interval holds" in text
        many = str(closed(VALUES, *(closed_run(n) for n in (1, 2, 3))))
        assert "with 95 % confidence all 6 intervals hold at once" in many
        assert "not told apart: run 2, evaluation 1, 0.3400 in [0.3000, 0.3800]" in many
