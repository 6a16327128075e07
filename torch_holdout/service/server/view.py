"""What may be shown of a board, computed once for each position of its ledger."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from torch_holdout.holdout.board_results import Analyst, BoardAnswer, Standing
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.promises import promises
from torch_holdout.service.server.statistics import described
from torch_holdout.service.server.uploads import Layout

State = Literal["open", "ended", "closed"]
Interval = tuple[float, float]
_ANYTHING: Interval = (-math.inf, math.inf)


@final
@dataclass(frozen=True, kw_only=True)
class TeamRow:
    """One team's line of the leaderboard.

    Attributes:
        rank: Best and worst rank that the certificate leaves open; None without a value.
        team: Its name.
        value: The best released value of the first statistic; after closing, on the vault.
        interval: Where the population's value lies; None if nothing is certified.
        not_told_apart_from: Teams whose intervals overlap; after closing, without an ordering.
        submissions_left: What it may still submit.
        releases_left: What it may still be told.
        exhausted: Whether nothing is left of one of them.
        public_value: After closing, the best value on the public part (shake-up); else None.
    """

    rank: tuple[int, int] | None
    team: str
    value: float | None
    interval: Interval | None
    not_told_apart_from: tuple[str, ...]
    submissions_left: int
    releases_left: int
    exhausted: bool
    public_value: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON."""
        quota = {"submissions_left": self.submissions_left, "releases_left": self.releases_left}
        return {
            "rank": None if self.rank is None else list(self.rank),
            "team": self.team,
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "not_told_apart_from": list(self.not_told_apart_from),
            "quota": quota,
            "exhausted": self.exhausted,
            "public_value": self.public_value,
        }


@final
@dataclass(frozen=True, kw_only=True)
class View:
    """A board as readers may see it; the page and the JSON come from it.

    Attributes:
        facts: What ``Board.facts`` returns at this position.
        state: "open", "ended" (past ``closes``, not closed yet) or "closed".
        position: The ledger's position.
        chain: The head of the ledger's chain there.
        rows: The teams, best first.
        certified: Whether values have intervals; one without any is guidance.
        promise: Sentences of the box "What this board promises".
        budget: ``{"releases", "released", "submissions", "submitted", "nats"}``.
        results: After closing, the content of results.json; else None.
    """

    facts: dict[str, Any]
    state: State
    position: int
    chain: str
    rows: tuple[TeamRow, ...]
    certified: bool
    promise: tuple[str, ...]
    budget: dict[str, Any]
    results: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the leaderboard as JSON."""
        content = {
            "board": self.facts["name"],
            "state": self.state,
            "statistic": self.facts["first"],
            "certified": self.certified,
            "rows": [row.as_json() for row in self.rows],
            "promise": list(self.promise),
            "budget": self.budget,
            "position": self.position,
            "chain": self.chain,
        }
        return content if self.results is None else content | {"results": self.results}


def answer_json(answer: BoardAnswer) -> dict[str, Any]:
    """Return an answer as the API sends it."""
    results = {
        name: {
            "value": result.value,
            "interval": None if result.interval is None else list(result.interval),
        }
        for name, result in answer.results.items()
    }
    return {
        "submission": answer.submission,
        "position": answer.position,
        "kind": answer.kind,
        "better": answer.better,
        "results": results,
        "quota": {
            "submissions_left": answer.quota.submissions_left,
            "releases_left": answer.quota.releases_left,
        },
        "chain": answer.chain,
    }


def facts(config: BoardConfig, layout: Layout, standing: Standing, state: State) -> dict[str, Any]:
    """Return a board's public facts at one position."""
    feedback, claim = config.feedback, standing.claim
    return {
        "name": config.board.name,
        "title": config.board.title,
        "mode": feedback.mode,
        "state": state,
        "closes": config.board.closes_at,
        "closed_at": standing.closed_at,
        "rows": layout.rows,
        "upload": layout.upload,
        "classes": layout.classes,
        "dtypes": list(layout.dtypes),
        "media_types": list(layout.media_types),
        "largest": layout.largest,
        "public": config.data.public,
        "statistics": described(config.statistics),
        "first": config.first,
        "baseline": feedback.baseline,
        "step": feedback.step,
        "rule": feedback.gate_rule,
        "margin": feedback.margin,
        "finalists": config.limits.finalists,
        "budget": budget_of(config, standing),
        "certificate": {
            "certified": claim.certified,
            "half_width": dict(claim.half_width),
            "bracket": claim.bracket,
            "failure": claim.failure,
            "assumptions": list(claim.assumptions),
        },
        "position": standing.position,
        "events": standing.events,
        "chain": standing.chain,
    }


