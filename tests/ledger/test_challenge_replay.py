"""Every edit of a challenge is found: its bit, its price, whom it challenged, who is incumbent."""

import json
import shutil
import sqlite3

import pytest
from torch_holdout.ledger import verify

from support.builders.challenges import challenged_thrice, losses, make_challenged, wrong_on


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A first one, one kept, one reverted; a first one of another statistic; one untested."""
    path = tmp_path_factory.mktemp("replay") / "holdout.db"
    holdout = make_challenged(f"sqlite:///{path}")
    challenged_thrice(holdout)
    holdout.challenge("loss", losses(1.0), query="a loss")
    for file in path.parent.glob("holdout.db.challenges/*/*"):
        file.unlink()
    with pytest.warns(match="lost"):
        holdout.challenge("acc", wrong_on(1), query="after the loss of a file")
    holdout.challenge("acc", wrong_on(2), query="last", rule="margin", margin=0.01)
    return path


@pytest.fixture
def path(original, tmp_path):
    shutil.copy(original, tmp_path / "holdout.db")
    return tmp_path / "holdout.db"


def edit(path, number, change):
    """Change the detail of the n-th challenge."""
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT position, detail FROM th_run_events WHERE kind = 'challenge' ORDER BY position"
    ).fetchall()
    position, detail = rows[number - 1]
    content = json.loads(detail)
    other = [json.loads(row[1]) for row in rows]
    changed = json.dumps(change(content, other), separators=(",", ":"))
    assert changed != detail
    connection.execute(
        "UPDATE th_run_events SET detail = ? WHERE position = ?", (changed, position)
    )
    connection.commit()
    connection.close()


def problems(path):
    return [finding.problem for finding in verify(f"sqlite:///{path}").findings]


def of(**fields):
    return lambda content, others: content | fields


EDITS = {
    "a keep that was not": (3, of(value=1), "its price is not what the registered law gives"),
    "a keep taken back": (2, of(value=0), "whom it challenged is not the incumbent"),
    "a first one kept": (1, of(value=1), "a challenger without a test was kept"),
    "a first one tested": (1, of(choices=2), "a challenger without a test was kept"),
    "a tested one certain": (3, of(choices=1), "a tested one was not decided"),
    "an untested one tested": (5, of(lost=False), "a tested one was not decided"),
    "a lost file made up": (3, of(lost=True), "a challenger without a test was kept"),
    "another incumbent": (3, of(challenged="x"), "whom it challenged is not the incumbent"),
    "no incumbent": (3, of(challenged=None), "whom it challenged is not the incumbent"),
    "another challenger": (3, of(query="x"), "its run has not evaluated the challenger"),
    "another statistic": (4, of(statistic="acc"), "its run has not evaluated the challenger"),
    "another run": (3, of(run=2), "its run has not evaluated the challenger"),
    "another rule": (3, of(rule="luck"), "it was decided by an unknown rule"),
    "another test": (3, of(test="guess"), "it was decided by an unknown rule"),
    "many choices": (3, of(choices=3), "it is not a challenge as they are written"),
    "a field left out": (
        3,
        lambda content, others: {k: v for k, v in content.items() if k != "lost"},
        "it is not a challenge as they are written",
    ),
    "asked twice": (
        3,
        lambda content, others: content | {"query": others[1]["query"]},
        "its query has challenged before",
    ),
}


def test_what_was_written_fits(path):
    assert problems(path) == []


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_found_and_named(path, name):
    number, change, sentence = EDITS[name]
    edit(path, number, change)
    found = problems(path)
    assert any(sentence in problem for problem in found), found
    assert any("edited" in problem for problem in found)  # by the chain, whatever it was


def test_an_edited_margin_is_found_by_the_chain(path):
    edit(path, 6, of(margin=0.5))
    assert any("edited" in problem for problem in problems(path))
