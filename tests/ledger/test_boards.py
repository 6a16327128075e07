"""Boards in the ledger: quotas, the chain, prices, and what an edit leaves behind."""

import json
import math
import shutil
import sqlite3
from itertools import product
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.accounting.picos import PICO
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, schema, verify
from torch_holdout.ledger.board_events import BoardTerms, Said, StoredAnalyst, StoredBoard
from torch_holdout.ledger.chains import first_link
from torch_holdout.ledger.registration import StoredRegistration
from torch_holdout.ledger.schema import SCHEMA_VERSION

from support.builders.board_holdouts import MODES, make_board, right, sha, submit, with_teams

ASSETS = Path(__file__).parent.parent / "assets"


@pytest.fixture
def path(tmp_path):
    """A ledger with one board of each mode, the last one closed and judged."""
    path = tmp_path / "board.db"
    url = f"sqlite:///{path}"
    for mode in MODES:
        board = with_teams(make_board(url, mode, name=mode, registered={"labels": mode.encode()}))
        for count in (500, 600, 605, 700):
            for analyst in ("alpha", "beta"):
                submit(board, count, f"{count}", analyst, incumbent=lambda query: right(600))
    board.close()
    board.judge({sha("700"): right(1400, 2000)}, {sha("700"): "alpha"})
    return path


def edit(path, *statements):
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(statement)
    connection.close()


def found(path):
    return [(f.account, f.position, f.problem) for f in verify(f"sqlite:///{path}").findings]


def test_an_intact_ledger_has_no_findings(path):
    checked = verify(f"sqlite:///{path}")
    assert checked.findings == []
    assert checked.boards == 4
    assert checked.rows == 4 * (2 + 8) + 2
    assert checked.looked_at.startswith("0 holdouts, 4 boards, 0 accounts of training records")


EVENT = "UPDATE th_board_events SET {} WHERE board_id = 1 AND position = 6"
BOARD = "UPDATE th_boards SET {} WHERE id = 1"
QUOTA = "UPDATE th_analysts SET {} WHERE board_id = 1 AND analyst = 'alpha'"
EDITS = {
    "a price": (EVENT.format("nats = nats - 1000"), "does not follow the row before"),
    "what was told before": (EVENT.format("said = 0"), "does not follow"),
    "an answer": (EVENT.format("""detail = '{"outcome":"guess","grid":{}}'"""), "does not follow"),
    "whose it is": (EVENT.format("analyst = 'gamma'"), "does not follow"),
    "a deleted event": ("DELETE FROM th_board_events WHERE position = 6", "deleted, or never"),
    "the last event": ("DELETE FROM th_board_events WHERE position = 10", "rows at the end"),
    "the total": (BOARD.format("nats = 0"), "counter 'nats'"),
    "the releases": (BOARD.format("releases = 0"), "counter 'releases'"),
    "the flags": (BOARD.format("zeros = zeros + 5"), "counter 'zeros'"),
    "the law of records": (
        "UPDATE th_boards SET rank_nats = 0.0 WHERE id = 2", "counter 'rank_nats'",
    ),
    "the record": ("UPDATE th_boards SET best = 70 WHERE id = 2", "counter 'best'"),
    "closing": (BOARD.format("closed_at = 'now'"), "counter 'closed_at'"),
    "reopening": ("UPDATE th_boards SET closed_at = NULL WHERE id = 4", "counter 'closed_at'"),
    "a larger quota": (QUOTA.format("max_releases = 9"), "quota of 'alpha'"),
    "a refund": (QUOTA.format("releases = 0"), "quota of 'alpha'"),
    "a refunded submission": (QUOTA.format("submissions = 0"), "quota of 'alpha'"),
    "a lowered best": (QUOTA.format("best = 1"), "quota of 'alpha'"),
    "another incumbent": (
        "UPDATE th_analysts SET incumbent = NULL WHERE board_id = 3", "quota of",
    ),
    "a second analyst": (
        "INSERT INTO th_analysts SELECT board_id, 'gamma', 1, 1, 0, 1, 0, NULL, NULL, NULL, 0, "
        "created_at FROM th_analysts WHERE board_id = 1 AND analyst = 'alpha'", "quota of 'gamma'",
    ),
    "the budget": (BOARD.format("budget = 17"), "budget"),
    "the registration": (
        BOARD.format("registration = replace(registration, '0.55', '0.45')"), "parameters",
    ),
    "the name": (BOARD.format("name = 'other'"), "name"),
    "a deleted board": ("DELETE FROM th_boards WHERE id = 1", "without an account"),
}  # fmt: skip


