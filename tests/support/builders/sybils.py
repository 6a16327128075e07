"""One person with many accounts on a board, who builds a last file from all they were told."""

import math
from typing import NamedTuple

import torch
from torch_holdout.bounds.closing import exact_interval
from torch_holdout.bounds.codes import board_bracket

from support.builders.board_holdouts import make_board, sha


class Attack(NamedTuple):
    """What the accounts hand in, and the public baseline.

    Attributes:
        baseline: The accuracy to beat.
        flips: None: coin flips. Else: a decent file, a share of its rows flipped at random.
    """

    baseline: float
    flips: float | None = None


ATTACKS = {
    "coin flips, every first value told": Attack(0.0),
    "coin flips above one half": Attack(0.5),
    "coin flips above .55": Attack(0.55),
    "a decent file with a fifth flipped": Attack(0.645, flips=0.2),
}
DECENT = 0.75  # of the decent file, in the population


class Outcome(NamedTuple):
    """The last file: its accuracy on the board's rows, in the population, and c of two claims.

    Attributes:
        told: How many accounts were told a value.
        rows: The board's rows.
        successes: On how many of them it is right.
        population: How often it is right in the population.
        board: c of its certificate.
        own: c of one that counts only what its own account was told: nothing.
    """

    told: int
    rows: int
    successes: int
    population: float
    board: float
    own: float

    @property
    def overfit(self):
        return self.successes / self.rows - self.population

    def covered(self, bracket):
        low, high = exact_interval(self.successes, self.rows, bracket)
        return low <= self.population <= high


def attacked(attack, *, rows, accounts, seed):
    """Ask a real board under many accounts, and then about the file that they make together.

    A row is right in a file or not; on coin flips every file is right on half of the population,
    whatever it is made from.
    """
    drawn = torch.Generator().manual_seed(seed)
    board = make_board(
        f"memory://sybil {attack} {seed}", size=rows, budget=accounts + 1, submissions=accounts + 1,
        vault_size=0, feedback={"baseline": attack.baseline, "step": 0.01},
    )  # fmt: skip
    guesses = flips_of(attack, accounts, rows, drawn)
    truth = base_of(attack, rows, drawn)
    gains, told = torch.zeros(accounts), 0
    for number in range(accounts):
        name = f"account {number}"
        board.add_analyst(name, submissions=1, releases=1)
        right = guesses[number] ^ truth
        answer = board.submit(name, {"accuracy": right}, query=sha(number))
        told += answer.kind == "release"
        if answer.kind == "release":
            gains[number] = answer.results["accuracy"].value - expected_of(attack)
        elif attack.baseline <= expected_of(attack):  # "not better" is worse than expected
            gains[number] = -0.4 / math.sqrt(rows)
    said = board.standing().nats
    board.add_analyst("the last one", submissions=1, releases=1)
    last = voted(attack, guesses, gains)
    board.submit("the last one", {"accuracy": last ^ truth}, query=sha("last"))
    facts = {"position": accounts + 1, "planned": accounts + 1, "failure": 0.05}
    return Outcome(
        told=told,
        rows=rows,
        successes=int((last ^ truth).sum()),
        population=population_of(attack, gains, drawn),
        board=board_bracket(said=said, **facts),
        own=board_bracket(said=0.0, **facts),
    )


def flips_of(attack, files, rows, drawn):
    """The accounts' files as flips of a base file: fair coins, or a share of the rows."""
    share = 0.5 if attack.flips is None else attack.flips
    return torch.rand(files, rows, generator=drawn) < share


def base_of(attack, rows, drawn):
    """Where the base file is right: on half of the rows, or on more."""
    return torch.rand(rows, generator=drawn) < (0.5 if attack.flips is None else DECENT)


def expected_of(attack):
    """What a file of an account is right on in the population."""
    if attack.flips is None:
        return 0.5
    return DECENT * (1 - attack.flips) + (1 - DECENT) * attack.flips


def voted(attack, guesses, gains):
    """Flip a row if the told files, weighted by their gains, speak for it.

    Against the share that each flips: a file with a gain has flipped the right rows.
    """
    share = 0.5 if attack.flips is None else attack.flips
    return gains @ (guesses.float() - share) > 0


def population_of(attack, gains, drawn, rows=100_000):
    """How often the last file is right in the population: exactly on coin flips, else measured.

    On new rows the files flip as ever, independent of whether the base file is right.
    """
    if attack.flips is None or not gains.any():
        return 0.5 if attack.flips is None else DECENT
    flipped = 0
    for _ in range(20):
        own = torch.rand(len(gains), rows // 20, generator=drawn) < attack.flips
        flipped += int(voted(attack, own, gains).sum())
    share = flipped / rows
    return DECENT * (1 - share) + (1 - DECENT) * share
