"""Small boards for tests."""

import hashlib

import torch
import torch_holdout as th
from torch_holdout.holdout.board import BoardHoldout, Feedback

ROWS, VAULT = 1000, 2000
MODES = {
    "ladder": {"baseline": 0.55, "step": 0.01},
    "record": {"baseline": 0.55, "step": 0.01},
    "gate": {"rule": "certified"},
    "sealed": {},
}


def make_board(url="memory://", mode="ladder", feedback=None, **changes):
    """A board of 1,000 rows with one accuracy, a vault of 2,000 and a budget of 16."""
    values = mode in ("ladder", "record")
    arguments = {
        "name": "digits",
        "size": ROWS,
        "statistics": {"accuracy": th.ZeroOne()},
        "feedback": Feedback(mode=mode, **{**MODES[mode], **(feedback or {})}),
        "budget": 16 if values else 0,
        "submissions": 40,
        "vault_size": VAULT,
    }
    return BoardHoldout(url, **{**arguments, **changes})


def with_teams(board, *names, submissions=10, releases=None):
    """The board after some analysts were added."""
    values = board._registration.feedback.shows_values
    releases = (8 if values else 0) if releases is None else releases
    for name in names or ("alpha", "beta"):
        board.add_analyst(name, submissions=submissions, releases=releases)
    return board


def sha(text):
    """A content's address."""
    return hashlib.sha256(str(text).encode()).hexdigest()


def right(count, size=ROWS):
    """Values of a submission with ``count`` right predictions, the first ones."""
    return {"accuracy": torch.arange(size) < count}


def submit(board, count, query, analyst="alpha", **options):
    """Submit ``count`` right predictions under a name of their own."""
    values = {} if board._registration.feedback.mode == "sealed" else right(count)
    return board.submit(analyst, values, query=sha(query), **options)
