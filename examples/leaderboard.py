"""A board with labels of its own: three teams, one with many accounts, and the vault at the end.

    python examples/leaderboard.py                     # about 20 seconds, on scikit-learn's digits
    python examples/leaderboard.py --folder my-board   # keeps the board: results.html to look at

The host starts `torch-holdout serve`; teams submit predictions over HTTP. One of them opens 40 more
accounts, submits its file with random rows changed, and keeps what is told to be better. Look at
the last table: what that gains on the public part is not there on the vault, which nobody was told
anything about. Without --folder the board is in a new temporary folder.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch_holdout as th
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from torch_holdout.service.server import run
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.hosting import add_team, close, initialise

TOML = """
[board]
name = "digits"
title = "Digits"
[data]
labels = "labels.npy"
classes = {classes}
upload = "classes"
public = {public}
[statistics.accuracy]
kind = "accuracy"
[feedback]
{feedback}
[limits]
{limits}
[store]
ledger = "sqlite:///board.db"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
requests_per_minute = 100000
"""
LADDER = 'mode = "ladder"\nbaseline = 0.5\nstep = 0.005'
QUOTAS = "teams = 60\nsubmissions = 20\nreleases = 5\nbudget = 300"


@contextlib.contextmanager
def hosted(
    folder: Path, labels: np.ndarray, *, classes: int = 10, public: float = 0.3,
    feedback: str = LADDER, limits: str = QUOTAS,
) -> Iterator[tuple[str, Callable[[str], str]]]:  # fmt: skip
    """Serve a board from a process of its own; yield its address, and what adds a team."""
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", labels)
    (folder / "labels.npy").chmod(0o600)
    text = TOML.format(classes=classes, public=public, feedback=feedback, limits=limits)
    (folder / "board.toml").write_text(text)
    config = read_config(folder / "board.toml")
    initialise(config)  # what `torch-holdout board init board.toml` does
    pages, told = get_context("spawn").Pipe(duplex=False)
    server = get_context("spawn").Process(target=serve, args=(folder, told))
    server.start()
    told.close()  # a server that dies says so: recv ends with EOFError
    try:
        yield pages.recv(), lambda name: add_team(config, name)
    finally:
        server.terminate()  # as systemd does; what was begun is answered
        server.join()


def serve(folder: Path, told: Connection) -> None:
    """Do what `torch-holdout serve board.toml` does; tell the page's address."""
    with (folder / "server.log").open("w") as sys.stderr:
        run.serve(folder / "board.toml", announce=lambda page, admin: told.send(page))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="a new folder; default: a temporary one")
    parser.add_argument("--accounts", type=int, default=40)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp()) / "board"

    x, y = load_digits(return_X_y=True)
    x, y, rows = x[:900], y[:900], x[900:]  # what everybody has
    labels = load_digits().target[900:]  # what the host alone has
    models = {"neighbours": KNeighborsClassifier(), "bayes": GaussianNB()}
    models["logistic"] = LogisticRegression(max_iter=2000)
    with hosted(folder, labels.astype(np.int64)) as (url, new_team):
        print(f"{url}\nteam         told")
        tokens = {name: new_team(name) for name in models}
        for name, model in models.items():
            answer = th.remote(url, tokens[name]).submit(model.fit(x, y).predict(rows), final=True)
            print(f"{name:<12} {answer.value:.4f}")

        # The same person again, under other names: each is told one value, and the best is kept.
        chances = models["bayes"].predict_proba(rows)
        own, second = chances.argsort(1)[:, -1], chances.argsort(1)[:, -2]
        unsure = chances.max(1).argsort()[:200]
        draws, best, value = np.random.default_rng(0), own, 0.0
        for number in range(arguments.accounts):
            some = draws.choice(unsure, 8, replace=False)
            tried = np.where(np.isin(np.arange(len(rows)), some), own + second - best, best)
            answer = th.remote(url, new_team(f"account {number}")).submit(tried)
            if (answer.value or 0.0) > value:
                best, value = tried, answer.value or 0.0
        th.remote(url, tokens["bayes"]).submit(best, final=True)
        print(f"{'bayes again':<12} {value:.4f}  chosen by {arguments.accounts} more accounts")
        told = th.remote(url).leaderboard()["rows"]

    print(f"\n{len(told)} accounts in the leaderboard. The board is closed, the vault is opened:")
    results = close(read_config(folder / "board.toml"), folder / "vault.labels")
    print("finalist     told   vault  95 % interval")
    for entry in results["finalists"]:
        if entry["team"] in models:
            found = entry["results"]["accuracy"]
            low, high = found["interval"]
            shown = "-" if entry["told"] is None else f"{entry['told']:.4f}"
            print(f"{entry['team']:<12} {shown:<6} {found['value']:.4f} {low:.3f} to {high:.3f}")
    print(f"Written: {folder}/results.html and results.json")


if __name__ == "__main__":
    main()
