"""What the commands print about a board, as text and as JSON; nothing raw."""

import math
from typing import Any

from torch_holdout._shared.text import confidence_text, counted, outwards
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.closing import RESULTS_JSON, RESULTS_PAGE
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.view import TeamRow, View


def status_content(config: BoardConfig) -> tuple[str, dict[str, Any]]:
    """Return how a board stands, as text and as JSON."""
    board = Board.open(config)
    view, own = board.view(), board.overview()
    board.close_connections()
    content = {key: own[key] for key in ("teams", "plan")}
    return _status_text(view, own), content | {"board": view.facts, "leaderboard": view.as_json()}


def _status_text(view: View, own: dict[str, Any]) -> str:
    facts, budget = view.facts, view.budget
    closes = f", closes {facts['closes']}" if facts["closes"] and view.state == "open" else ""
    lines = [f"{facts['title']} ({facts['name']}): {view.state}{closes}", *view.promise]
    told = f"{budget['submitted']:,} of {budget['submissions']:,} submissions"
    if budget["releases"] is not None:
        told += f", {budget['released']:,} of {budget['releases']:,} releases"
    lines.append(f"Told so far: {told}, {math.ceil(10 * budget['nats']) / 10:,.1f} nats")
    values = {row.team: row for row in view.rows}
    lines += [_team_line(team, values[team["team"]]) for team in own["teams"]]
    lines.append(f"Ledger position {view.position:,}, chain {view.chain}")
    return "\n".join(lines)


def _team_line(team: dict[str, Any], row: TeamRow) -> str:
    parts = [
        f"{team['team']}: {counted(team['submissions_left'], 'submission')} left",
        f"{counted(team['releases_left'], 'release')} left" if team["releases_left"] else "",
        "" if row.value is None else f"best {row.value:.4g}",
        "" if row.interval is None else f"in {outwards(*row.interval)}",
        f"{team['refused']:,} refused" if team["refused"] else "",
        "revoked" if team["revoked_at"] else "",
    ]
    return ", ".join(part for part in parts if part)


def log_content(config: BoardConfig, limit: int) -> tuple[str, dict[str, Any]]:
    """Return the last events of a board, oldest first, as text and as JSON."""
    events = hosting.log(config, limit)[::-1]
    lines = [
        f"{event['at']} {event['action']} {event['status']} {event['team'] or '-'} "
        f"{event['token'] or '-'} {event['bytes']} bytes position {event['position'] or '-'}"
        for event in events
    ]
    return "\n".join(lines) or "No events yet.", {"events": events}


def results_text(config: BoardConfig, results: dict[str, Any]) -> str:
    """Return the results of a closed board as text."""
    first, confidence = config.first, confidence_text(config.limits.failure)
    if not results["finalists"]:
        return f"{config.board.title}: closed; there was no submission to judge."
    lines = [
        f"{config.board.title}: closed at {results['closed_at']}; "
        f"{counted(len(results['finalists']), 'submission')} judged on "
        f"{counted(results['rows'], 'row')}. All intervals hold together with {confidence} "
        f"confidence, and all orderings with {confidence}."
    ]
    lines += [_result_line(row, first) for row in results["teams"]]
    if results["not_judged"]:
        lines.append(f"Not judged, because their uploads are lost: {results['not_judged']}")
    return "\n".join([*lines, f"Written: {RESULTS_JSON}, {RESULTS_PAGE}"])


def _result_line(row: dict[str, Any], first: str) -> str:
    best, worst = row["rank"]
    own = row["results"][first]
    rank = f"{best}" if best == worst else f"{best}-{worst}"
    interval = "" if own["interval"] is None else f" in {outwards(*own['interval'])}"
    return f"{rank:>7}  {row['team']}  {own['value']:.6g}{interval}"
