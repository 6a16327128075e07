"""A loop that keeps or reverts: certified, and "keep if better"; none of its changes is any good.

    python examples/agent_loop.py                    # about 20 seconds
    python examples/agent_loop.py --challenges 60    # longer

Two boards have the same labels. On both an agent challenges its own last kept predictions with
changes that are never better in truth: rows are right with the same probability, drawn anew. One
board keeps what beats the old by the certified rule, the other whatever looks better. Look at how
much each has kept, and at the vault, which was cut off before: nothing became better. The two
boards are left in temporary folders.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch_holdout as th
from leaderboard import hosted
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.hosting import close

ROWS, CLASSES, RIGHT = 4_000, 10, 0.8
RULES = {
    "certified": 'mode = "gate"\nrule = "certified"',
    "keep if better": 'mode = "gate"\nrule = "margin"\nmargin = 0.0001',
}


def attempt(labels: np.ndarray, old: np.ndarray | None, draws: np.random.Generator) -> np.ndarray:
    """Return predictions that are right with the same probability, whatever was kept."""
    wrong = (labels + draws.integers(1, CLASSES, len(labels))) % CLASSES
    fresh = np.where(draws.random(len(labels)) < RIGHT, labels, wrong)
    some = np.ones(len(labels), bool) if old is None else draws.random(len(labels)) < 0.3
    return np.where(some, fresh, fresh if old is None else old)


def loop(board: "th.service.client.RemoteBoard", labels: np.ndarray, challenges: int) -> list[int]:
    """Challenge the board; return which challenges were kept."""
    draws = np.random.default_rng(0)
    kept = attempt(labels, None, draws)
    board.submit(kept, final=True)  # the first one is there to be beaten
    numbers = []
    for number in range(challenges):
        new = attempt(labels, kept, draws)
        answer = board.submit(new)  # one bit: answer.accepted
        if answer.accepted:
            kept = new
            numbers.append(number)
            board.finalists([answer.submission])  # what the vault judges
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--challenges", type=int, default=25)
    arguments = parser.parse_args()
    labels = np.random.default_rng(1).integers(0, CLASSES, ROWS)
    limits = f"teams = 1\nsubmissions = {arguments.challenges + 1}"
    print(f"rule             kept of {arguments.challenges:<4} the last one on the vault")
    for rule, feedback in RULES.items():
        folder = Path(tempfile.mkdtemp()) / "board"
        with hosted(
            folder, labels, classes=CLASSES, public=0.3, feedback=feedback, limits=limits
        ) as (url, new_team):
            numbers = loop(th.remote(url, new_team("agent")), labels, arguments.challenges)
        results = close(read_config(folder / "board.toml"), folder / "vault.labels")
        found = results["finalists"][0]["results"]["accuracy"]
        low, high = found["interval"]
        print(f"{rule:<16} {len(numbers):<12} {found['value']:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
