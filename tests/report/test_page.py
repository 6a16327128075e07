"""The page: self-contained, hostile names stay text, and nothing secret is in it."""

import os
import re
import sqlite3
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch_holdout as th
from markupsafe import escape
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import Ledger
from torch_holdout.report import page, paragraph, summarise, write
from torch_holdout.report.verdict import headline, not_promised, verdict

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import (
    HOSTILE,
    Retold,
    charged_records,
    empty,
    hostile_names,
    several_runs,
)

VOID = {"meta", "link", "br", "img"}


class Read(HTMLParser):
    """Collect tags, attributes and visible text; refuse what is not nested properly."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.shown, self._open = [], [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if "style" not in self._open and "title" not in self._open:
            self.shown.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.shown).split())


@pytest.fixture(scope="module")
def report():
    ledger = Retold("memory://page")
    several_runs("memory://page", budget=24, epochs=12)
    charged_records("memory://page")
    make_holdout("memory://page", name="another").status()
    return summarise(ledger)


@pytest.mark.parametrize(("answered", "left_out"), [(2, ""), (6, "Stale values of 2 more runs")])
def test_stale_values_that_are_not_drawn_are_counted(answered, left_out):
    """A run that never got an answer has no stale value to draw or to leave out."""
    holdout = make_holdout(budget=answered, mechanism=th.LaplaceMechanism(epsilon=1.0))
    for late in (False, True):
        for run in range(answered + 5 * late):
            with th.named_run(f"run {run}"):
                ask(holdout, 20, f"{run} {late}")
    text = Read(page(summarise(Ledger(holdout.status().ledger)))).text
    assert left_out in text
    assert ("left out of the drawing" in text) == bool(left_out)


def test_holds_what_was_asked_for(report):
    found = Read(page(report))
    for holdout in report.holdouts:
        assert headline(holdout) in found.text
        for finding in verdict(holdout):
            assert finding.text in found.text
        for sentence in (*not_promised(holdout), *holdout.certificate.assumptions):
            assert sentence in found.text
        assert holdout.certificate.theorem in found.text
    for words in ("Releases left", "Epsilon, at most", "Runs side by side", "latest questions"):
        assert words in found.text
    for run in ("baseline", "wide", "wide + dropout", "cosine schedule", "patients-2026"):
        assert run in found.text
    assert "2 holdouts and 1 account of training records" in found.text
    assert report.version in found.text
    assert ("href", "#records-1") in found.attributes
    assert ("id", "records-1") in found.attributes


def test_is_one_file_without_script_or_network(report):
    text = page(report)
    found = Read(text)
    assert not {"script", "img", "iframe", "object", "embed", "form", "base"} & set(found.tags)
    assert found.tags.count("link") == 1
    for name, value in found.attributes:
        assert not name.startswith("on")
        assert name != "src"
        if name == "href":
            assert value.startswith("#") or value == "data:,"
    assert "@import" not in text
    assert "url(" not in text
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert any(name == "content" and value.startswith(policy) for name, value in found.attributes)
    assert text.startswith("<!doctype html>")


def brought_by_names(text):
    """Tags and attributes that the page of plain names does not have."""
    plain = Read(page(summarise(hostile_names("memory://", names="abcdefg")._ledger)))
    one, other = (
        {*read.tags, *(name for name, _ in read.attributes)} for read in (Read(text), plain)
    )
    return one - other


def test_hostile_names_stay_text():
    text = page(summarise(hostile_names("memory://")._ledger))
    assert brought_by_names(text) == set()
    for name in HOSTILE:
        assert name.strip() in " ".join(Read(text).shown)


@pytest.mark.parametrize(
    ("name", "brought"),
    [(HOSTILE[0], {"script"}), (HOSTILE[1], {"img", "src", "onerror"})],
)
def test_twin_without_escaping_is_caught(name, brought):
    text = page(summarise(hostile_names("memory://")._ledger))
    assert str(escape(name)) in text
    assert brought_by_names(text.replace(str(escape(name)), name)) == brought


def test_long_tables_are_folded_and_whole():
    """The best come first, the latest are listed a second time, and nothing falls between."""
    holdout = make_holdout(size=400, budget=60)
    for i in range(50):
        with th.named_run(f"trial {i}"):
            ask(holdout, 345 - 5 * i, f"{i}", fresh=True)
    text = Read(page(summarise(holdout._ledger))).text
    listed = Counter(re.findall(r"trial \d+", text))
    assert all(listed[f"trial {i}"] >= 1 + (i >= 25) for i in range(50))
    assert "38 more runs" in text
    assert "19 before these" in text
    assert "25 earlier questions not listed" in text


def test_what_is_left_out_is_said(report):
    (first, *others) = report.holdouts
    less = replace(first.statistics[0], left_out=7, runs_left_out=3)
    changed = replace(first, statistics=(less, *first.statistics[1:]))
    text, before = (
        Read(page(replace(report, holdouts=(holdout, *others)))).text
        for holdout in (changed, first)
    )
    for words in ("7 more answers left out of the drawing", "3 more runs with worse releases"):
        assert words in text
        assert words not in before


def test_a_run_that_came_too_late_is_marked(report):
    late = [run for run in report.holdouts[0].statistics[0].runs if run.refused and run.last]
    text = Read(page(replace(report, holdouts=report.holdouts[:1], records=()))).text
    assert late
    assert text.count("stale since the budget is gone") == 2 * len(late)  # two statistics


def test_no_secret_is_in_it(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    holdout = make_holdout(url, seed=1)
    for count in (20, 21):
        ask(holdout, count, f"query {count}")
    text = page(summarise(Ledger(url)))
    with sqlite3.connect(tmp_path / "holdout.db") as connection:
        secrets = [
            str(row[0]) for row in connection.execute("SELECT threshold FROM th_secret_thresholds")
        ]
        secrets += [row[0].hex() for row in connection.execute("SELECT secret FROM th_secret_keys")]
        secrets += [row[0] for row in connection.execute("SELECT query FROM th_queries")]
        secrets += [row[0] for row in connection.execute("SELECT chain FROM th_queries")]
        secrets += [row[0] for row in connection.execute("SELECT account FROM th_holdouts")]
    connection.close()
    assert len(secrets) == 7
    assert not any(secret in text for secret in secrets)


def test_seeded_noise_has_no_epsilon():
    holdout, seeded = make_holdout(), make_holdout(seed=1)
    for own in (holdout, seeded):
        own.status()
    plain, marked = (Read(page(summarise(own._ledger))).text for own in (holdout, seeded))
    assert "Epsilon, at most 20 pure, over the whole budget" in plain
    assert "Epsilon, at most none seeded noise, for tests" in marked


def test_an_empty_ledger_has_a_friendly_page(tmp_path):
    found = Read(page(summarise(empty(f"sqlite:///{tmp_path}/empty.db"))))
    assert "The ledger has no account yet." in found.text
    assert "svg" not in found.tags


def test_a_single_account_is_the_heading(tmp_path):
    records = charged_records("memory://")
    assert "h2" not in Read(page(summarise(records._ledger))).tags
    holdout = make_holdout()
    holdout.status()
    assert "h2" not in Read(page(summarise(holdout._ledger))).tags


class TestWriting:
    def test_whole_and_at_its_place(self, tmp_path, report):
        place = write(report, tmp_path / "deep" / "page.html")
        assert place == tmp_path / "deep" / "page.html"
        assert place.read_text(encoding="utf-8") == page(report)
        assert [path.name for path in place.parent.iterdir()] == ["page.html"]
        assert write(report, tmp_path / "deep") == tmp_path / "deep" / "report.html"
        assert write(report, place).read_text(encoding="utf-8") == page(report)

    def test_a_failure_leaves_what_was_there(self, tmp_path, report, monkeypatch):
        place = tmp_path / "page.html"
        place.write_text("the old one")

        def full(self, target):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(HoldoutError, match=r"page\.html cannot: No space left on device"):
            write(report, place)
        assert place.read_text() == "the old one"
        assert [path.name for path in tmp_path.iterdir()] == ["page.html"]

    @pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
    def test_never_over_a_ledger(self, tmp_path, report, ending):
        make_holdout(f"sqlite:///{tmp_path}/holdout.db").status()
        before = (tmp_path / "holdout.db").read_bytes()
        with pytest.raises(HoldoutError, match="is a ledger or another database, or belongs"):
            write(report, tmp_path / f"holdout.db{ending}")
        assert (tmp_path / "holdout.db").read_bytes() == before

    def test_nor_over_a_link_to_one(self, tmp_path, report):
        make_holdout(f"sqlite:///{tmp_path}/holdout.db").status()
        (tmp_path / "link.html").symlink_to(tmp_path / "holdout.db")
        (tmp_path / "side.html").symlink_to(tmp_path / "holdout.db-wal")
        for link in ("link.html", "side.html"):
            with pytest.raises(HoldoutError, match="is a ledger"):
                write(report, tmp_path / link)

    def test_a_link_stays_one(self, tmp_path, report):
        (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
        assert write(report, tmp_path / "link.html") == tmp_path / "link.html"
        assert (tmp_path / "link.html").is_symlink()
        assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(report)

    def test_a_device_or_pipe_is_not_replaced(self, tmp_path, report):
        """As root, ``-o /dev/null`` would make that a file, for everyone on the machine."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(HoldoutError, match="Expected a file for the page"):
            write(report, tmp_path / "pipe")
        assert (tmp_path / "pipe").is_fifo()
        assert [path.name for path in tmp_path.iterdir()] == ["pipe"]

    def test_a_place_that_cannot_be(self, tmp_path, report):
        (tmp_path / "file").write_text("")
        with pytest.raises(HoldoutError, match="cannot: File exists"):
            write(report, tmp_path / "file" / "page.html")
        with pytest.raises(HoldoutError, match="cannot: embedded null"):
            write(report, Path("a\0b.html"))
        with pytest.raises(HoldoutError, match="cannot: File name too long"):
            write(report, tmp_path / ("x" * 300))


def test_the_headline_is_the_terminals(report):
    assert headline(report.holdouts[0]) in paragraph(report)
