"""Sealed runs on the page, in JSON, CSV and status: decisions before closing, values after it."""

import csv
import io
import json
import math
import re
import sqlite3
from dataclasses import asdict

import pytest
import torch_holdout as th
from markupsafe import escape
from torch_holdout._shared.text import up
from torch_holdout.cli import app
from torch_holdout.ledger import Ledger
from torch_holdout.report import content, page, paragraph, rows, summarise
from torch_holdout.report import sealed as module
from torch_holdout.report.closing_words import before_closing
from torch_holdout.report.curves import curve_interval, curves_chart
from torch_holdout.report.summary import reading_of
from torch_holdout.report.verdict import headline, not_promised, verdict
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import HOSTILE, Retold, several_runs
from support.builders.sealed import (
    curve,
    evaluate,
    make_sealed,
    months_of_runs,
    passes,
    play,
    sealed_runs,
)
from support.builders.sealed_logs import events_of


def call(*arguments):
    found = CliRunner().invoke(app, list(map(str, arguments)))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def about(holdout, heading):
    return next((remark.text for remark in verdict(holdout) if remark.about == heading), None)


def plain(text):
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory):
    """The same runs twice: open, and closed."""
    folder = tmp_path_factory.mktemp("sealed")
    found = {}
    for name in ("open", "closed"):
        holdout, _ = sealed_runs(f"sqlite:///{folder}/{name}.db")
        found[name] = folder / f"{name}.db", holdout.close() if name == "closed" else None
    return found


@pytest.fixture
def opened(ledgers):
    return ledgers["open"][0]


@pytest.fixture
def closed(ledgers):
    return ledgers["closed"]


def report_of(path):
    (holdout,) = summarise(Ledger(f"sqlite:///{path}", reads_only=True)).holdouts
    return holdout


