"""Closing a board: which submissions are judged, and what is written about them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from torch_holdout._shared.private_files import read_private
from torch_holdout.holdout.board_results import BoardAnswer, BoardResults, Finalist
from torch_holdout.service.server.config import BoardConfig

RESULTS_JSON, RESULTS_PAGE = "results.json", "results.html"
_LARGEST = 200_000_000  # bytes of results.json


def judged(
    config: BoardConfig,
    answers: Sequence[BoardAnswer],
    named: Mapping[str, Sequence[str]],
) -> dict[str, tuple[str, ...]]:
    """Return the submissions that are judged, by team: of a sealed board all of them.

    Else those that a team has named; without any its best released one and its last one, behind a
    gate its incumbent. All of it follows from the ledger and the teams' lists: the vault has no
    part in it.
    """
    of_team: dict[str, list[BoardAnswer]] = {}
    for answer in answers:
        of_team.setdefault(answer.analyst, []).append(answer)
    if config.feedback.mode == "sealed":
        return {team: tuple(each.submission for each in own) for team, own in of_team.items()}
    return {
        team: _known(named.get(team, ()), own) or _by_default(config, own)
        for team, own in of_team.items()
    }


def _known(named: Sequence[str], own: Sequence[BoardAnswer]) -> tuple[str, ...]:
    submissions = {answer.submission for answer in own}
    return tuple(sha for sha in named if sha in submissions)


def _by_default(config: BoardConfig, own: Sequence[BoardAnswer]) -> tuple[str, ...]:
    if config.feedback.mode == "gate":
        return ([each.submission for each in own if each.source in ("first", "kept")][-1],)
    released = [each.submission for each in own if each.source == "release"]
    best_and_last = dict.fromkeys([*released[-1:], own[-1].submission])  # each release is a best
    return tuple(best_and_last)[: config.limits.finalists]


@final
class Values(Mapping[str, Any]):
    """Finalists' values, computed when they are read: all of them may be more than fit."""

    def __init__(self, names: list[str], read: Callable[[str], dict[str, Any]]) -> None:
        self._names = names
        self._read = read

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def by_submission(chosen: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return whose each submission is: two teams may have sent the same.

    Example:
        >>> by_submission({"alpha": ("5e",), "beta": ("5e", "7a")})
        {'5e': ['alpha', 'beta'], '7a': ['beta']}
    """
    whose: dict[str, list[str]] = {}
    for team, own in chosen.items():
        for sha in own:
            whose.setdefault(sha, []).append(team)
    return whose


def results_content(
    config: BoardConfig, closed_at: str, results: BoardResults | None, lost: Sequence[str]
) -> dict[str, Any]:
    """Return the content of results.json; without results there was nothing to judge."""
    if results is not None:
        return results_json(config, results, lost)
    return {
        "board": config.board.name,
        "title": config.board.title,
        "statistic": config.first,
        "finalists": [],
        "teams": [],
        "not_judged": list(lost),
        "rows": 0,
        "vault": 0 < config.data.public < 1,
        "failure": config.limits.failure,
        "closed_at": closed_at,
    }


def results_json(config: BoardConfig, results: BoardResults, lost: Sequence[str]) -> dict[str, Any]:
    """Return the content of results.json: finalists, teams, and what the statements assume."""
    return {
        "board": config.board.name,
        "title": config.board.title,
        "statistic": config.first,
        "finalists": [_finalist_json(each) for each in results.finalists],
        "teams": _teams(results.finalists),
        "not_judged": list(lost),
        "rows": results.rows,
        "vault": results.vault,
        "failure": results.failure,
        "bracket": results.bracket,
        "ordering_bracket": results.ordering_bracket,
        "closed_at": results.closed_at,
        "chain": results.chain,
        "assumptions": list(results.assumptions),
    }


def _finalist_json(finalist: Finalist) -> dict[str, Any]:
    return {
        "submission": finalist.submission,
        "team": finalist.analyst,
        "rank": list(finalist.rank),
        "results": _values(finalist),
        "told": finalist.told,
        "better_than": list(finalist.better_than),
    }


def _values(finalist: Finalist) -> dict[str, Any]:
    return {
        name: {"value": own.value, "interval": None if own.interval is None else list(own.interval)}
        for name, own in finalist.results.items()
    }


def _teams(finalists: Sequence[Finalist]) -> list[dict[str, Any]]:
    """Return each team's best finalist, with its rank among those: all statements hold at once."""
    best: dict[str, Finalist] = {}
    for finalist in finalists:  # best value first
        best.setdefault(finalist.analyst, finalist)
    entries = list(best.values())
    return [_team(own, entries) for own in entries]


def _team(own: Finalist, entries: Sequence[Finalist]) -> dict[str, Any]:
    ahead = {each.analyst for each in entries if own.submission in each.better_than}
    behind = {each.analyst for each in entries if each.submission in own.better_than}
    others = [each.analyst for each in entries if each.analyst != own.analyst]
    return {
        "team": own.analyst,
        "submission": own.submission,
        "rank": [1 + len(ahead), len(entries) - len(behind)],
        "results": _values(own),
        "told": own.told,
        "not_told_apart_from": [team for team in others if team not in ahead | behind],
    }


def read_results(config: BoardConfig, closed_at: str | None) -> dict[str, Any] | None:
    """Return the content of results.json; None if it is not there, or not of this closing."""
    content = read_private(results_path(config), longest=_LARGEST)
    try:
        results = json.loads(content or b"null")
    except ValueError:
        return None
    wanted = {"board": config.board.name, "closed_at": closed_at}
    known = isinstance(results, dict) and closed_at is not None
    return results if known and {name: results.get(name) for name in wanted} == wanted else None


def results_path(config: BoardConfig) -> Path:
    """Return where results.json is."""
    return config.folder / RESULTS_JSON
