"""Every edit of sealed runs, symbols, their prices, secrets and a closing is found, and named."""

import shutil
import sqlite3

import pytest
import torch_holdout as th
from torch_holdout.cli import app
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import verify
from typer.testing import CliRunner

from support.builders.holdouts import make_holdout, sums_of
from support.builders.sealed import make_sealed, play, sealed_runs


def fill(url, close=False):
    """Two stopped runs, an open one, one given up for free; another account that nobody edits.

    Before the last one a record bit and the winner were asked for, and after it once more.
    """
    holdout, _ = sealed_runs(url)
    holdout.run(resume=holdout.status().runs[1].id).record()
    holdout.winner()
    given_up = holdout.run(stop=th.Patience("val_loss", 3))
    given_up.evaluate({"val_acc": sums_of(holdout, [True] * 400)}, query="a bug in epoch 1")
    given_up.give_up()
    holdout.winner("val_acc")
    play(make_sealed(url, name="other"), "alone", 0.3)
    if close:
        holdout.close()
    return url


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    for name in ("open", "closed"):
        fill(f"sqlite:///{folder}/{name}.db", close=name == "closed")
    return folder


@pytest.fixture
def path(originals, tmp_path):
    def copied(name):
        shutil.copy(originals / f"{name}.db", tmp_path / "holdout.db")
        return tmp_path / "holdout.db"

    return copied


def edit(path, statement):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    assert connection.execute(statement).rowcount > 0, "the edit changes nothing"
    connection.commit()
    connection.close()


def found(url):
    return [(finding.account, finding.problem) for finding in verify(str(url)).findings]


def event(change, position):
    return f"UPDATE th_run_events SET {change} WHERE holdout_id = 1 AND position = {position}"


def run(change, number):
    return f"UPDATE th_sealed_runs SET {change} WHERE holdout_id = 1 AND run = {number}"


def end(change):
    return f"UPDATE th_run_ends SET {change} WHERE holdout_id = 1"


def of(table, where):
    return f"DELETE FROM {table} WHERE holdout_id = 1 AND {where}"


def told(old, new, position):
    return event(f"detail = replace(detail, '{old}', '{new}')", position)


STOP = "(SELECT min(position) FROM th_run_events WHERE holdout_id = 1 AND kind = 'stop')"
LAST = "(SELECT max(position) FROM th_run_events WHERE holdout_id = 1)"
RECORD = "(SELECT min(position) FROM th_run_events WHERE holdout_id = 1 AND kind = 'record')"
WINNER = "(SELECT min(position) FROM th_run_events WHERE holdout_id = 1 AND kind = 'winner')"
LATE = "(SELECT max(position) FROM th_run_events WHERE holdout_id = 1 AND kind = 'evaluate')"