def budget_of(config: BoardConfig, standing: Standing) -> dict[str, Any]:
    """Return what is planned for all teams together, and how much of it is used."""
    own = config.limits
    planned = max(
        own.teams * own.submissions, sum(analyst.submissions for analyst in standing.analysts)
    )
    told = own.budget is not None
    return {
        "releases": standing.budget if told else None,
        "released": standing.budget - standing.budget_left if told else None,
        "submissions": planned,
        "submitted": standing.position,
        "nats": standing.nats,
    }


def view_of(
    config: BoardConfig,
    layout: Layout,
    standing: Standing,
    state: State,
    results: dict[str, Any] | None = None,
) -> View:
    """Return the view of a board at one position."""
    shown = facts(config, layout, standing, state)
    closed = state == "closed" and results is not None
    rows = closed_rows(config, standing, results or {}) if closed else live_rows(config, standing)
    intervals = [row.interval for row in rows if row.value is not None]
    certified = any(intervals) if intervals else standing.claim.certified
    return View(
        facts=shown,
        state=state,
        position=standing.position,
        chain=standing.chain,
        rows=rows,
        certified=certified,
        promise=promises(config, layout.rows, standing, results if closed else None),
        budget=shown["budget"],
        results=results if closed else None,
    )


def live_rows(config: BoardConfig, standing: Standing) -> tuple[TeamRow, ...]:
    """Return the lines of an open board: best released values, with intervals where certified."""
    first = config.first
    best = {answer.analyst: answer.results[first] for answer in standing.best}
    values = {team: result.value for team, result in best.items() if result.value is not None}
    intervals = {team: result.interval for team, result in best.items()}
    shown = intervals
    if any(intervals.values()):  # a value without one may be anything
        intervals = {team: own or _ANYTHING for team, own in intervals.items()}
    larger = described(config.statistics)[first]["mode"] == "max"
    order = sorted(values, key=lambda team: (-values[team] if larger else values[team], team))
    told = {team: _apart(team, order, intervals) for team in order}
    placed = {
        team: _rank(team, order, values, intervals, told[team], larger=larger) for team in order
    }
    analysts = {analyst.name: analyst for analyst in standing.analysts}
    unplaced = sorted(set(analysts) - set(order))
    return tuple(
        _row(
            analysts[team],
            config,
            rank=placed.get(team),
            value=values.get(team),
            interval=shown.get(team),
            apart=told.get(team, ()),
        )
        for team in (*order, *unplaced)
    )


def closed_rows(
    config: BoardConfig, standing: Standing, results: Mapping[str, Any]
) -> tuple[TeamRow, ...]:
    """Return the lines of a closed board: each team's best finalist, as judged."""
    first = config.first
    analysts = {analyst.name: analyst for analyst in standing.analysts}
    told = {answer.analyst: answer.results[first].value for answer in standing.best}
    chosen = {row["team"]: row for row in results["teams"]}
    rows = [
        _row(
            analysts[team],
            config,
            rank=(row["rank"][0], row["rank"][1]),
            value=row["results"][first]["value"],
            interval=tuple(row["results"][first]["interval"] or ()) or None,
            apart=tuple(row["not_told_apart_from"]),
            public=told.get(team),
        )
        for team, row in chosen.items()
        if team in analysts
    ]
    rest = sorted(set(analysts) - set(chosen))
    return (*rows, *(_row(analysts[team], config, public=told.get(team)) for team in rest))


def _row(
    analyst: Analyst,
    config: BoardConfig,
    *,
    rank: tuple[int, int] | None = None,
    value: float | None = None,
    interval: Any = None,
    apart: Sequence[str] = (),
    public: float | None = None,
) -> TeamRow:
    counts = config.feedback.mode in ("ladder", "record")
    return TeamRow(
        rank=rank,
        team=analyst.name,
        value=value,
        interval=interval,
        not_told_apart_from=tuple(apart),
        submissions_left=analyst.submissions_left,
        releases_left=analyst.releases_left,
        exhausted=analyst.submissions_left == 0 or (counts and analyst.releases_left == 0),
        public_value=public,
    )


def _apart(
    team: str, order: Sequence[str], intervals: Mapping[str, Interval | None]
) -> tuple[str, ...]:
    """Return the teams whose intervals overlap a team's; none where nothing is certified."""
    own = intervals[team]
    if own is None:
        return ()
    others = ((other, intervals[other]) for other in order if other != team)
    return tuple(other for other, its in others if its and its[0] <= own[1] and own[0] <= its[1])


def _rank(
    team: str,
    order: Sequence[str],
    values: Mapping[str, float],
    intervals: Mapping[str, Interval | None],
    overlapping: Sequence[str],
    *,
    larger: bool,
) -> tuple[int, int]:
    """Return best and worst rank; by the values alone where nothing is certified."""
    own = values[team]
    ahead = [other for other in order if (values[other] > own) == larger and values[other] != own]
    if intervals[team] is None:
        ties = sum(values[other] == own for other in order)
        return 1 + len(ahead), len(ahead) + ties
    certain = len(set(ahead) - set(overlapping))
    return 1 + certain, 1 + certain + len(overlapping)
