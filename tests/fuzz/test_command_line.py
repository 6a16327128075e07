"""Random command lines, in one process: each ends with 0, 1 or 2 and a sentence.

The n-th command line is the same in every run.
"""

import contextlib
import io
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path

import pytest
import typer
from torch_holdout import cli

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import charged_records
from support.machines.fuzzing import Draws, Outcomes
from support.machines.soak import soak

COMMANDS = {
    f"{name} {part}".strip(): own
    for name, command in typer.main.get_command(cli.app).commands.items()
    for part, own in getattr(command, "commands", {"": command}).items()
}
ASSETS = Path(__file__).parents[1] / "assets"
WORDS = (
    *("", " ", "-", "--", "x", "0", "1", "-1", "5", "50", "200", "0.05", "0.5", "1e-9", "1e400"),
    *("nan", "inf", "-inf", "1_0", "0x10", "1" * 400, "1" * 5000, "\udcff\udcfe", "a\nb", "\u202e"),
    *(
        "x" * 5000,
        "early-stopping",
        "curve",
        "search",
        "val",
        "true",
        "null",
        "[]",
        "{}",
        "\x1b[31m",
    ),
)
FITTING = {
    "queries": ("1", "50", "200"),
    "size": ("100", "1000", "10000"),
    "budget": ("1", "5", "20"),
    "tolerance": ("0.05", "0.1", "0.5"),
    "statistics": ("1", "3"),
    "delta": ("1e-6",),
    "failure": ("0.05", "0.01"),
    "purpose": ("early-stopping", "curve", "search"),
    "name": ("val", "records"),
    "output": ("page.html", "folder/page.html"),
}
# These two run long: one argument is always one they refuse.
REFUSED = {"demo": (["--picture", "notes.txt"], ["--epochs", "1"]), "audit": (["--draws", "99"],)}