class TestOpen:
    def test_says_the_decisions_and_what_they_cost(self, opened):
        holdout = report_of(opened)
        assert headline(holdout).startswith("2 runs left; 29 evaluations in 3 runs, sealed;")
        text = plain(page(summarise(Ledger(f"sqlite:///{opened}"))))
        assert re.search(
            r"1 baseline .* stopped by patience at pass 12, best evaluation 9 12", text
        )
        assert re.search(r"3 wide \+ dropout .* open last .* not stopped in 5 passes 5", text)
        assert "Runs left 2 of 5" in text
        assert "Decisions have cost" in about(holdout, "Decisions")
        assert "by 2 runs that patience has stopped" in about(holdout, "Decisions")
        assert "the silence of 1 run still open" in about(holdout, "Decisions")
        assert "this page has read none" in about(holdout, "Values")
        assert holdout.closing is None
        assert holdout.closed == ()
        for remark in verdict(holdout):
            assert remark.text in text

    def test_what_the_next_evaluation_pays_is_what_it_then_pays(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout, run = sealed_runs(url)
        prices = report_of(tmp_path / "holdout.db").prices
        (of_open,) = prices.open_runs
        assert (of_open.run, of_open.evaluation) == (3, 6)
        evaluate(run, holdout, 5, 0.24)
        with sqlite3.connect(tmp_path / "holdout.db") as connection:
            last = "SELECT nats FROM th_run_events ORDER BY position DESC LIMIT 1"
            (paid,) = connection.execute(last).fetchone()
        connection.close()
        assert paid == of_open.pays
        # A new run also pays for the silence of the open one.
        assert prices.said - of_open.pays == pytest.approx(holdout.status().nats["open"], rel=0.5)
        # A distance of the certificate, which is Hoeffding's: closing is narrower.
        value = holdout.close().curve("val_loss", 3)[5]
        assert value.high - value.low < 2 * of_open.worth.by_statistic["val_loss"]

    def test_no_next_evaluation_where_none_can_come(self):
        holdout = make_sealed("memory://no-next", budget=1)
        play(holdout, "alone", 0.3)
        (report,) = summarise(Ledger("memory://no-next")).holdouts
        assert (report.prices.next, report.prices.choices) == (None, {})
        assert headline(report).startswith("No runs left of 1;")
        assert about(report, "Next") is None

    def test_a_new_account_says_what_a_first_run_will_be_worth(self):
        holdout = make_sealed("memory://new")  # a memory ledger lives as long as its handles
        holdout.status()
        (report,) = summarise(Ledger("memory://new")).holdouts
        assert headline(report).startswith("No run has been begun yet, 5 runs left; with 95 %")
        assert "each evaluation of a first run" in headline(report)
        text = plain(page(summarise(Ledger("memory://new"))))
        assert "No run has been begun yet." in text
        assert "no decision yet" in text

    def test_no_value_and_no_secret_is_in_anything(self, opened):
        """What the ledger keeps, and what the passes had, appear nowhere."""
        with sqlite3.connect(opened) as connection:
            secrets = [
                str(cell)
                for row in connection.execute("SELECT total, squares FROM th_secret_sums")
                for cell in row
            ]
            secrets += [
                row[0].strip() for row in connection.execute("SELECT state FROM th_secret_runs")
            ]
            for column in ("query", "chain"):
                chosen = f"SELECT {column} FROM th_run_events WHERE {column} IS NOT NULL"
                secrets += [row[0] for row in connection.execute(chosen)]
            secrets += [row[0] for row in connection.execute("SELECT account FROM th_holdouts")]
        connection.close()
        means = [curve(epoch, floor) for floor in (0.42, 0.33, 0.24) for epoch in range(12)]
        secrets += [f"{value:.4f}" for each in means for value in each.values()]
        shown = [page(summarise(Ledger(f"sqlite:///{opened}")))]
        for command in ("status", "prices"):
            shown += [call(command, opened, *options).stdout for options in ((), ("--json",))]
        shown += [call("report", opened, option).stdout for option in ("--json", "--csv")]
        shown.append(call("verify", opened, "--json").stdout)
        assert len(secrets) > 150
        assert not [secret for secret in secrets for text in shown if secret in text]

    def test_a_table_has_no_row_of_it(self, opened):
        assert list(rows(Ledger(f"sqlite:///{opened}"))) == [
            "holdout,position,asked_at,run,statistic,kind,value,low,high,run_number,evaluation"
        ]

    def test_the_limits_are_those_of_runs(self, opened):
        limits = " ".join(not_promised(report_of(opened)))
        assert "loaded by hand before closing" in limits
        assert "after the budget was gone" not in limits

    def test_the_status_has_the_runs(self, opened):
        text = call("status", opened).stdout
        assert "2 of 5 runs left" in text
        assert re.search(r"8\.9\d nats said \(stopped 8\.9\d, open 0\.02\d+\)", text)
        assert "run 1 (baseline): stopped by patience at pass 12, 12 evaluations, best 9" in text
        assert "at closing the value of every evaluation so far is within" in text
        (found,) = json.loads(call("status", opened, "--json").stdout)["holdouts"]
        assert (found["unit"], found["closed"], found["closing"]) == ("run", False, None)
        assert [run["state"] for run in found["runs"]] == ["stopped", "stopped", "open"]
        assert set(found["nats"]) == {"stopped", "open"}


class TestMonths:
    """Sixty runs over weeks, and one."""

    @pytest.fixture(scope="class")
    @classmethod
    def months(cls):
        holdout = months_of_runs("memory://months")
        return holdout, summarise(Retold("memory://months"))

    def test_runs_are_listed_with_their_times_the_latest_first(self, months):
        _, report = months
        runs = report.holdouts[0].runs
        assert [run.status.number for run in runs] == list(range(60, 0, -1))
        times = [(run.begun_at, run.last_at, run.ended_at) for run in runs]
        assert times == sorted(times, reverse=True)
        text = plain(page(report))
        assert "60 runs, 3 Mar to 30 Apr 2026, the latest first." in text
        assert "60 width 448, lr 0.003 30 Apr 2026, 03:00 30 Apr 2026, 10:03 nothing 2 0" in text
        assert "48 earlier runs" in text

    def test_the_ledger_has_the_times(self):
        holdout, _ = sealed_runs("memory://times")
        times = holdout._ledger.run_times(holdout._attached())
        events = events_of(holdout)
        for number in (1, 2, 3):
            own = {event["kind"]: event["asked_at"] for event in events if event["run"] == number}
            found = times[number]
            assert (found.begun_at, found.last_at) == (own["begin"], own["evaluate"])
            assert found.ended_at == own.get("stop")
        assert set(times) == {1, 2, 3}

    def test_what_was_said_on_request(self, months):
        holdout, report = months
        text = plain(page(report))
        bits = [run.record for run in holdout.status().runs]
        assert {True, False, None} == set(bits)
        for run in report.holdouts[0].runs[:-1]:  # the first one was a record for certain
            said = {True: "a record", False: "no record"}.get(run.status.record)
            assert said is None or run.said.endswith(said)
            assert (run.nats > run.status.nats) == (said is not None)
        assert report.holdouts[0].runs[-1].said == "nothing"
        whole = math.fsum(run.nats for run in report.holdouts[0].runs)
        assert whole + math.log(60) == pytest.approx(holdout.prices().said)
        assert re.search(r"the holdout has named run \d+ of 60 \(4\.1 nats\)\.", text)
        assert "by record bits" in about(report.holdouts[0], "Decisions")
        assert "by naming the best run" in about(report.holdouts[0], "Decisions")
        assert "by 7 runs ended by hand" in about(report.holdouts[0], "Decisions")

    def test_every_price_is_on_the_page(self, months):
        holdout, report = months
        prices = report.holdouts[0].prices
        assert prices == holdout.prices()
        text = plain(page(report)).replace("&#39;", "'")
        for price in prices.choices.values():
            last = price.last.by_statistic["val_acc"]
            shown = f"{price.words} {price.nats_text} val_loss"
            assert shown in text
            ratio = ("at most " if price.is_bound else "") + up(price.last.ratio)
            assert f"val_acc &plusmn;{up(last)} {ratio} times a fresh query" in text
        assert "Worth of the last of 20 runs, all like it" in text
        (found,) = content(report)["holdouts"]
        assert found["prices"]["choices"]["winner"]["nats"] == prices.choices["winner"].nats

    def test_one_run(self):
        holdout = months_of_runs("memory://month", runs=1)
        text = plain(page(summarise(Retold("memory://month"))))
        assert "1 run, 3 Mar 2026, 08:30 to 15:33 UTC. A run says" in text
        assert "earlier run" not in text
        assert "has named run 1 of 1 (0 nats)" in text
        assert holdout.prices().choices["record"].nats > 0


class TestClosed:
    def test_json_has_every_value_with_its_interval(self, closed):
        path, closing = closed
        (found,) = json.loads(call("report", path, "--json").stdout)["holdouts"]
        as_json = json.loads(json.dumps([asdict(value) for value in closing.values]))
        assert found["closing"]["values"] == as_json
        assert [run["name"] for run in found["closing"]["runs"]] == [
            *("baseline", "wide", "wide + dropout")
        ]
        (state,) = json.loads(call("status", path, "--json").stdout)["holdouts"]
        assert state["closing"] == found["closing"]

    def test_csv_has_every_value_with_its_interval(self, closed):
        path, closing = closed
        found = list(csv.DictReader(io.StringIO(call("report", path, "--csv").stdout)))
        assert len(found) == len(closing.values) == 58
        names = {run.number: run.name for run in closing.runs}
        for row, value in zip(found, closing.values, strict=True):
            assert (row["kind"], row["statistic"]) == ("exact", value.statistic)
            assert (int(row["run_number"]), int(row["evaluation"])) == (value.run, value.evaluation)
            assert row["run"] == names[value.run]
            numbers = [float(row[name]) for name in ("value", "low", "high")]
            assert numbers == [value.value, value.low, value.high]
            assert (row["position"], row["asked_at"]) == ("", "")

    def test_the_winner_and_who_cannot_be_told_apart(self, closed):
        path, closing = closed
        holdout = report_of(path)
        best, near = closing.best, len(closing.not_told_apart()) - 1
        assert f"evaluation {best.evaluation})" in headline(holdout)
        loss, acc = holdout.closed
        assert loss.curves[0].best == best
        assert (loss.near, loss.others) == (near, 2)
        assert acc.near == len(closing.not_told_apart("val_acc")) - 1
        text = plain(page(summarise(Ledger(f"sqlite:///{path}"))))
        assert headline(holdout) in text.replace("&#39;", "'")
        for heading in ("Closed", "Best val_loss", "Best val_acc", "Runs told apart", "Decisions"):
            assert about(holdout, heading)
        assert re.search(r"3 wide \+ dropout .{,40} never last evaluated", text)
        assert text.count("the best ") >= 2

    def test_the_status_shows_the_closing_instead_of_a_certificate(self, closed):
        path, closing = closed
        text = call("status", path).stdout
        assert text.rstrip().endswith(str(closing))
        assert text.splitlines()[0].endswith("2 of 5 runs left, closed")
        assert "at closing the value" not in text

    def test_another_failure_is_another_interval(self, closed):
        path, closing = closed
        rarely = json.loads(call("report", path, "--json", "--failure", "1e-6").stdout)
        first, *_ = rarely["holdouts"][0]["closing"]["values"]
        assert first["value"] == closing.values[0].value
        assert first["low"] < closing.values[0].low

    def test_long_curves_are_thinned_and_whole_in_json(self, monkeypatch):
        monkeypatch.setattr(module, "POINTS", 6)
        monkeypatch.setattr(module, "CURVES", 2)
        holdout, _ = sealed_runs("memory://long")
        closing = holdout.close()
        report = summarise(Ledger("memory://long"))
        loss, _ = report.holdouts[0].closed
        assert len(loss.curves) == 2
        assert loss.curves_left_out == 1
        for own in loss.curves:
            assert own.best in own.values
            assert len(own.values) + own.left_out == len(closing.curve("val_loss", own.run))
        assert len(content(report)["holdouts"][0]["closing"]["values"]) == len(closing.values)
        text = plain(page(report))
        assert "more values left out of the drawing" in text
        assert "1 worse run left out here" in text

    def test_many_runs_are_folded(self):
        holdout = make_sealed(
            "memory://many", budget=120, statistics={"val_acc": th.ZeroOne()},
            mechanism=th.Sealed(evaluations=1),
        )  # fmt: skip
        for number in range(104):
            with holdout.run(name=f"trial {number}") as run:
                run.evaluate(passes(holdout, val_acc=0.5 + number / 400), query=f"{number}")
        text = plain(page(summarise(Ledger("memory://many"))))
        assert "88 earlier runs" in text
        assert "4 earlier runs left out here" in text
        holdout.close()
        text = plain(page(summarise(Ledger("memory://many"))))
        assert "96 worse runs left out of the drawing" in text
        assert "4 worse runs left out here" in text
        assert "cannot be told apart from" in text

    def test_noise_that_protects(self):
        noisy = {"mechanism": th.Sealed(evaluations=40, epsilon=1.0)}
        holdout, _ = sealed_runs("memory://noisy", **noisy)
        (report,) = summarise(Ledger("memory://noisy")).holdouts
        assert "the hidden value of each of them is within" in headline(report)
        assert "closing erases the sums" in about(report, "Values")
        holdout.close()
        (report,) = summarise(Ledger("memory://noisy")).holdouts
        assert "no exact value was published" in headline(report)
        assert report.closed == ()
        assert "at most epsilon 5" in about(report, "Privacy")
        assert "<figure>" not in page(summarise(Ledger("memory://noisy")))
        shown, _ = sealed_runs("memory://shown", **noisy)
        shown.close(exact=True)
        (report,) = summarise(Ledger("memory://shown")).holdouts
        assert "infinite for good" in about(report, "Privacy")
        assert report.status.epsilon == math.inf
        assert len(report.closing.values) == 2 * report.status.queries > 0


class TestLive:
    def test_closed_live_accounts_have_their_exact_values(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout = several_runs(url, budget=12, epochs=4, mechanism=th.Ladder(step=0.01), seed=None)
        closing = holdout.close()
        (report,) = summarise(Ledger(url)).holdouts
        assert headline(report).startswith("Closed, so nothing more can be asked; ")
        assert "behind an answer" in about(report, "Exact val_loss")
        loss, _ = report.closed
        assert {own.name for own in loss.curves} == {
            *("baseline", "wide", "wide + dropout", "cosine schedule")
        }
        assert "18 values of the holdout itself are public now" in about(report, "Closed")
        found = list(csv.DictReader(io.StringIO("\n".join(rows(Ledger(url))))))
        exact = [row for row in found if row["kind"] == "exact"]
        assert len(exact) == len(closing.values) == len(found) / 2
        assert [int(row["position"]) for row in exact] == [v.evaluation for v in closing.values]
        assert {(row["run_number"], row["evaluation"]) for row in found} == {("", "")}
        assert {row["run"] for row in exact} == {own.name for own in loss.curves}
        text = plain(page(summarise(Ledger(url))))
        assert "val_loss , closed" in text
        assert "question of the holdout" in text

    def test_a_noisy_one_has_what_it_published(self):
        holdout = make_holdout("memory://noisy-live", seed=1)
        ask(holdout, 30, "a")
        holdout.close()
        (report,) = summarise(Ledger("memory://noisy-live")).holdouts
        assert report.closed == ()
        assert "no exact value was published" in about(report, "Closed")
        assert len(list(rows(Ledger("memory://noisy-live")))) == 2


class TestReading:
    @pytest.mark.parametrize("which", ["open", "closed"])
    @pytest.mark.parametrize("mode", [0o600, 0o400])
    def test_nothing_is_written(self, ledgers, tmp_path, which, mode):
        path = tmp_path / "holdout.db"
        path.write_bytes(ledgers[which][0].read_bytes())
        path.chmod(mode)
        before, stamp = path.read_bytes(), path.stat().st_mtime_ns
        for name, *options in (
            ("status",), ("report", "-o", tmp_path / "page.html"), ("report", "--json"),
            ("report", "--csv"), ("verify",),
        ):  # fmt: skip
            found = call(name, path, *options)
            assert (found.exit_code, found.stderr) == (0, "")
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, stamp)

    def test_on_postgresql(self, postgres, tmp_path):
        url = postgres.new_url()
        holdout, _ = sealed_runs(url)
        assert "2 of 5 runs left" in call("status", url).stdout
        assert call("report", url, "-o", tmp_path / "page.html").exit_code == 0
        asked = call("close", url, "--yes")
        assert (asked.exit_code, asked.stdout.rstrip()) == (0, str(holdout.close()))
        assert len(call("report", url, "--csv").stdout.splitlines()) == 59
        assert call("report", url, "-o", tmp_path / "page.html").exit_code == 0
        assert call("verify", url).exit_code == 0


def hostile(url, names):
    """Sealed runs, statistics and a holdout whose names try to break the page; closed."""
    holdout = make_sealed(url, name=names[0], statistics={own: th.ZeroOne() for own in names})
    for number, name in enumerate(names[:3]):
        with holdout.run(stop=th.Patience(names[1], 2), name=name) as run:
            for epoch in range(3 - number):
                means = dict.fromkeys(names, 0.5 + epoch / 10)
                run.evaluate(passes(holdout, **means), query=f"{number} {epoch}")
    return holdout


@pytest.mark.parametrize("close", [False, True])
class TestHostileNames:
    def test_stay_text(self, close):
        texts = {}
        for label, names in (("hostile", HOSTILE), ("plain", "abcdefg")):
            url = f"memory://names-{label}-{close}"
            holdout = hostile(url, names)
            if close:
                holdout.close()
            texts[label] = page(summarise(Ledger(url)))
        brought, plain_tags = (set(re.findall(r"<([a-zA-Z]+)", text)) for text in texts.values())
        assert brought == plain_tags
        for name in HOSTILE[:4]:
            assert str(escape(name)) in texts["hostile"]
        unescaped = texts["hostile"].replace(str(escape(HOSTILE[0])), HOSTILE[0])
        assert "script" in set(re.findall(r"<([a-zA-Z]+)", unescaped)) - plain_tags

    def test_are_no_formulas(self, close):
        url = f"memory://formulas-{close}"
        holdout = hostile(url, (HOSTILE[3], *HOSTILE[:3], *HOSTILE[4:]))
        if close:
            holdout.close()
        found = list(csv.DictReader(io.StringIO("\n".join(rows(Ledger(url))))))
        assert bool(found) == close
        assert not any(cell.startswith("=") for row in found for cell in row.values())

    def test_in_sentences(self, close):
        url = f"memory://sentences-{close}"
        holdout = hostile(url, HOSTILE)
        if close:
            holdout.close()
        ledger = Ledger(url)
        (account,) = ledger.accounts().values()
        text = paragraph(summarise(ledger))
        text += before_closing(reading_of(ledger, account), exact=None, failure=0.05)
        assert all(character.isprintable() or character in "\n\u2068\u2069" for character in text)


class TestFigures:
    def test_a_band_holds_every_interval_that_is_drawn(self, closed):
        loss, _ = report_of(closed[0]).closed
        drawn = curves_chart(loss)
        assert drawn.count("<polygon") == len(loss.curves)
        assert drawn.count("<circle") == len(loss.curves)
        first = re.search(r'<polygon points="([^"]*)" class="area"', drawn).group(1).split()
        assert len(first) == 2 * len(loss.curves[0].values)
        heights = [float(place.split(",")[1]) for place in first]
        half = len(heights) // 2
        above, below = heights[:half], heights[half:][::-1]
        assert all(top <= bottom for top, bottom in zip(above, below, strict=True))

    def test_one_value_is_a_bar(self):
        vault = make_sealed(
            "memory://vault", mechanism=th.Sealed(evaluations=1), budget=1,
            statistics={"val_acc": th.ZeroOne()},
        )  # fmt: skip
        with vault.run() as run:
            run.evaluate(passes(vault, val_acc=0.75), query="final")
        vault.close()
        (statistic,) = summarise(Ledger("memory://vault")).holdouts[0].closed
        assert "<polygon" not in curves_chart(statistic)
        assert 'class="band"' in curves_chart(statistic)
        assert "the truth lies in 0." in curve_interval(statistic.curves[0], statistic)
        assert "Closed; the best val_acc of 1 evaluation in 1 run is 0.75" in paragraph(
            summarise(Ledger("memory://vault"))
        )
