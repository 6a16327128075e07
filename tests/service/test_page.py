"""The page as text: what it says in which state, and that names are never markup."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from torch_holdout.service.server import pages
from torch_holdout.service.server.edge import POLICY

from support.builders.board_views import HOSTILE, VIEWS, many, ordinary, row, view
from support.builders.stand_in_board import StandInBoard


class Reader(HTMLParser):
    """Every tag with its attributes, and the text outside of tags."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("make", [pages.board_page, pages.results_page])
def test_a_page_has_nothing_that_its_policy_forbids(make, name):
    read = Reader(make(VIEWS[name]()))
    standalone = make is pages.results_page
    for tag, attributes in read.tags:
        assert not any(key == "style" or key.startswith("on") for key in attributes)
        assert tag not in ("img", "iframe", "form", "object", "base")
        for key in ("href", "src"):
            assert attributes.get(key, "/").startswith(("/", "data:,"))
    tags = [tag for tag, _ in read.tags]
    assert tags.count("script") == (0 if standalone else 1)
    assert tags.count("style") == (1 if standalone else 0)
    assert ("noscript" in tags) == (not standalone)
    assert "'unsafe" not in POLICY


def test_names_are_text():
    read = Reader(pages.board_page(VIEWS["hostile"]()))
    assert all(name in read.text for name in HOSTILE)
    assert "alert" not in str(read.tags)


UNTOLD = "Values on rows that nobody had been told anything about"


def test_a_closed_board_claims_untold_rows_only_where_there_are_results_on_them():
    """Not before results are written, and not without a vault."""
    judged = VIEWS["closed"]()
    assert UNTOLD in pages.board_page(judged)
    told = pages.board_page(replace(judged, facts=judged.facts | {"public": 1.0}))
    waiting = pages.board_page(replace(judged, results=None))
    for page in (told, waiting):
        assert UNTOLD not in page
    assert "Final results" in told
    assert "Final results" not in waiting


def test_the_page_says_what_the_view_says():
    text = " ".join(Reader(pages.board_page(ordinary())).text.split())
    for words in (
        *("Open until 1 Dec 2026, 12:00 UTC", "higher is better", "What this board promises"),
        *("1\u20133", "0.9140", "0.8940 to 0.9340", "beta, gamma", "0 / 0", "exhausted"),
        *("nothing told above the baseline", "212 of 400", "7be1" * 16, "Ledger position 1,480"),
    ):
        assert words in text


def test_where_nothing_is_certified_no_interval_is_drawn():
    page = pages.board_page(VIEWS["guidance"]())
    assert "Guidance, not certified" in page
    assert "the truth lies in" not in page
    assert 'class="band"' not in page


def test_a_closed_board_shows_the_shake_up():
    text = " ".join(Reader(pages.board_page(VIEWS["closed"]())).text.split())
    assert "Closed 2 Dec 2026, 09:30 UTC" in text
    assert "\u22120.0048" in text  # beta: .9012 on the vault, .906 before
    assert "How to submit" not in text


def test_a_page_of_500_teams_stays_small():
    page = pages.board_page(many())
    assert "and 496 more teams" in page
    assert len(page) < 1_000_000


def test_lower_is_better_is_said():
    loss = {"loss": {"low": 0.0, "high": 5.0, "mode": "min", "kind": "cross_entropy"}}
    page = pages.board_page(view([row("alpha", 1.25, 0.3)], first="loss", statistics=loss))
    assert "lower is better" in page
    assert "1.250" in page


def test_a_team_and_the_host_see_their_own():
    board = StandInBoard()
    team = {
        "team": "alpha", "quota": {"submissions_left": 3, "releases_left": 1},
        "finalists": ["e" * 64], "expires_at": "2026-12-01T00:00:00+00:00",
        "submissions": [
            {"submission": "d" * 64, "position": 5, "kind": "release", "better": True,
             "results": {"accuracy": {"value": 0.91, "interval": [0.9, 0.92]},
                         "log_loss": {"value": None, "interval": None}}},
        ],
    }  # fmt: skip
    text = " ".join(Reader(pages.team_page(board.view(), team)).text.split())
    for words in ("alpha", "e" * 64, "d" * 12, "release", "better", "0.9100", "0.9000 to 0.9200"):
        assert words in text
    host = {
        "teams": [{"team": "<i>alpha</i>", "refused": 3, "revoked_at": None}], "events": [],
        "plan": {"teams": "1 of 5"}, "budget": {"nats": 1.5},
    }  # fmt: skip
    text = " ".join(Reader(pages.host_page(board.view(), host)).text.split())
    for words in ("<i>alpha</i>", "Refused", "1 of 5", "None."):
        assert words in text
