"""Boards in a folder: labels, a configuration, uploads, teams."""

import io
import os
from pathlib import Path

import numpy as np
from torch_holdout._noise.fixed import fixed_integers
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.uploads import NPY, digest

ROWS = 1_000
TEXT = """
[board]
name = "digits"
title = "Digits"
{board}
[data]
labels = "labels.npy"
{data}
{statistics}
[feedback]
{feedback}
[limits]
{limits}
[store]
ledger = "{ledger}"
{server}
"""
PARTS = {
    "board": "",
    "data": 'classes = 10\nupload = "classes"\npublic = 0.3',
    "statistics": '[statistics.accuracy]\nkind = "accuracy"',
    "feedback": 'mode = "ladder"\nbaseline = 0.55\nstep = 0.01',
    "limits": "teams = 5\nsubmissions = 10\nreleases = 4\nbudget = 20",
    "ledger": "sqlite:///board.db",
    "server": "",
}
SEALED = {
    "data": 'classes = 10\nupload = "classes"\npublic = 0',
    "feedback": 'mode = "sealed"',
    "limits": "teams = 5\nsubmissions = 10",
}
GATE = {
    "feedback": 'mode = "gate"\nrule = "certified"',
    "limits": "teams = 5\nsubmissions = 10",
}
RECORD = {"feedback": 'mode = "record"\nbaseline = 0.55\nstep = 0.01'}


def digits(rows=ROWS, seed=0):
    """The classes that the host keeps for herself."""
    return fixed_integers(10, (rows,), seed=seed).numpy()


def save_private(path, array):
    """Write an array so that only its owner can read it."""
    stream = io.BytesIO()
    np.save(stream, array)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(stream.getvalue())


def configured(folder, target=None, **parts):
    """Write labels and board.toml into a folder; return the configuration."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_private(folder / "labels.npy", digits() if target is None else target)
    (folder / "board.toml").write_text(TEXT.format(**(PARTS | parts)))
    return read_config(folder / "board.toml")


def opened(folder, target=None, **parts):
    """Return an initialised board without teams."""
    config = configured(folder, target, **parts)
    hosting.initialise(config)
    return Board.open(config)


def with_teams(folder, *names, target=None, **parts):
    """Return an initialised board, and a caller for each team."""
    board = opened(folder, target, **parts)
    tokens = {name: hosting.add_team(board.config, name) for name in names}
    return board, {name: board.caller(token) for name, token in tokens.items()}


def guesses(right, target=None, shift=1, start=0):
    """Return predictions of which the first ``right`` rows, from ``start``, are right."""
    target = digits() if target is None else target
    wrong = (target + shift) % 10
    rows = (np.arange(len(target)) - start) % len(target) < right
    return np.where(rows, target, wrong).astype(np.uint8)


def npy(array):
    """Return an array as the body of an upload."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def put(board, caller, array, *, final=False):
    """Submit an array; return whether it is new, and the answer."""
    body = npy(array) if isinstance(array, np.ndarray) else array
    return board.submit(caller, digest(body), body, NPY, final=final)
