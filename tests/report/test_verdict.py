"""The verdict, case by case. It may never say more than the certificate."""

import math
import re
from dataclasses import replace

import pytest
import torch
import torch_holdout as th
from torch_holdout.report.page import page
from torch_holdout.report.remarks import HELP
from torch_holdout.report.summary import RUNS, summarise
from torch_holdout.report.verdict import (
    headline,
    not_promised,
    overlapping,
    paragraph,
    reach,
    records_headline,
    records_not_promised,
    records_verdict,
    told,
    verdict,
)
from torch_holdout.report.wording import distance_text

from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.builders.reports import charged_records


def report_of(holdout, failure=0.05):
    holdout.status()
    (found,) = summarise(holdout._ledger, failure).holdouts
    return found


def about(found, what):
    return {finding.about: finding.text for finding in verdict(found)}.get(what, "")


def large(**changes):
    """A holdout whose certificate is worth something."""
    arguments = {
        "size": 20_000,
        "mechanism": th.Thresholdout(threshold=0.02, sigma=0.0005, guess="last"),
    }
    return make_holdout(**{**arguments, **changes})


class TestHeadline:
    def test_a_fresh_account(self):
        found = report_of(large())
        distance = distance_text(found.certificate.user_tolerance["val_acc"])
        assert headline(found) == (
            f"Nothing has been asked yet, 5 releases left; the next number, if it is released, "
            f"is within {distance} of the truth with 95 % confidence."
        )

    def test_the_next_number_is_not_the_next_release(self):
        """A release that comes after guesses may be farther off than was said before them."""
        mechanism = th.Thresholdout(threshold=0.02, sigma=0.0005, guess="train")
        holdout = large(mechanism=mechanism, statistics={"val_acc": th.ZeroOne()})
        fresh = report_of(holdout)
        for query in range(20):
            ask(holdout, 8000, f"{query}", guess=0.4)
        ask(holdout, 8000, "released", guess=0.9)
        (found,) = report_of(holdout).statistics
        assert found.releases == 1
        assert found.tolerance > fresh.statistics[0].tolerance
        assert "the next number, if it is released, is" in headline(fresh)
        assert reach(fresh.statistics[0], fresh).startswith("the next answer, if it is released,")

    def test_the_first_number_of_two_statistics(self):
        found = report_of(
            large(statistics={"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()})
        )
        loss, acc = (distance_text(t) for t in found.certificate.user_tolerance.values())
        assert (
            f"with 95 % confidence the next number, if it is released, is within {loss} (val_loss) "
            f"or {acc} (val_acc) of the truth"
        ) in headline(found)

    def test_nothing_is_said_of_a_statistic_without_a_release(self):
        """The certificate holds for the releases so far: the next one may be farther off."""
        holdout = large(statistics={"val_acc": th.ZeroOne(), "other": th.ZeroOne()}, budget=3)
        ask(holdout, 8000, "a")
        ask(holdout, 12_000, "b")
        found = report_of(holdout)
        acc, other = found.statistics
        assert [s.name for s in told(found)] == ["val_acc"]
        assert reach(acc, found).startswith(f"each release within {distance_text(acc.tolerance)}")
        assert reach(other, found) == "no release, so nothing is claimed"
        text = page(summarise(holdout._ledger))
        assert "no release, so nothing is claimed" in text
        assert text.count("&plusmn;") == 1
        holdout.release("other", sums_of(holdout, correct(100, 20_000), "other"), query="a")
        assert report_of(holdout).statistics[1].tolerance > other.tolerance

    def test_the_sentence_of_a_running_account(self):
        holdout = large()
        for query, count in enumerate((8000, 12_000, 12_010)):
            ask(holdout, count, f"{query}")
        found = report_of(holdout)
        distance = distance_text(found.certificate.user_tolerance["val_acc"])
        assert headline(found) == (
            f"3 releases left; each released number is within {distance} of the truth with 95 % "
            f"confidence; do not report guesses."
        )
        assert float(distance) >= found.certificate.user_tolerance["val_acc"]

    def test_one_release_is_singular(self):
        holdout = large(budget=2)
        ask(holdout, 8000, "a")
        assert headline(report_of(holdout)).startswith("1 release left;")

    def test_an_exhausted_account_with_late_questions(self):
        holdout = large(budget=1)
        ask(holdout, 8000, "a")
        assert headline(report_of(holdout)).startswith("No releases left of 1; each")
        with th.named_run("late"):
            ask(holdout, 9000, "b")
            ask(holdout, 9000, "c")
        found = report_of(holdout)
        assert headline(found).endswith("; do not report stale values.")
        assert "guesses" not in headline(found)
        assert about(found, "Stale values").startswith("2 questions from 1 run came after the")

    def test_several_statistics_have_their_own_units(self):
        holdout = large(statistics={"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()})
        sums = sums_of(holdout, torch.ones(20_000), "val_loss")
        holdout.release("val_loss", sums, query="a")
        found = report_of(holdout)
        loss = found.certificate.user_tolerance["val_loss"]
        # Only what has been released is spoken of.
        assert f"each released number is within {distance_text(loss)} of" in headline(found)
        ask(holdout, 8000, "a")
        found = report_of(holdout)
        loss, acc = (distance_text(t) for t in found.certificate.user_tolerance.values())
        assert (
            f"with 95 % confidence each released val_loss is within {loss} and val_acc within "
            f"{acc} of the truth"
        ) in headline(found)

    def test_many_statistics_are_not_listed(self):
        names = [f"s{i}" for i in range(5)]
        holdout = large(statistics=dict.fromkeys(names, th.ZeroOne()))
        for name in names:
            holdout.release(name, sums_of(holdout, correct(9000, 20_000), name), query="a")
        text = headline(report_of(holdout))
        assert re.search(r"each released number is off by at most [\d.]+ % of its range", text)
        assert "s3" not in text
        found = report_of(holdout)
        first, *others = found.statistics
        found = replace(found, statistics=(replace(first, share=0.9), *others))
        assert "; of 4 statistics each released number is off by at most" in headline(found)
        assert "the certificate says nothing useful about s0" in headline(found)

    @pytest.mark.parametrize(("failure", "said"), [(0.01, "99 %"), (1e-30, "more than 99.9999")])
    def test_the_confidence_is_the_asked_one(self, failure, said):
        holdout = large()
        ask(holdout, 8000, "a")
        assert said in headline(report_of(holdout, failure))

    def test_only_guesses_are_nothing_to_report(self):
        mechanism = th.Thresholdout(threshold=0.2, sigma=0.0005, guess="train")
        holdout = large(mechanism=mechanism)
        answer = ask(holdout, 8000, "a", guess=0.4)
        assert answer.kind == "guess"
        found = report_of(holdout)
        assert headline(found).endswith("nothing has been released, so there is nothing to report.")
        assert about(found, "Best val_acc") == ""
        assert "the training value" in about(found, "Guesses")
        assert any("training values" in sentence for sentence in not_promised(found))


class TestCertificate:
    def test_a_vacuous_one_says_so_and_what_would_help(self):
        holdout = make_holdout(size=10, budget=50, mechanism=th.LaplaceMechanism(epsilon=0.05))
        for query in range(20):
            ask(holdout, 5, f"{query}")
        found = report_of(holdout)
        assert found.certificate.vacuous
        assert "the certificate says nothing useful" in headline(found)
        assert "within" not in headline(found)
        assert HELP in about(found, "Certificate")

    def test_a_useless_one_below_one(self):
        holdout = make_holdout(size=30)
        for count in (1, 15, 29):
            ask(holdout, count, f"{count}")
        found = report_of(holdout)
        assert 0.5 < found.certificate.tolerance < 1
        assert "the certificate says nothing useful" in headline(found)

    def test_a_weak_one(self):
        holdout = make_holdout(size=500)
        ask(holdout, 100, "a")
        found = report_of(holdout)
        assert 0.1 < found.certificate.tolerance < 0.5
        assert "That is a weak certificate for val_acc" in about(found, "Certificate")
        assert "on a scale from 0 to 1" in about(found, "Certificate")
        assert HELP in about(found, "Certificate")

    def test_a_good_one_needs_no_word(self):
        holdout = large()
        ask(holdout, 8000, "a")
        assert about(report_of(holdout), "Certificate") == ""

    def test_one_of_two_statistics_is_useless(self):
        def mean(x):
            return x.double().mean()

        holdout = large(
            statistics={"val_acc": th.ZeroOne(), "blocky": th.Blockwise(mean, 8, 0.0, 1.0)}
        )
        ask(holdout, 8000, "a")
        holdout.release("blocky", sums_of(holdout, torch.ones(20_000), "blocky"), query="a")
        found = report_of(holdout)
        assert "; the certificate says nothing useful about blocky" in headline(found)
        assert any(
            "blocky is a mean over 8 blocks of about 2,500 examples each" in sentence
            for sentence in not_promised(found)
        )

    def test_batches_that_are_logged_are_said(self):
        logged = th.LoggedMean(0.0, 1.0, batch_size=250)
        holdout = large(statistics={"val_acc": th.ZeroOne(), "val_loss": logged})
        ask(holdout, 8000, "a")
        assert any(
            "val_loss is a mean over logged batches of 250 examples, counted as 80 units" in said
            and "privacy counts per batch" in said
            for said in not_promised(report_of(holdout))
        )


class TestBest:
    def test_is_a_release_with_its_interval(self):
        holdout = large(budget=9)
        with th.named_run("wide"):
            first = ask(holdout, 12_000, "a")
        ask(holdout, 6000, "b")
        ask(holdout, 6010, "c")
        found = report_of(holdout)
        best = found.statistics[0].best
        assert (best.position, best.kind) == (first.position, "release")
        text = about(found, "Best val_acc")
        assert f"is {best.value:.3f} (question 1, run 'wide')" in text
        assert "It was chosen as the best of 2 releases" in text
        low, high = map(float, re.search(r"between ([\d.]+) and ([\d.]+) with", text).groups())
        assert low <= best.low < best.high <= high

    def test_respects_the_mode(self):
        holdout = large(statistics={"val_acc": th.BoundedMean(0.0, 1.0, mode="min")}, budget=9)
        ask(holdout, 12_000, "a")
        lower = ask(holdout, 6000, "b")
        assert report_of(holdout).statistics[0].best.value == lower.value

    def test_one_release_is_not_lucky(self):
        holdout = large()
        ask(holdout, 8000, "a")
        assert "chosen as the best" not in about(report_of(holdout), "Best val_acc")

    def test_a_guess_that_looks_better_is_no_claim(self):
        mechanism = th.Thresholdout(threshold=0.2, sigma=0.0005, guess="train")
        holdout = large(mechanism=mechanism, budget=9)
        released = ask(holdout, 8000, "a", guess=0.9)
        guessed = ask(holdout, 8000, "b", guess=0.45)
        assert (released.kind, guessed.kind) == ("release", "guess")
        assert guessed.value > released.value
        assert report_of(holdout).statistics[0].best.value == released.value


class TestRuns:
    def asked(self, counts, **changes):
        holdout = large(budget=9, **changes)
        for name, count in counts.items():
            with th.named_run(name):
                ask(holdout, count, name)
        return report_of(holdout)

    def test_that_cannot_be_told_apart(self):
        found = self.asked({"a": 10_000, "b": 10_600, "c": 1000})
        released, near = overlapping(found.statistics[0])
        assert [run.name for run in released] == ["b", "a", "c"]
        assert [run.name for run in near] == ["a"]
        assert "cannot be told apart from 1 of the 2 others" in about(found, "Runs")

    def test_that_can(self):
        found = self.asked({"a": 1000, "b": 12_000})
        assert "can be told apart from the other with a release" in about(found, "Runs")
        first, second = (run.best for run in found.statistics[0].runs)
        assert first.low > second.high

    def test_that_can_where_lower_is_better(self):
        lower = {"val_acc": th.BoundedMean(0.0, 1.0, mode="min")}
        found = self.asked({"a": 12_000, "b": 1000}, statistics=lower)
        assert found.statistics[0].runs[0].name == "b"
        assert "can be told apart from the other with a release" in about(found, "Runs")

    def test_twin_with_touching_intervals_is_not_told_apart(self):
        found = self.asked({"a": 1000, "b": 12_000}).statistics[0]
        first, second = found.runs
        touching = replace(second, best=replace(second.best, high=first.best.low))
        assert overlapping(replace(found, runs=(first, touching)))[1] == [touching]

    def test_those_that_are_not_listed_are_not_spoken_for(self):
        """They are worse but came later: their intervals are wider, and may reach the best."""
        holdout = large(
            size=8000, mechanism=th.LaplaceMechanism(epsilon=1.0), budget=200, seed=1, grid=512
        )
        counts = [7200, *[5500] * RUNS, *[5470] * 95]
        for number, count in enumerate(counts):
            with th.named_run(f"run {number}"):
                ask(holdout, count, f"{number}")
        found = report_of(holdout)
        (statistic,) = found.statistics
        first, *_, last = holdout.intervals()
        assert statistic.runs_released == len(counts)
        assert first.low <= last.high
        compared = f"the {RUNS - 1} next best of {len(counts) - 1} others with a release"
        assert f"can be told apart from {compared}" in about(found, "Runs")

    def test_a_single_run_is_compared_with_nothing(self):
        assert about(self.asked({"a": 1000}), "Runs") == ""


class TestGuesses:
    def test_of_a_ladder_are_one_sided(self):
        holdout = large(mechanism=th.Ladder(step=0.02))
        ask(holdout, 12_000, "a")
        assert ask(holdout, 2000, "b").kind == "guess"
        found = report_of(holdout)
        assert "a guess within" not in reach(found.statistics[0], found)
        text = about(found, "Guesses")
        assert "not much better; it may be far worse" in text
        assert text.startswith("1 of 2 answers is a guess: the best release again")

    def test_of_the_caller(self):
        holdout = large(mechanism=th.SparseVector(threshold=0.2, sigma=0.0005))
        ask(holdout, 8000, "a", guess=0.4)
        found = report_of(holdout)
        assert "the caller's own value" in about(found, "Guesses")
        distance = distance_text(found.certificate.user_guess_tolerance["val_acc"])
        assert reach(found.statistics[0], found).endswith(f", a guess within {distance}")

    def test_of_estimation_sets_are_training_values(self):
        mechanism = th.EffectiveRounds(threshold=0.2, sigma=0.0005, rounds=3)
        holdout = large(mechanism=mechanism, budget=mechanism.estimation_sets)
        ask(holdout, 8000, "a", guess=0.4)
        found = report_of(holdout)
        assert "the training value" in about(found, "Guesses")
        assert any("training values" in sentence for sentence in not_promised(found))

    def test_a_registered_first_guess_is_no_release(self):
        mechanism = th.Thresholdout(
            threshold=0.2, sigma=0.0005, guess="last", initial={"val_acc": 0.4}
        )
        holdout = large(mechanism=mechanism)
        assert ask(holdout, 8000, "a").kind == "guess"
        text = about(report_of(holdout), "Guesses")
        assert "the last release or the registered first guess again" in text

    def test_a_registered_baseline_is_no_release(self):
        holdout = large(mechanism=th.Ladder(step=0.02, baseline={"val_acc": 0.9}))
        assert ask(holdout, 8000, "a").kind == "guess"
        text = about(report_of(holdout), "Guesses")
        assert "the best release or the registered baseline again" in text

    def test_none_are_not_spoken_of(self):
        holdout = large(mechanism=th.LaplaceMechanism(epsilon=0.1))
        ask(holdout, 8000, "a")
        found = report_of(holdout)
        assert about(found, "Guesses") == ""
        assert "guess" not in headline(found)


class TestPrivacy:
    def test_a_finite_cap(self):
        text = about(report_of(large(delta=1e-6)), "Privacy")
        assert "at delta 1e-6, replacing one holdout example" in text
        assert "protects nobody" not in text

    def test_a_large_epsilon(self):
        text = about(report_of(make_holdout(budget=50)), "Privacy")
        assert "An epsilon above 10 protects nobody's record." in text

    def test_no_noise_is_no_privacy(self):
        found = report_of(large(mechanism=th.Ladder(step=0.02)))
        assert math.isinf(found.status.epsilon)
        assert about(found, "Privacy").startswith("There is no privacy: answers carry no noise")

    def test_gaussian_noise_without_a_delta(self):
        found = report_of(large(mechanism=th.GaussianMechanism(sigma=0.01)))
        assert "without a delta: no finite epsilon" in about(found, "Privacy")

    def test_seeded_noise(self):
        found = report_of(large(seed=1))
        assert "the privacy figures do not apply" in about(found, "Privacy")
        assert "epsilon" not in about(found, "Privacy")
        assert any("from a seed" in sentence for sentence in not_promised(found))


def test_a_missing_fingerprint_is_told():
    data = torch.arange(20_000.0)
    known = report_of(large(fingerprint=th.fingerprint(torch.utils.data.TensorDataset(data))))
    assert not any("fingerprint" in sentence for sentence in not_promised(known))
    assert any("fingerprint" in sentence for sentence in not_promised(report_of(large())))


def test_nothing_is_called_safe():
    holdout = large(budget=2)
    for query, count in enumerate((8000, 12_000, 12_010, 100)):
        ask(holdout, count, f"{query}")
    found = report_of(holdout)
    said = [headline(found), *not_promised(found), *(f.text for f in verdict(found))]
    assert not re.search(r"safe|secure|anonym|guarantee|certain\b", " ".join(said), re.IGNORECASE)


class TestRecords:
    def test_what_is_charged_and_promised(self):
        records = charged_records("memory://")
        (found,) = summarise(records._ledger).records
        share = found.status.share_spent
        assert records_headline(found) == (
            f"99 questions answered, {100 * share:.1f} % of the budget charged; all answers "
            f"together cost at most epsilon 2 at delta 1e-5, adding or removing one user."
        )
        assert sum(use.share for use in found.uses) == pytest.approx(share)
        assert [use.purpose for use in found.uses] == ["prediction", "validation"]
        assert "holdout digits-val" in found.uses[1].mechanism
        assert "not an epsilon" in records_verdict(found)[0].text
        assert any("weights" in sentence for sentence in records_not_promised(found))

    def test_seeded_noise_promises_nothing(self):
        (found,) = summarise(charged_records("memory://")._ledger).records
        seeded = replace(found, status=replace(found.status, seeded=True))
        assert "epsilon" not in records_headline(seeded)
        assert any("seed" in sentence for sentence in records_not_promised(seeded))

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"epsilon": 10.1}, "An epsilon above 10 protects nobody's record."),
            ({"share_spent": 1.0}, "The budget is gone: nothing more is answered."),
        ],
    )
    def test_a_large_epsilon_and_a_budget_that_is_gone(self, change, said):
        (found,) = summarise(charged_records("memory://")._ledger).records
        changed = replace(found, status=replace(found.status, **change))
        assert said not in records_verdict(found)[0].text
        assert said in records_verdict(changed)[0].text

    def test_a_missing_fingerprint_is_told(self):
        (found,) = summarise(charged_records("memory://")._ledger).records
        known = replace(found, status=replace(found.status, renaming_detected=True))
        assert any("fingerprint" in sentence for sentence in records_not_promised(found))
        assert not any("fingerprint" in sentence for sentence in records_not_promised(known))


def test_the_paragraph_names_every_account():
    holdout = make_holdout()
    holdout.status()
    assert paragraph(summarise(holdout._ledger)).startswith("'val': Nothing has been asked yet")
    records = charged_records("memory://")
    assert paragraph(summarise(records._ledger)).startswith("records 'patients-2026': 99 ques")
    from torch_holdout.ledger import Ledger

    assert paragraph(summarise(Ledger("memory://"))) == "The ledger has no account yet."
