"""The table of the page about ratios is what the code says."""

import re

import pytest
import torch
import torch_holdout as th
from torch_holdout._shared.text import floor, up

from support.machines.site import ROOT

ROWS = re.findall(
    r"^\| (\d+) \| (\S+) \| (\S+) \| ([\d.]+) to ([\d.]+) \|$",
    (ROOT / "docs/how-to/ratios.md").read_text(),
    re.MULTILINE,
)
SIZE = 10_000


def account(low, mechanism, budget):
    loss = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(low, 128), 0.0, 10.0)
    return th.ReusableHoldout(
        "memory://", name="val", size=SIZE, statistics={"loss": loss}, mechanism=mechanism,
        budget=budget,
    )  # fmt: skip


def known(tolerance):
    return "nothing" if tolerance >= 10 else f"+-{up(tolerance)}"


def test_the_table_is_there():
    assert [int(low) for low, *_ in ROWS] == [0, 1, 32, 64]


@pytest.mark.parametrize(("low", "sealed", "live", "least", "most"), ROWS)
def test_the_table(low, sealed, live, least, most):
    values = account(int(low), th.Ladder(step=0.005), 20)
    last = values.prices().choices["release"].last.by_statistic["loss"]
    decisions = account(int(low), th.Sealed(evaluations=200), 1)
    assert (sealed, live) == (known(decisions.certificate().user_tolerance["loss"]), known(last))
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(64, 129, (SIZE,), generator=generator)
    sums = decisions.accumulator("loss")
    sums.update(tokens * (2 + torch.rand(SIZE, generator=generator)), tokens)
    with decisions.run() as run:
        run.evaluate({"loss": sums}, query="a")
    (value,) = decisions.close().values
    assert f"{value.value:.3f}" == "2.504"
    assert (float(least), float(most)) == (floor(value.low, 3), -floor(-value.high, 3))
