"""The half-widths of the page about a board's feedback come from ``plan_board``."""

import re

import pytest
from torch_holdout.planning.boards import plan_board

from support.machines.site import ROOT

PAGE = (ROOT / "docs" / "how-to" / "choose-the-feedback.md").read_text()
ROWS = re.findall(r"^\| (\d+) x (\d+) \| (.+) \|$", PAGE, re.MULTILINE)


def shown(width):
    """Three digits, as the page has them."""
    return "none" if width is None else f"{width:.4f}"[1:] if width < 0.1 else f"{width:.3f}"[1:]


@pytest.mark.parametrize(("teams", "submissions", "cells"), ROWS)
def test_the_table_is_what_is_planned(teams, submissions, cells):
    plan = plan_board(10_000, int(teams), int(submissions))
    widths = [shown(price.half_widths[0.2]) for price in plan.prices]
    assert cells.replace("*", "").split(" | ") == widths


def test_there_is_a_table():
    assert len(ROWS) == 3
