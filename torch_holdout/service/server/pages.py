"""The pages of a board: drawn on the server, readable without script, nothing from elsewhere."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, final

from torch_holdout._shared.text import counted
from torch_holdout.report import wording
from torch_holdout.report.figures import Scale, share_bar
from torch_holdout.report.svg import circle, element, picture
from torch_holdout.report.templates import environment
from torch_holdout.service.server.view import TeamRow, View

if TYPE_CHECKING:
    from jinja2 import Template

NAMES_SHOWN = 3  # of teams that cannot be told apart; the JSON has all
_DIGITS = 1e-4  # of a statistic's range: what a value is rounded to on the page


def board_page(view: View) -> str:
    """Return the public page of a board."""
    return _render("board.html.j2", view, standalone=False)


def results_page(view: View) -> str:
    """Return the page of a closed board as one file, without script, that loads nothing."""
    return _render("board.html.j2", view, standalone=True)


def team_page(view: View, team: Mapping[str, Any]) -> str:
    """Return a team's own page: its submissions, answers, finalists and quota."""
    return _render("team.html.j2", view, team=team, standalone=False)


def host_page(view: View, host: Mapping[str, Any]) -> str:
    """Return the host's page: teams, quotas, refusals and events; nothing raw."""
    return _render("host.html.j2", view, host=host, standalone=False)


@lru_cache(maxsize=1)
def assets() -> dict[str, tuple[str, bytes]]:
    """Return the files that pages load: media type and content by name.

    Example:
        >>> sorted(assets())
        ['board.css', 'board.js']
    """
    return {
        "board.css": ("text/css; charset=utf-8", _stylesheet().encode()),
        "board.js": ("text/javascript; charset=utf-8", _file("board.js").encode()),
    }


def _stylesheet() -> str:
    report = files("torch_holdout.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"{report}\n{_file('board.css')}"


def _file(name: str) -> str:
    return files("torch_holdout.service.server").joinpath(name).read_text(encoding="utf-8")


def _version(name: str) -> str:
    """Return what a file's address ends with, so that a new one is never taken from a cache."""
    return hashlib.sha256(assets()[name][1]).hexdigest()[:12]


def _render(template: str, view: View, **more: Any) -> str:
    found = _template(template)
    return found.render(view=view, facts=view.facts, drawn=Drawn.of(view), **more).lstrip() + "\n"


@final
@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How the first statistic of a board is written and drawn, on one scale for all teams.

    Example:
        >>> drawn = Drawn(low=0.8, high=1.0, step=1e-4)
        >>> drawn.value(0.91444), drawn.interval((0.90451, 0.92449))
        ('0.9144', '0.9045 to 0.9245')
    """

    low: float
    high: float
    step: float

    @classmethod
    def of(cls, view: View) -> "Drawn":
        """Return the scale that all values and intervals of a board fit on."""
        statistic = view.facts["statistics"][view.facts["first"]]
        shown = [
            n for row in view.rows for n in (row.value, *(row.interval or ())) if n is not None
        ]
        low, high = min(shown, default=statistic["low"]), max(shown, default=statistic["high"])
        margin = 0.05 * (high - low)
        return cls(
            low=max(low - margin, min(statistic["low"], low)),
            high=min(high + margin, max(statistic["high"], high)),
            step=_DIGITS * (statistic["high"] - statistic["low"]),
        )

    def value(self, value: float) -> str:
        """Write a value."""
        return wording.value_text(value, self.step)

    def interval(self, interval: tuple[float, float]) -> str:
        """Write an interval, rounded outwards."""
        return wording.interval_text(*interval, self.step)

    def bar(self, row: TeamRow) -> Any:
        """Draw a team's value, with its interval where one is certified."""
        from markupsafe import Markup

        if row.value is None:
            return ""
        x = Scale(self.low, self.high, 8, 232)
        parts = [element("line", x1=8, y1=9, x2=232, y2=9, class_="grid")]
        label = self.value(row.value)
        if row.interval is not None:
            low, high = (x(end) for end in row.interval)
            parts.append(
                element("line", x1=low, y1=9, x2=high, y2=9, class_="band", stroke_width=9)
            )
            label = f"{label}, the truth lies in {self.interval(row.interval)}"
        parts.append(circle(x(row.value), 9, 4))
        return Markup(picture("".join(parts), 240, 18, label, class_="range wide-range"))  # noqa: S704


def rank_text(row: TeamRow) -> str:
    """Write a rank, or the ranks that the certificate leaves open.

    Example:
        >>> some = {"team": "a", "value": None, "interval": None, "not_told_apart_from": (),
        ...         "submissions_left": 1, "releases_left": 1, "exhausted": False}
        >>> rank_text(TeamRow(rank=(1, 3), **some)), rank_text(TeamRow(rank=None, **some))
        ('1\u20133', '\u2013')
    """
    if row.rank is None:
        return "\u2013"
    best, worst = row.rank
    return str(best) if best == worst else f"{best}\u2013{worst}"


def change_text(row: TeamRow, drawn: Drawn) -> str:
    """Write how a final value differs from the public one."""
    if row.value is None or row.public_value is None:
        return "\u2013"
    change = row.value - row.public_value
    sign = "+" if change >= 0 else "\u2212"
    return f"{sign}{drawn.value(abs(change))}"


def state_text(facts: Mapping[str, Any]) -> str:
    """Write the state of a board, and until when it lasts.

    Example:
        >>> state_text({"state": "open", "closes": "2026-12-01T12:00:00+00:00"})
        'Open until 1 Dec 2026, 12:00 UTC'
    """
    if facts["state"] == "closed":
        return f"Closed {wording.moment_text(facts['closed_at'])}"
    closes = facts["closes"]
    moment = "" if closes is None else wording.moment_text(closes)
    if facts["state"] == "open":
        return f"Open until {moment}" if moment else "Open"
    return f"Ended {moment}, not closed yet"


def share(part: float, whole: float | None, unit: str) -> Any:
    """Draw how much of a budget is used; nothing where there is none."""
    from markupsafe import Markup

    if not whole:
        return ""
    label = f"{part:,} of {whole:,} {unit}"
    return Markup(share_bar(min(part / whole, 1.0), label))  # noqa: S704


@lru_cache(maxsize=4)
def _template(name: str) -> "Template":
    from markupsafe import Markup

    made = environment("torch_holdout.service.server")
    made.globals |= {
        "wording": wording,
        "counted": counted,
        "rank_text": rank_text,
        "change_text": change_text,
        "state_text": state_text,
        "share": share,
        "names_shown": NAMES_SHOWN,
        "version": _version,
        "stylesheet": Markup(_stylesheet()),  # noqa: S704
    }
    return made.get_template(name)