def attach_all(url):
    for mode in MODES:
        make_board(url, mode, name=mode, registered={"labels": mode.encode()}).attach()


@pytest.mark.parametrize("what", EDITS)
def test_edits_are_found_and_the_board_is_not_opened(path, what):
    statement, said = EDITS[what]
    edit(path, statement)
    findings = found(path)
    assert any(said in problem for _, _, problem in findings), findings
    if "board" in what or what in ("the name", "the registration"):
        return  # then it is another board, or none
    with pytest.raises(LedgerError, match="Nothing was repaired"):
        attach_all(f"sqlite:///{path}")


def test_refusals_are_only_for_people(path):
    edit(path, QUOTA.format("refused = 7"))
    assert found(path) == []


REWRITES = {
    "an outcome of another mode": ({"outcome": "kept"}, "not one of the registered mode"),
    "an unknown outcome": ({"outcome": "maybe"}, "wrong type"),
    "a value beyond the grid": ({"grid": {"accuracy": 4000}}, "not the registered grid's"),
    "a value of nothing": ({"grid": {}}, "not those of the registered statistics"),
    "another bar": ({"bar": 3}, "not the best before it"),
}


@pytest.mark.parametrize("what", REWRITES)
def test_a_rewritten_chain_must_still_say_what_the_board_could_say(path, what):
    """An event replaced and all links computed again: the registered rules still show it."""
    change, said = REWRITES[what]
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    rows = [
        dict(row) for row in connection.execute("SELECT * FROM th_board_events WHERE board_id=1")
    ]
    connection.close()
    place = next(k for k, row in enumerate(rows) if '"release"' in row["detail"])
    rows[place]["detail"] = json.dumps(json.loads(rows[place]["detail"]) | change)
    edit(path, *relinked(rows))
    assert any(said in problem for _, _, problem in found(path)), found(path)


def relinked(rows):
    from torch_holdout.ledger.chains import chained

    link = first_link("ladder")
    own = ("kind", "analyst", "query", "number", "said", "nats", "detail", "asked_at", "version")
    for row in rows:
        link = chained(link, row["position"], {name: row[name] for name in own})
        detail = row["detail"].replace("'", "''")
        yield (
            f"UPDATE th_board_events SET detail = '{detail}', chain = '{link}' WHERE board_id = 1 "
            f"AND position = {row['position']}"
        )
    yield f"UPDATE th_boards SET chain = '{link}' WHERE id = 1"


