"""A ratio on two real gloo ranks: shares, padding or equal copies are one pair of sums."""

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import PartialPassError

from support.machines.ranks import on_two_ranks

pytestmark = pytest.mark.integration
SIZE = 21
TOKENS = 64 + (torch.arange(SIZE) * 7) % 65
WAYS = {
    "shares": lambda rank: torch.arange(rank, SIZE, 2),
    "padded": lambda rank: torch.arange(rank, SIZE + 1, 2) % SIZE,
    "copies": lambda rank: torch.arange(SIZE),
}


def account(url):
    loss = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(64, 128), 0.0, 10.0)
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"loss": loss, "acc": th.ZeroOne()},
        mechanism=th.Ladder(step=0.01), budget=9,
    )  # fmt: skip


def asked(holdout, rows, query, other=0, **ranks):
    sums = {name: holdout.accumulator(name, **ranks) for name in holdout.statistics}
    tokens = TOKENS[rows] - other
    sums["loss"].update(1.3 * tokens * (0.5 + TOKENS[rows] / 128), tokens)
    sums["acc"].update(rows % 3 > 0)
    return {name: answer.value for name, answer in holdout.release_all(sums, query=query).items()}


def scenario(rank, url):
    """Every way to share the rows, each on an account of its own, and ranks that differ."""
    found = {}
    for way, rows in WAYS.items():
        found[way] = asked(account(f"{url}.{way}"), rows(rank), "a", rank=rank, world=2)
    try:
        rows = WAYS["copies"](rank)  # as many values on both, of which one rank's tokens differ
        asked(account(url), rows, "b", other=rank * (rows == 3), rank=rank, world=2)
    except PartialPassError as error:
        found["differ"] = "they differ" in str(error)
    return found


def test_two_ranks_give_the_numbers_of_one(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    first, second = on_two_ranks(scenario, url)
    assert first == second
    assert first.pop("differ")
    alone = account("memory://")
    expected = asked(alone, torch.arange(SIZE), "a")
    assert first == dict.fromkeys(WAYS, expected)
    exact = {value.value for value in alone.close().values}
    for way in WAYS:
        assert {value.value for value in account(f"{url}.{way}").close().values} == exact
    assert account(url).status().queries == 0