OPEN = {
    "price of a stop": (event("nats = 0.0", STOP), "price is not what the registered law gives"),
    "price left out": (event("nats = NULL", STOP), "price is not what the registered law gives"),
    "what others had said": (event("nats = 0.0", LATE), "what others had said is not"),
    "named evaluation": (event("evaluation = 1", STOP), "do not stand as their events say"),
    "query": (event("query = 'x'", 2), "edited"),
    "time": (event("asked_at = ''", 2), "edited"),
    "step": (event("step = 'epoch 7'", 2), "edited"),
    "rule": (event("detail = replace(detail, '3', '9')", 1), "edited"),
    "pass": (event("detail = replace(detail, '\"pass\":2', '\"pass\":5')", 3), "passes are not"),
    "number": (event("evaluation = 9", 3), "evaluations are not numbered in order"),
    "kind": (event("kind = 'gift'", 2), "unknown kind"),
    "stop taken back": (event("kind = 'end'", STOP), "price is not what the registered law gives"),
    "run of an event": (event("run = 3", 2), "its run is not open"),
    "event deleted": (of("th_run_events", "position = 3"), "deleted"),
    "first deleted": (of("th_run_events", "position = 1"), "deleted"),
    "last deleted": (of("th_run_events", f"position = {LAST}"), "ends with"),
    "number of events": (end("events = 3"), "number of events"),
    "last link": (end("chain = 'x'"), "ends with"),
    "no end": (of("th_run_ends", "1"), "no event that ends their chain"),
    "closed by hand": (end("closed_at = 'now'"), "whether it is closed"),
    "state": (run("state = 'open'", 1), "do not stand as their events say"),
    "best": (run("best = 1", 1), "do not stand as their events say"),
    "best of an open run": (run("best = 1", 3), "do not stand as their events say"),
    "passes": (run("passes = 1", 3), "do not stand as their events say"),
    "evaluations": (run("evaluations = 1", 3), "do not stand as their events say"),
    "share taken back": (run("share = NULL", 1), "do not stand as their events say"),
    "share of a free run": (run("share = 5", 4), "do not stand as their events say"),
    "stored rule": (run("rule = replace(rule, '3', '9')", 3), "do not stand as their events say"),
    "run deleted": (of("th_sealed_runs", "run = 2"), "do not stand as their events say"),
    "sums lost": (of("th_secret_sums", "run = 1"), "secret sums are not those"),
    "one sum lost": (
        of("th_secret_sums", "run = 3 AND evaluation = 2 AND statistic = 'val_acc'"),
        "secret sums are not those",
    ),
    "sum of no evaluation": (
        "INSERT INTO th_secret_sums SELECT holdout_id, 3, 17, statistic, total, squares "
        "FROM th_secret_sums WHERE holdout_id = 1 AND run = 3 AND evaluation = 1",
        "secret sums are not those",
    ),
    "sums of a run given up": (
        "INSERT INTO th_secret_sums SELECT holdout_id, 4, 1, statistic, total, squares "
        "FROM th_secret_sums WHERE holdout_id = 1 AND run = 3 AND evaluation = 1",
        "secret sums are not those",
    ),
    "reference lost": (of("th_secret_runs", "run = 3"), "lost its secret state"),
    "reference of a stopped run": (
        "INSERT INTO th_secret_runs SELECT holdout_id, 1, state FROM th_secret_runs "
        "WHERE holdout_id = 1 AND run = 3",
        "an ended one has kept it",
    ),
    "values published by hand": (
        "INSERT INTO th_closed_sums SELECT * FROM th_secret_sums WHERE holdout_id = 1 AND run = 1",
        "not closed",
    ),
    "type": (event("detail = x'00'", 2), "unreadable: a value has the wrong type"),
    "price of a bit": (event("nats = 0.0", RECORD), "price is not what the registered law gives"),
    "price of a winner": (event("nats = 0.1", WINNER), "price is not what the registered law"),
    "bit": (told('"value":1', '"value":0', RECORD), "what was said before is not"),
    "what a bit compared": (told('"choices":2', '"choices":9', RECORD), "that had ended"),
    "a certain bit": (told('"choices":2', '"choices":1', RECORD), "that had ended"),
    "bits before": (told('"tally":[1,0', '"tally":[3,0', RECORD), "what was said before is not"),
    "sum of prices": (told('"said":', '"said":1', WINNER), "price is not what the registered law"),
    "another winner": (told('"value":2', '"value":1', WINNER), "that had ended"),
    "winner of another statistic": (told("val_loss", "val_x", WINNER), "that had ended"),
    "bit of an open run": (told('"run":2', '"run":3', RECORD), "not about an ended run"),
    "bit of no run": (told('"run":2', '"run":9', RECORD), "not about an ended run"),
    "symbol of a run": (event("run = 2", RECORD), "not about an ended run"),
    "symbol of another kind": (event("kind = 'challenge'", RECORD), "edited"),
    "symbol deleted": (of("th_run_events", f"position = {RECORD}"), "deleted"),
    "symbol without its words": (event("detail = '{}'", RECORD), "unreadable"),
}

PUBLISHED = "holdout_id = 1 AND run = 1 AND evaluation = 2 AND statistic = 'val_acc'"
CLOSED = {
    "value": (f"UPDATE th_closed_sums SET total = total + 65536 WHERE {PUBLISHED}", "were edited"),
    "squares": (f"UPDATE th_closed_sums SET squares = '1' WHERE {PUBLISHED}", "were edited"),
    "value deleted": (f"DELETE FROM th_closed_sums WHERE {PUBLISHED}", "published sums are not"),
    "value added": (
        "INSERT INTO th_closed_sums SELECT holdout_id, 1, 39, statistic, total, squares "
        f"FROM th_closed_sums WHERE {PUBLISHED}",
        "published sums are not",
    ),
    "secret kept": (
        f"INSERT INTO th_secret_sums SELECT * FROM th_closed_sums WHERE {PUBLISHED}",
        "secret sums, but it is closed",
    ),
    "opened again": (end("closed_at = NULL"), "whether it is closed"),
    "said to be private": (
        "UPDATE th_run_events SET detail = replace(detail, 'true', 'false') "
        "WHERE holdout_id = 1 AND kind = 'close'",
        "published sums are not",
    ),
    "closing deleted": (of("th_run_events", "kind = 'close'"), "whether it is closed"),
    "after closing": (
        "INSERT INTO th_run_events SELECT holdout_id, position + 1, 3, 'evaluate', 6, 'new', step, "
        'nats, \'{"pass":6,"sums":[]}\', seeded, asked_at, version, chain FROM th_run_events '
        "WHERE holdout_id = 1 AND kind = 'close'",
        "after closing",
    ),
}
EDITS = [("open", what) for what in OPEN] + [("closed", what) for what in CLOSED]


