"""What a board's answers will be worth, before it is opened.

Certificates pay for what happens; a plan assumes it. Of the last submission, the worst: records
come as among exchangeable submissions; a given share of challenges is kept; each team's Ladder
tells a first value, for which half of the answers are still possible, and then improves on an error
of .3 by equal steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

from torch_holdout._shared.checks import require_between, require_failure, require_whole
from torch_holdout._shared.text import up
from torch_holdout.bounds.certificate import SMALLEST_FAILURE
from torch_holdout.bounds.codes import board_bracket, step_price
from torch_holdout.bounds.single_query import binomial_interval
from torch_holdout.bounds.symbols import kt_price, record_mixture
from torch_holdout.errors import InvalidArgumentError

BoardMode = Literal["sealed", "vault", "record", "gate", "ladder"]
_USELESS = 0.25  # a half-width that says nothing
_ERROR = 0.3  # of a team that has been told its first value
_RELEASES = ((1, 1), (5, 3), (50, 8))  # by submissions of a team: as Ladders usually tell
_LARGEST = 10**9
_COLUMNS: dict[BoardMode, str] = {
    "sealed": "sealed, all rows",
    "vault": "final on the vault",
    "record": "record",
    "gate": "gate",
    "ladder": "own Ladders",
}


@final
@dataclass(frozen=True, kw_only=True)
class BoardPrice:
    """One way to run a board: what the last submission's interval is.

    Attributes:
        mode: ``"sealed"``, ``"vault"`` (the final of every board with one), ``"record"``,
            ``"gate"`` or ``"ladder"``.
        rows: Rows it is judged on.
        bracket: c, in nats.
        half_widths: By error (or accuracy): half the exact interval; None if it is .25 or more.

    Example:
        >>> sealed = plan_board(10_000, teams=5, submissions=5).price("sealed")
        >>> isinstance(sealed, BoardPrice), round(sealed.bracket, 1), sealed.rows
        (True, 6.9, 10000)
    """

    mode: BoardMode
    rows: int
    bracket: float
    half_widths: dict[float, float | None]

    @property
    def text(self) -> str:
        """The half-widths, for a table."""
        widths = self.half_widths.values()
        if all(width is None for width in widths):
            return "-"
        return "/".join("-" if width is None else up(width) for width in widths)


@final
@dataclass(frozen=True, kw_only=True)
class BoardPlan:
    """What each mode is worth for a number of rows, teams and submissions.

    Attributes:
        rows: Rows with labels, of both parts together.
        teams: How many teams.
        submissions: Of each, in all.
        public: The share of rows that gives feedback before the vault is opened.
        finalists: Of each team.
        releases: Values told to each team by its own Ladder.
        failure: The probability that any interval is wrong.
        prices: One for each mode; a gate needs two submissions of a team.

    Example:
        >>> plan = plan_board(10_000, teams=50, submissions=5)
        >>> isinstance(plan, BoardPlan), [price.mode for price in plan.prices]
        (True, ['sealed', 'vault', 'record', 'gate', 'ladder'])
    """

    rows: int
    teams: int
    submissions: int
    public: float
    finalists: int
    releases: int
    failure: float
    prices: tuple[BoardPrice, ...]

    def price(self, mode: str) -> BoardPrice:
        """Return the price of one mode."""
        for price in self.prices:
            if price.mode == mode:
                return price
        raise InvalidArgumentError(
            f"Expected one of the modes {[price.mode for price in self.prices]}, but got {mode!r}."
        )

    def __str__(self) -> str:
        errors = "/".join(f"{error:g}" for error in self.prices[0].half_widths)
        lines = [
            f"{self.rows:,} rows, {self.teams} x {self.submissions} submissions, {self.finalists} "
            f"finalists of each; half-widths of the last one at error {errors}",
        ]
        for price in self.prices:
            label = f"{_COLUMNS[price.mode]} ({price.rows:,} rows)"
            lines.append(f"  {label:<34}c = {price.bracket:>9,.1f}   {price.text}")
        return "\n".join(lines)


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
    errors: Sequence[float] = (0.5, 0.2, 0.05),
) -> BoardPlan:
    """Return what each mode is worth: record, gate and ladder with feedback on all rows.

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

    Example:
        >>> print(plan_board(10_000, teams=5, submissions=5))
        10,000 rows, 5 x 5 submissions, 2 finalists of each; half-widths of the last one at ...
          sealed, all rows (10,000 rows)    c =       6.9   0.0155/0.0125/0.00679
          final on the vault (7,000 rows)   c =       6.0   0.0169/0.0135/0.00739
          record (10,000 rows)              c =      35.2   0.0401/0.0322/0.0176
          gate (10,000 rows)                c =      15.1   0.0251/0.0201/0.011
          own Ladders (10,000 rows)         c =      95.0   0.0674/0.054/0.0297
    """
    for name, value in (("rows", rows), ("teams", teams), ("submissions", submissions)):
        require_whole(name, value, 1, _LARGEST)
    require_whole("finalists", finalists, 1, _LARGEST)
    require_between("public", public, 0, 1)
    require_between("kept", kept, 0, 1)
    require_between("step", step, 0, 1, ends=False)
    require_failure(failure, SMALLEST_FAILURE)
    if releases is None:
        releases = _usual_releases(submissions)
    require_whole("releases", releases, 0, submissions)
    finalists = min(finalists, submissions)
    scene = _Scene(rows, teams, submissions, float(failure))
    priced = partial(_priced, errors=tuple(errors))
    vault = rows - round(public * rows)
    prices = [priced("sealed", rows, scene.silent(teams * submissions))]
    if vault:
        prices.append(priced("vault", vault, scene.silent(finalists * teams)))
    prices.append(priced("record", rows, scene.records(step)))
    if submissions > 1:
        prices.append(priced("gate", rows, scene.challenges(kept)))
    prices.append(priced("ladder", rows, scene.ladders(releases, step)))
    return BoardPlan(
        rows=rows,
        teams=teams,
        submissions=submissions,
        public=float(public),
        finalists=finalists,
        releases=releases,
        failure=float(failure),
        prices=tuple(prices),
    )


@final
@dataclass(frozen=True)
class _Scene:
    """What is assumed to happen; each method returns c of the last submission."""

    rows: int
    teams: int
    each: int
    failure: float

    @property
    def total(self) -> int:
        """All submissions."""
        return self.teams * self.each

    def silent(self, queries: int) -> float:
        """Return the bracket of queries of which nothing was told: all share the failure alike."""
        return math.log(2 * queries / self.failure)

    def records(self, step: float) -> float:
        """Return the bracket of one Ladder for all, with harmonically many records.

        They come evenly spaced in the logarithm.
        """
        before = self.total - 1
        records = min(round(_harmonic(self.total)), before)
        # Among exchangeable submissions: no record at all costs ln N, each one at r ln r more.
        rank = math.log(self.total) + records / 2 * math.log(max(1, before))
        flags = record_mixture(rank, records, before - records)
        return self._last(flags + self._values(round(_harmonic(self.total)), step))

    def challenges(self, kept: float) -> float:
        """Return the bracket of gates: a share of all but the first submissions is kept."""
        before = max(0, self.total - self.teams - 1)
        keeps = round(kept * before)
        return self._last(kt_price(keeps, before - keeps))

    def ladders(self, releases: int, step: float) -> float:
        """Return the bracket of a Ladder for each team."""
        told = min(self.teams * releases, self.total - 1)
        flags = kt_price(told, self.total - 1 - told)
        return self._last(flags + self.teams * self._values(releases, step))

    def _values(self, releases: int, step: float) -> float:
        """Return the price of a first value and of equal improvements after it."""
        if not releases:
            return 0.0
        grid = 2 ** math.ceil(math.log2(max(4 * math.sqrt(self.rows), 1 / step)))
        steps, better = max(1, round(step * grid)), max(1, int(_ERROR * grid))
        nats = math.log(grid)
        for _ in range(releases - 1):
            nats += step_price(better, min(steps, better))
            better = max(1, better - steps)
        return nats

    def _last(self, said: float) -> float:
        return board_bracket(
            position=self.total, planned=self.total, said=said, failure=self.failure
        )


def _priced(mode: BoardMode, rows: int, bracket: float, *, errors: tuple[float, ...]) -> BoardPrice:
    widths = {}
    for error in errors:
        require_between("errors", error, 0, 1)
        low, high = binomial_interval(round(error * rows), rows, bracket)
        half = (high - low) / 2
        widths[float(error)] = half if half < _USELESS else None
    return BoardPrice(mode=mode, rows=rows, bracket=bracket, half_widths=widths)


def _usual_releases(submissions: int) -> int:
    """Return how many values a Ladder usually tells, between those that were seen."""
    (few, least), *others = _RELEASES
    for many, most in others:
        if submissions <= many:
            share = math.log(submissions / few) / math.log(many / few)
            return round(least + share * (most - least))
        few, least = many, most
    return least


def _harmonic(count: int) -> float:
    """Return the expected number of records among exchangeable submissions."""
    if count > 10**6:
        return math.log(count) + 0.5772156649
    return math.fsum(1 / place for place in range(1, count + 1))
