"""What a board's answers will be worth, before it is opened."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class BoardPrice:
    """One way to run a board: what the last submission's interval is.

    Attributes:
        mode: ``"sealed"``, ``"vault"``, ``"record"``, ``"gate"`` or ``"ladder"``.
        rows: Rows it is judged on.
        bracket: c, in nats.
        half_widths: By error (or accuracy): half the exact interval, None if .25 or more.
    """

    mode: str
    rows: int
    bracket: float
    half_widths: dict[float, float | None]


@final
@dataclass(frozen=True, kw_only=True)
class BoardPlan:
    """What each mode is worth for a number of rows, teams and submissions."""

    rows: int
    teams: int
    submissions: int
    public: float
    finalists: int
    failure: float
    prices: tuple[BoardPrice, ...]


def plan_board(
    rows: int,
    teams: int,
    submissions: int,
    *,
    public: float = 0.3,
    finalists: int = 2,
    releases: int | None = None,
    step: float = 0.01,
    kept: float = 0.1,
    failure: float = 0.05,
    errors: tuple[float, ...] = (0.5, 0.2, 0.05),
) -> BoardPlan:
    """Return what each mode is worth.

    Args:
        rows: Rows with labels, of both parts together.
        teams: How many analysts.
        submissions: Of each, in all.
        public: The share of rows that gives feedback before the vault is opened.
        finalists: Of each team (no more than it submits).
        releases: Values told to each team by its own Ladder; None: as usual for that many.
        step: How much each improves, normalised.
        kept: The share of challenges that are kept.
        failure: The probability that any interval is wrong.
        errors: At which errors half-widths are shown.
    """
    raise NotImplementedError