@pytest.mark.parametrize("which", ["open", "closed"])
def test_an_intact_ledger(path, which):
    ledger = path(which)
    result = verify(f"sqlite:///{ledger}")
    assert result.findings == []
    with sqlite3.connect(ledger) as connection:
        (events,) = connection.execute("SELECT count(*) FROM th_run_events").fetchone()
    connection.close()
    assert result.rows == events > 20


@pytest.mark.parametrize(("which", "what"), EDITS)
def test_an_edit_is_found_and_the_account_is_not_used(path, which, what):
    statement, words = (OPEN if which == "open" else CLOSED)[what]
    ledger = path(which)
    edit(ledger, statement)
    problems = found(f"sqlite:///{ledger}")
    assert any(account == "val" and words in text for account, text in problems), problems
    assert all(account == "val" for account, _ in problems)
    with pytest.raises(LedgerError):
        make_sealed(f"sqlite:///{ledger}").status()


@pytest.mark.parametrize(("which", "what"), [("open", "state"), ("closed", "value")])
def test_an_edited_account_is_a_sentence_of_every_command(path, which, what):
    ledger = path(which)
    edit(ledger, (OPEN if which == "open" else CLOSED)[what][0])
    for name, *options in (("status",), ("report", "--json"), ("report", "--csv")):
        result = CliRunner().invoke(app, [name, str(ledger), *options])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "fit together" in result.stderr
    before = ledger.read_bytes()
    result = CliRunner().invoke(app, ["close", str(ledger), "--name", "val", "--yes"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "fit together" in result.stderr
    assert ledger.read_bytes() == before


def test_the_command_says_which_account_and_which_event(path):
    ledger = path("open")
    edit(ledger, OPEN["price of a stop"][0])
    result = CliRunner().invoke(app, ["verify", str(ledger)])
    assert result.exit_code == 1
    assert "'val': event" in result.stdout
    assert "of its runs: its price is not what the registered law gives" in result.stdout


def test_no_finding_shows_a_secret(path):
    """A problem is named; the sums behind it are not."""
    ledger = path("open")
    with sqlite3.connect(ledger) as connection:
        totals = [str(row[0]) for row in connection.execute("SELECT total FROM th_secret_sums")]
    connection.close()
    edit(ledger, OPEN["one sum lost"][0])
    shown = CliRunner().invoke(app, ["verify", str(ledger), "--json"]).stdout
    assert totals
    assert not any(total in shown for total in totals if len(total) > 4)


@pytest.mark.parametrize("what", ["price of a stop", "state", "sums lost", "reference lost"])
def test_edits_on_postgresql(postgres, what):
    url = postgres.new_url()
    fill(url)
    assert found(url) == []
    statement, words = OPEN[what]
    postgres.edit(url, statement)
    assert any(account == "val" and words in text for account, text in found(url))


def test_a_closed_value_on_postgresql(postgres):
    url = postgres.new_url()
    fill(url, close=True)
    assert found(url) == []
    postgres.edit(url, CLOSED["value"][0])
    assert any("were edited" in text for _, text in found(url))


def test_runs_of_a_holdout_that_answers_are_noticed(tmp_path):
    """The events of a sealed account, moved to one that shows values."""
    url = f"sqlite:///{tmp_path}/holdout.db"
    sealed_runs(url)
    make_holdout(url, name="live").status()
    for table in ("th_run_events", "th_run_ends", "th_sealed_runs"):
        edit(tmp_path / "holdout.db", f"UPDATE {table} SET holdout_id = 2 WHERE holdout_id = 1")
    assert any("not sealed" in text for account, text in found(url) if account == "live")