def damaged(source, target, *, at, content):
    shutil.copy(source, target)
    with open(target, "r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Ledgers, what looks like one, and what does not."""
    folder = tmp_path_factory.mktemp("places")
    whole = folder / "whole.db"
    holdout = make_holdout(f"sqlite:///{whole}", seed=1)
    for count in (20, 45):
        ask(holdout, count, f"query {count}")
    charged_records(f"sqlite:///{whole}")
    size = whole.stat().st_size
    damaged(whole, folder / "head.db", at=0, content=b"no database")
    damaged(whole, folder / "middle.db", at=size // 2, content=b"\xff" * 300)
    damaged(whole, folder / "pages.db", at=100, content=b"\x00" * 3000)
    (folder / "short.db").write_bytes(whole.read_bytes()[: size // 3])
    (folder / "empty.db").write_bytes(b"")
    (folder / "text.db").write_text("one\ntwo\n")
    with contextlib.closing(sqlite3.connect(folder / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE meta (key, value)")
        foreign.commit()
    for number, statement in enumerate(EDITS):
        edited = folder / f"edited{number}.db"
        shutil.copy(whole, edited)
        with contextlib.closing(sqlite3.connect(edited)) as connection:
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
            for table in tables:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute(statement.format(table=table))
            connection.commit()
    for asset in ASSETS.glob("*.db"):
        shutil.copy(asset, folder)
    (folder / "loop.db").symlink_to(folder / "loop.db")
    (folder / "dangling.db").symlink_to(folder / "nothing.db")
    (folder / "link.db").symlink_to(whole)
    (folder / "folder").mkdir()
    shutil.copy(whole, os.fsencode(folder) + b"/na\xffme.db")
    (folder / "notes.txt").write_text("keep me")
    return folder


EDITS = (
    'UPDATE "{table}" SET rowid = rowid, value = NULL',
    "UPDATE \"{table}\" SET name = x'ff00fe'",
    'UPDATE "{table}" SET registration = \'{{"size": "x"}}\'',
    'UPDATE "{table}" SET registration = \'{{"size": 1e999, "statistics": {{}}}}\'',
    "UPDATE \"{table}\" SET value = 'text'",
    'UPDATE "{table}" SET value = 9e999',
    'UPDATE "{table}" SET position = -1',
    'UPDATE "{table}" SET budget = 9223372036854775807',
    'DELETE FROM "{table}"',
    'DROP TABLE "{table}"',
)
URLS = (
    *("memory://", "memory://x", "sqlite://", "sqlite:///", "sqlite:////", "sqlite:///nothing.db"),
    *("sqlite:///whole.db?mode=rw", "mysql://x", "http://x/y", "://", "sqlite:///\udcff.db"),
    *("postgresql://127.0.0.1:1/x", "postgresql://127.0.0.1:99999/x", "postgresql://[", "x://["),
    *("nothing.db", "na\udcffme.db", "no\udcffname.db", "n" * 300 + ".db", "a/b/c.db", "/dev/null"),
    *("~", ".", "..", "/", "%2e", "a%00b.db", "#x", "?", "sqlite:///%ff.db", "file:whole.db"),
)


def argv_of(draws, folder):
    """Draw a command line: a command, some of its options, values that fit or do not."""
    if draws.random() < 0.03:
        return [draws.choice(WORDS) for _ in range(draws.randrange(4))]
    name = draws.choice(sorted(COMMANDS))
    words, odd = name.split(), draws.random() < 0.7
    for option in COMMANDS[name].params:
        if option.param_type_name == "argument":
            if draws.random() < 0.97:
                words.append(place_of(draws, folder) if odd else "whole.db")
        elif option.required or draws.random() < 0.35:
            words += option_of(draws, option, folder, odd)
    if draws.random() < 0.05:
        words.insert(draws.randrange(len(words) + 1), draws.choice(WORDS))
    return words + draws.choice(REFUSED.get(name, ([],)))  # the last one counts


def place_of(draws, folder):
    if draws.random() < 0.25:
        return "whole.db"
    return draws.choice((*sorted(os.listdir(folder)), *URLS, *WORDS))


def option_of(draws, option, folder, odd):
    spelled = draws.choice((*option.opts, *option.secondary_opts))
    if option.is_flag:
        return [spelled]
    fitting = draws.choice(FITTING.get(option.name, ("5",)))
    strange = draws.choice((*WORDS, *URLS, *sorted(os.listdir(folder))))
    value = strange if odd and draws.random() < 0.5 else fitting
    return [f"{spelled}={value}"] if draws.random() < 0.3 else [spelled, value]


def run(words):
    """Run the program; return its exit code and what it wrote, as a terminal would take it."""
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    ]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else end.code
    return code, *(stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)


def require_sentence(code, output, errors):
    """Raise unless a run ended as it may."""
    if code not in (0, 1, 2):
        raise AssertionError(f"exit code {code!r}")
    if "Traceback" in output + errors:
        raise AssertionError("a traceback")
    if code == 2 and not errors.strip():
        raise AssertionError("no sentence")


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 300))
def test_every_command_line_ends_with_a_sentence(places, monkeypatch, tmp_path):
    shutil.copytree(places, tmp_path / "places", symlinks=True)
    monkeypatch.chdir(tmp_path / "places")
    outcomes, started, codes = Outcomes(), time.perf_counter(), {}
    for number in range(soak(2_000, 150)):
        words = argv_of(Draws(f"command line {number}"), places)
        monkeypatch.setattr(sys, "argv", ["torch-holdout", *words])

        def call(words=words):
            ended = run(words)
            require_sentence(*ended)
            codes[ended[0]] = codes.get(ended[0], 0) + 1

        known = (" ".join(words[:length]) for length in (1, 2))
        command = next((name for name in known if name in COMMANDS), "(no command)")
        outcomes.run(command, call, about=lambda: f"{number}: {words!r}"[:300])  # noqa: B023
    print(outcomes.summary("the command line", time.perf_counter() - started), f"Codes: {codes}.")
    assert outcomes.findings == []
    assert set(COMMANDS) <= set(outcomes.called)
    assert {0, 2} <= set(codes)
    assert (tmp_path / "places" / "notes.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    "ended",
    [
        (3, "", "torch-holdout: a sentence"),
        (2, "", ""),
        (1, "Traceback (most recent call last)", ""),
    ],
)
def test_other_ends_are_found(ended):
    with pytest.raises(AssertionError):
        require_sentence(*ended)