class TestOlderLedgers:
    @pytest.mark.parametrize("version", range(1, schema.WITH_BOARDS))
    def test_ledgers_of_all_versions_get_boards(self, tmp_path, version):
        path = tmp_path / "old.db"
        shutil.copy(ASSETS / f"ledger_v{version}.db", path)
        path.chmod(0o600)
        url = f"sqlite:///{path}"
        assert Ledger(url, reads_only=True).boards() == {}
        assert verify(url).schema_version == version
        submit(with_teams(make_board(url)), 700, "a")
        assert Ledger(url).boards().keys() == {"digits"}
        checked = verify(url)
        assert (checked.schema_version, checked.boards) == (SCHEMA_VERSION, 1)
        assert checked.findings == []

    def test_a_server_of_schema_6_gets_them(self, postgres):
        url = postgres.new_url()
        th.ReusableHoldout(
            url, name="val", size=4, statistics={"val_acc": th.ZeroOne()},
            mechanism=th.Ladder(step=0.1), budget=1,
        ).status()  # fmt: skip
        drop = (
            f"DROP TABLE th_{name}" for name in ("board_events", "analysts", "boards", "checked")
        )
        postgres.edit(url, *drop, "UPDATE th_ledger SET schema_version = 6")
        assert verify(url).schema_version == 6
        board = with_teams(make_board(url))
        assert submit(board, 700, "a").kind == "release"
        assert verify(url).findings == []

    def test_accounts_of_schema_6_stand_as_they_did(self, tmp_path):
        path = tmp_path / "old.db"
        shutil.copy(ASSETS / "ledger_v6.db", path)
        path.chmod(0o600)
        url = f"sqlite:///{path}"
        statistics = {"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()}
        months = th.ReusableHoldout(
            url, name="months", size=50, statistics=statistics, budget=14,
            mechanism=th.Sealed(evaluations=20),
        )  # fmt: skip
        assert months.certificate().tolerance == pytest.approx(0.45472746185329976, rel=1e-12)
        assert months.status().nats["challenge"] == pytest.approx(4.446565155811453, rel=1e-12)
        assert months.budget_left == 4
        ladder = th.ReusableHoldout(
            url, name="ladder", size=50, statistics=statistics, budget=6,
            mechanism=th.Ladder(step=0.02),
        )  # fmt: skip
        assert ladder.certificate().tolerance == pytest.approx(0.5462952623961935, rel=1e-12)
        assert ladder.ask("val_acc", torch.zeros(50, dtype=torch.bool), query="x").kind != "release"
        assert verify(url).findings == []

    def test_an_older_library_stays_out(self, path, monkeypatch):
        for module in ("backend", "transactions", "sqlite.backend"):
            name = f"torch_holdout.ledger.{module}.SCHEMA_VERSION"
            monkeypatch.setattr(name, 6, raising=False)
        with pytest.raises(LedgerError, match="Update torch_holdout"):
            Ledger(f"sqlite:///{path}").names()

    def test_boards_are_no_holdouts(self, path):
        """Reports and certificates of holdouts do not count them, and cannot misread them."""
        ledger = Ledger(f"sqlite:///{path}")
        assert ledger.names() == []
        assert list(ledger.boards()) == list(MODES)
        assert schema.ADDED[schema.WITH_BOARDS]


def terms_of(mode):
    accuracy = {"kind": "zero_one", "low": 0.0, "high": 1.0, "mode": "max", "units": 16, "grid": 4}
    feedback = {"kind": "board", "mode": mode, "baseline": 0.3, "step": 0.25}
    if mode == "gate":
        feedback = {"kind": "board", "mode": mode, "rule": "certified"}
    content = {"statistics": {"accuracy": accuracy}, "feedback": feedback, "submissions": 6}
    return BoardTerms(StoredRegistration(content))


def outcomes(terms, board, analyst):
    """All that a submission of an analyst can be told."""
    if terms.feedback.mode == "gate":
        if analyst.incumbent is None:
            return [Said(outcome="first", grid={})]
        known = {"grid": {}, "challenged": analyst.incumbent}
        return [Said(outcome="kept", **known), Said(outcome="reverted", **known)]
    bar = board.best if terms.records else analyst.best
    least = 2 if bar is None else bar + 1  # of the baseline .3 on quarters
    told = [Said(outcome="release", grid={"accuracy": k}, bar=bar) for k in range(least, 5)]
    return [Said(outcome="guess", grid={}, bar=bar), *told]


def worst_sum(terms, board, analysts, left):
    """The largest sum of e^-nats over what can be told in some submissions, whoever asks next."""
    if not left:
        return math.exp(-board.nats / PICO)
    sums = []
    for place, analyst in enumerate(analysts):
        total = 0.0
        for said in outcomes(terms, board, analyst):
            price = terms.price(board, said)
            after = board.after(said, price, records=terms.records)
            own = analyst.after(said, f"q{left}", left)
            rest = [*analysts[:place], own, *analysts[place + 1 :]]
            total += worst_sum(terms, after, rest, left - 1)
        sums.append(total)
    return max(sums)


@pytest.mark.parametrize("mode", ["ladder", "record", "gate"])
def test_the_prices_that_are_written_satisfy_kraft_whoever_asks(mode):
    """By enumeration of everything a board of up to 3 analysts can say, against every asker."""
    terms = terms_of(mode)
    for teams, left in product((1, 2, 3), (1, 3, 4)):
        analysts = [
            StoredAnalyst(analyst=name, added=1, max_submissions=9, max_releases=9, created_at="")
            for name in "abc"[:teams]
        ]
        total = worst_sum(terms, StoredBoard(), analysts, left)
        assert 0.1 < total <= 1.0
