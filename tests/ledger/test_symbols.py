"""Symbols in the ledger: accounts of schema 5 go on with them, and an older library stays out."""

import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.symbols import record_price, winner_price
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import schema
from torch_holdout.ledger.schema import SCHEMA_VERSION
from torch_holdout.ledger.symbols import Said
from torch_holdout.ledger.verify import verify

from support.builders.sealed_logs import events_of, said_before

ASSETS = Path(__file__).parent.parent / "assets"
STATISTICS = {"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()}


@pytest.fixture
def url(tmp_path):
    shutil.copy(ASSETS / "ledger_v5.db", tmp_path / "old.db")
    (tmp_path / "old.db").chmod(0o600)
    return f"sqlite:///{tmp_path}/old.db"


def opened(url, name, **changes):
    """A sealed account of the frozen ledger of schema 5."""
    arguments = {"size": 50, "budget": 8, "mechanism": th.Sealed(evaluations=20)}
    return th.ReusableHoldout(url, name=name, statistics=STATISTICS, **arguments | changes)


def evaluate(holdout, run, loss, query):
    sums = {name: holdout.accumulator(name) for name in holdout.statistics}
    places = torch.arange(holdout.size)
    sums["val_loss"].update(loss * (1 + 0.5 * torch.cos(3.0 * places)))
    sums["val_acc"].update(places < round((1 - 0.2 * loss) * holdout.size))
    return run.evaluate(sums, query=query)


def version_of(url):
    return verify(url).schema_version


class TestSchema5:
    def test_its_runs_stand_as_they_did(self, url):
        assert version_of(url) == 5
        months = opened(url, "months")
        states = [run.state for run in months.status().runs]
        assert states == ["stopped", "ended", "given_up", "given_up", "open", "ended", "open"]
        assert months.certificate().tolerance == pytest.approx(0.39312195732129523, rel=1e-12)
        assert months.budget_left == 2
        assert version_of(url) == SCHEMA_VERSION
        assert verify(url).findings == []

    def test_what_was_closed_is_shown_as_it_was(self, url):
        closing = opened(url, "closed", size=40, budget=3).close()
        best = closing.best
        assert (len(closing.values), best.run, best.evaluation) == (36, 2, 5)
        assert best.value == 0.6409111022949219
        assert (best.low, best.high) == pytest.approx((0.14296278946562888, 2.677706653760585))
        assert best.step == "epoch 4"

    def test_it_goes_on_with_symbols_that_are_paid(self, url):
        months = opened(url, "months")
        before = sum(months.status().nats.values())
        ended = [run.id for run in months.status().runs if run.state in ("stopped", "ended")]
        bits = [months.run(resume=mark).record() for mark in ended]
        assert bits == [True, True, False]
        assert months.winner() == 2
        evaluate(months, months.run(), 0.5, "of now")
        said = record_price(bits[1:], [2, 3]) + winner_price(3)
        assert events_of(months)[-1]["nats"] == pytest.approx(before + said, rel=1e-12)
        for event, others in said_before(events_of(months), 20):
            assert event["nats"] == pytest.approx(others, abs=1e-12)
        assert verify(url).findings == []

    def test_its_open_runs_go_on(self, url):
        months = opened(url, "months")
        open_runs = [run.id for run in months.status().runs if run.state == "open"]
        silent = months.run(resume=open_runs[1])
        assert evaluate(months, silent, 0.4, "one more").number == 4
        silent.end()
        assert silent.record()
        assert verify(url).findings == []

    def test_an_account_with_noise_has_none(self, url):
        mechanism = th.Sealed(evaluations=20, epsilon=1.0)
        private = opened(url, "private", mechanism=mechanism, budget=2, seed=3)
        with pytest.raises(th.InvalidArgumentError, match="without noise"):
            private.winner()

    def test_reading_changes_nothing(self, url):
        path = Path(url.removeprefix("sqlite:///"))
        before = path.read_bytes()
        assert verify(url).findings == []
        assert path.read_bytes() == before

    def test_sealed_runs_on_a_server_of_schema_5_go_on(self, postgres):
        url = postgres.new_url()
        holdout = opened(url, "val")
        for number, loss in enumerate((0.9, 0.5)):
            with holdout.run() as run:
                evaluate(holdout, run, loss, str(number))
        later = ("th_checked", "th_board_events", "th_analysts", "th_boards")
        postgres.edit(url, *(f"DROP TABLE {table}" for table in later))
        postgres.edit(url, "UPDATE th_ledger SET schema_version = 5")
        assert version_of(url) == 5
        again = opened(url, "val")
        assert again.run(resume=run.id).record()
        evaluate(again, again.run(), 0.7, "later")
        assert events_of(again)[-1]["nats"] == pytest.approx(record_price([True], [2]), rel=1e-12)
        assert version_of(url) == SCHEMA_VERSION
        assert verify(url).findings == []
        assert len(again.close().values) == 2 * 3
        assert verify(url).findings == []


def test_an_older_library_does_not_open_what_it_would_not_pay_for(url, monkeypatch):
    """As every library before symbols: its newest schema is 5."""
    opened(url, "months").winner()
    for module in ("backend", "transactions", "sqlite.backend"):
        name = f"torch_holdout.ledger.{module}.SCHEMA_VERSION"
        monkeypatch.setattr(name, 5, raising=False)
    with pytest.raises(LedgerError, match="Update torch_holdout"):
        opened(url, "months").status()


class TestSaid:
    def test_sums_are_exact_in_whatever_order(self):
        """What a run pays is the rounded exact sum: equal if and only if nothing was said."""
        mechanism = th.Sealed(evaluations=200)
        holdout = th.ReusableHoldout(
            "memory://", name="val", size=8, statistics={"acc": th.ZeroOne()}, mechanism=mechanism,
            budget=30,
        )  # fmt: skip
        for number in range(12):
            run = holdout.run(stop=th.Patience("acc", 1 + number % 3))
            for epoch in range(5):
                sums = holdout.accumulator("acc")
                sums.update(torch.arange(8) < epoch)
                run.evaluate({"acc": sums}, query=f"{number} {epoch}")
        runs = holdout._ledger.runs(holdout._attached())
        said = Said(runs, 0.25, mechanism)
        for run in runs:
            others = [other for other in reversed(runs) if other.run != run.run]
            assert said.by_others(run.run) == Said(others, 0.25, mechanism).by_others(None)
        for run in runs[1:]:
            said.take(type(run)(**vars(run) | {"passes": 50}))
            said.take(run)
        assert said.by_others(None) == Said(runs, 0.25, mechanism).by_others(None)


def test_symbols_are_found_by_the_index_of_events(tmp_path):
    """They stand under run 0, so that an evaluation does not read all events to find them."""
    connection = sqlite3.connect(ASSETS / "ledger_v5.db")
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM th_run_events WHERE holdout_id = 1 AND run = 0 "
        "AND kind IN ('record', 'winner', 'challenge') ORDER BY position DESC LIMIT 1"
    ).fetchall()
    connection.close()
    assert "th_events_of_run (holdout_id=? AND run=?)" in plan[0][-1]
    assert schema.ADDED[schema.WITH_SYMBOLS] == ()
