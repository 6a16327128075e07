"""The figures, as SVG text. Colours are classes of the page's style, so that themes apply.

A release, a guess and a stale value differ in shape: circle, hollow diamond, cross.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from torch_holdout._shared.text import counted
from torch_holdout.report import wording
from torch_holdout.report.records import RecordsReport
from torch_holdout.report.summary import Run, Shown, Stale, StatisticReport
from torch_holdout.report.svg import circle, cross, diamond, element, picture, text, ticks, titled

WIDE, NARROW = 912.0, 350.0
_TICK_ROOM = 104.0
LETTER = 7.4  # of a label, at 13 px
STALE_DRAWN = 4
_TRAILS = 8  # runs that are drawn with a line each
_SEGMENTS = 60


@final
@dataclass(frozen=True)
class Scale:
    """A straight map from values to places; a range of nothing lies in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self.high <= self.low:
            return (self.start + self.end) / 2
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def legend_mark(kind: str) -> str:
    """Draw one mark for the legend."""
    marks = {
        "release": element("line", x1=9, y1=1, x2=9, y2=17, class_="band", stroke_width=7)
        + circle(9, 9, 4),
        "guess": diamond(9, 9, 4.5),
        "stale": cross(9, 9, 4),
    }
    return element("svg", marks[kind], viewBox="0 0 18 18", class_="mark", aria_hidden="true")


def budget_bar(spent: int, budget: int, unit: str = "release") -> str:
    """Draw how many releases or runs are left: a segment each, or one bar if there are many."""
    left = budget - spent
    label = f"{left:,} of {counted(budget, unit)} left"
    if not 1 < budget <= _SEGMENTS:
        return share_bar(left / budget, label)
    gap = min(1.0, 30 / budget)
    width = (300 - gap * (budget - 1)) / budget
    segments = [
        _bar(i * (width + gap), width, "full" if i < left else "empty") for i in range(budget)
    ]
    return picture("".join(segments), 300, 10, label, class_="bar", preserveAspectRatio="none")


def share_bar(share: float, label: str) -> str:
    """Draw a share of a whole."""
    drawn = _bar(0, 300, "empty")
    if share > 0:
        drawn += _bar(0, 300 * min(share, 1.0), "full")
    return picture(drawn, 300, 10, label, class_="bar", preserveAspectRatio="none")


def _bar(x: float, width: float, style: str) -> str:
    return element("rect", x=x, y=0, width=width, height=10, class_=style)


def value_range(statistic: StatisticReport) -> tuple[float, float]:
    """Return the range of a statistic's chart: everything drawn, with a margin."""
    values = [s.value for s in statistic.drawn]
    released = [s for s in statistic.drawn if s.kind == "release"]
    values += [s.low for s in released] + [s.high for s in released]
    values += [s.value for s in statistic.stale if s.value is not None]
    if not values:
        return statistic.low, statistic.high
    low, high = min(values), max(values)
    margin = max(0.05 * (high - low), 2 * statistic.step)
    return max(statistic.low, low - margin), min(statistic.high, high + margin)


def values_chart(statistic: StatisticReport, *, narrow: bool = False) -> str:
    """Draw the published values in the order they were asked, and what is stale on the right."""
    return _ValuesChart(statistic, narrow).draw() if statistic.drawn else ""


@final
class _ValuesChart:
    """One drawing: its margins and its scales."""

    def __init__(self, statistic: StatisticReport, narrow: bool) -> None:
        self.statistic, self.narrow = statistic, narrow
        self.axis = ValueAxis(*value_range(statistic), narrow)
        self.width, self.height = self.axis.width, self.axis.height
        self.left, self.y = self.axis.left, self.axis.y
        self.stale = [s for s in statistic.stale if s.value is not None][:STALE_DRAWN]
        strip = (64.0 if narrow else 132.0) if statistic.stale else 0.0
        self.right = self.width - 12 - strip
        first, last = statistic.drawn[0].position, statistic.drawn[-1].position
        # Points keep clear of the axis.
        self.x = Scale(first, last, self.left + 10, self.right - 10)

    def draw(self) -> str:
        parts = [self._axes(), self._strip(), *self._bands(), *self._trails(), *self._points()]
        shape = "narrow" if self.narrow else "wide"
        label = chart_label(self.statistic)
        return picture("".join(parts), self.width, self.height, label, class_=shape)

    def _axes(self) -> str:
        base, parts = self.axis.base, self.axis.drawn(self.right)
        for shown, anchor in self._x_ticks():
            x = self.x(shown.position)
            parts.append(element("line", x1=x, y1=base, x2=x, y2=base + 5, class_="axis"))
            number, when = f"{shown.position:,}", self._when(shown)
            parts.append(text(number, x, base + 19, class_="label", text_anchor=anchor))
            parts.append(text(when, x, base + 37, class_="label quiet", text_anchor=anchor))
        return "".join(parts)

    def _x_ticks(self) -> list[tuple[Shown, str]]:
        """Pick drawn answers as ticks, far enough apart for their labels."""
        drawn = self.statistic.drawn
        if len(drawn) == 1:
            return [(drawn[0], "middle")]
        most = max(2, int((self.x.end - self.x.start) / _TICK_ROOM) + 1)
        for places in range(most, 1, -1):
            picked = [self._nearest(i / (places - 1)) for i in range(places)]
            at = [self.x(shown.position) for shown in picked]
            if all(b - a >= _TICK_ROOM for a, b in pairwise(at)):
                break
        ends = {drawn[0].position: "start", drawn[-1].position: "end"}
        return [(shown, ends.get(shown.position, "middle")) for shown in picked]

    def _nearest(self, share: float) -> Shown:
        """Return the drawn answer that is nearest to a share of the way."""
        goal = self.x.start + (self.x.end - self.x.start) * share
        return min(self.statistic.drawn, key=lambda shown: abs(self.x(shown.position) - goal))

    def _when(self, shown: Shown) -> str:
        drawn = self.statistic.drawn
        at, first, last = (wording.moment(s.asked_at) for s in (shown, drawn[0], drawn[-1]))
        if at is None or first is None or last is None:
            return ""
        if first.date() == last.date():
            return wording.clock_text(at)
        long = (last - first).days > 20 or self.narrow
        return wording.day_text(at) if long else f"{wording.day_text(at)} {wording.clock_text(at)}"

    def _strip(self) -> str:
        """Shade what came after the budget was gone."""
        if not self.statistic.stale:
            return ""
        x, width = self.right + 6, self.width - self.right - 8
        middle = x + width / 2
        parts = [
            element("rect", x=x, y=22, width=width, height=self.height - 68, class_="strip"),
            _quiet("no budget" if self.narrow else "budget gone", middle, 14),
        ]
        for i, stale in enumerate(self.stale):
            parts.append(self._stale(stale, x + width * (i + 0.5) / len(self.stale)))
        if self.narrow:
            total = sum(stale.count for stale in self.statistic.stale)
            parts.append(_quiet(f"\u00d7{total:,}", middle, self.height - 27))
        return "".join(parts)

    def _stale(self, stale: Stale, x: float) -> str:
        value = 0.0 if stale.value is None else stale.value
        y = self.y(value)
        below = y + 20 if y < self.height - 80 else y - 12
        mark = cross(x, y, 4.5)
        if not self.narrow:  # no room for a number each
            mark += _quiet(f"\u00d7{stale.count:,}", x, below)
        asked = f"stale: {counted(stale.count, 'question')} came after the budget was gone"
        said = f"{wording.value_text(value, self.statistic.step)}, {asked}"
        return titled(mark, f"{said}{wording.of_run(stale.run)}")

    def _bands(self) -> list[str]:
        """Draw the certificate: where the truth of each released answer lies."""
        released = [s for s in self.statistic.drawn if s.kind == "release"]
        apart = (self.x.end - self.x.start) / max(1, len(released))
        width = min(9.0, max(1.0, 0.6 * apart))
        places = [(self.x(s.position), self.y(s.low), self.y(s.high)) for s in released]
        return [
            element("line", x1=x, y1=low, x2=x, y2=high, class_="band", stroke_width=width)
            for x, low, high in places
        ]

    def _trails(self) -> list[str]:
        if len(self.statistic.runs) + self.statistic.runs_left_out > _TRAILS:
            return []
        runs: dict[str | None, list[Shown]] = {}
        for shown in self.statistic.drawn:
            runs.setdefault(shown.run, []).append(shown)
        return [
            line([(self.x(s.position), self.y(s.value)) for s in own])
            for own in runs.values()
            if len(own) > 1
        ]

    def _points(self) -> list[str]:
        apart = (self.x.end - self.x.start) / max(1, len(self.statistic.drawn))
        radius = min(4.5, max(2.6, 0.5 * apart))
        ordered = sorted(self.statistic.drawn, key=lambda shown: shown.kind == "release")
        points = []
        for shown in ordered:
            mark = circle if shown.kind == "release" else diamond
            point = mark(self.x(shown.position), self.y(shown.value), radius)
            points.append(titled(point, self._said(shown)))
        return points

    def _said(self, shown: Shown) -> str:
        step = self.statistic.step
        return (
            f"{wording.value_text(shown.value, step)}, a {shown.kind}: the truth lies in "
            f"{wording.interval_text(shown.low, shown.high, step)}. Question {shown.position:,}"
            f"{wording.of_run(shown.run)}, {wording.moment_text(shown.asked_at)}"
        )


def chart_label(statistic: StatisticReport) -> str:
    """Describe the chart in words."""
    values = sorted(shown.value for shown in statistic.drawn)
    lowest, highest = (wording.value_text(values[end], statistic.step) for end in (0, -1))
    label = (
        f"Published values of {wording.named(statistic.name)} by question: "
        f"{counted(statistic.releases, 'release')} and {counted(statistic.guesses, 'guess')}, from "
        f"{lowest} to {highest}."
    )
    if statistic.stale:
        late = counted(sum(s.count for s in statistic.stale), "question")
        label += f" {late} came after the budget was gone; what is shown for them is stale."
    return label


def run_trail(run: Run, statistic: StatisticReport) -> str:
    """Draw a run's answers in order, small; all runs of a statistic on one scale."""
    width, height = 150.0, 34.0
    low, high = value_range(statistic)
    x, y = Scale(0, max(1, len(run.trail) - 1), 6, width - 6), Scale(low, high, height - 5, 5)
    if not run.trail:
        return ""
    places = [(x(i), y(value), kind) for i, (kind, value) in enumerate(run.trail)]
    parts = [line([(a, b) for a, b, _ in places])] if len(places) > 1 else []
    for kind, mark, radius in (("guess", diamond, 2.2), ("release", circle, 2.6)):
        parts += [mark(a, b, radius) for a, b, own in places if own == kind]
    label = f"{counted(run.releases, 'release')} and {counted(run.guesses, 'guess')} in order"
    return picture("".join(parts), width, height, label, class_="trail")


def run_interval(run: Run, statistic: StatisticReport) -> str:
    """Draw a run's best release with its interval; all runs of a statistic on one scale."""
    if run.best is None:
        return ""
    x = Scale(*value_range(statistic), 6, 144)
    low, high = x(run.best.low), x(run.best.high)
    parts = [
        element("line", x1=6, y1=9, x2=144, y2=9, class_="grid"),
        element("line", x1=low, y1=9, x2=high, y2=9, class_="band", stroke_width=9),
        circle(x(run.best.value), 9, 4),
    ]
    label = (
        f"the truth lies in {wording.interval_text(run.best.low, run.best.high, statistic.step)}"
    )
    return picture("".join(parts), 150, 18, label, class_="range")


def charges_chart(records: RecordsReport, *, narrow: bool = False) -> str:
    """Draw the share of the budget that each charge left spent."""
    if len(records.steps) < 2:
        return ""
    width, height = (NARROW, 190.0) if narrow else (WIDE, 220.0)
    x = Scale(records.steps[0][0], records.steps[-1][0], 58, width - 14)
    y = Scale(0, 1, height - 30, 14)
    parts = []
    for share in (0, 0.5, 1):
        style = "grid" if 0 < share < 1 else "axis"
        place = y(share)
        parts.append(element("line", x1=52, y1=place, x2=width - 8, y2=place, class_=style))
        label = f"{100 * share:.0f} %"
        parts.append(text(label, 46, place + 4.5, class_="label", text_anchor="end"))
    first, *_ = records.steps
    places = [(x(first[0]), y(first[1]))]
    for (_, before), (position, share) in pairwise(records.steps):
        places += [(x(position), y(before)), (x(position), y(share))]
    corners = [(x.start, y(0)), *places, (x.end, y(0))]
    parts.append(element("polygon", points=points(corners), class_="area"))
    parts.append(element("polyline", points=points(places), class_="spending"))
    for position, anchor in ((records.steps[0][0], "start"), (records.steps[-1][0], "end")):
        where = (x(position), height - 10)
        parts.append(text(f"charge {position:,}", *where, class_="label", text_anchor=anchor))
    label = (
        f"Share of the budget that is spent, over {counted(records.charges, 'charge')}: "
        f"{100 * records.steps[-1][1]:.1f} %."
    )
    shape = "narrow" if narrow else "wide"
    return picture("".join(parts), width, height, label, class_=shape)


def _quiet(label: str, x: float, y: float) -> str:
    return text(label, x, y, class_="label quiet", text_anchor="middle")


def line(places: Sequence[tuple[float, float]]) -> str:
    """Draw a thin line through some places."""
    return element("polyline", points=points(places), class_="trail-line")


@final
class ValueAxis:
    """The size of a chart, and the axis of its values on the left.

    Example:
        >>> axis = ValueAxis(0.0, 1.0, narrow=True)
        >>> axis.y(0.0), axis.y(1.0), len(axis.drawn(300.0))
        (224.0, 22.0, 13)
    """

    def __init__(self, low: float, high: float, narrow: bool) -> None:
        self.width, self.height = (NARROW, 270.0) if narrow else (WIDE, 320.0)
        self.base = self.height - 46
        self.y = Scale(low, high, self.base, 22)
        values = ticks(low, high, 5 if narrow else 7)
        places = _decimals_of(values)
        self._labelled = [(value, wording.fixed_text(value, places)) for value in values]
        self.left = 12 + LETTER * max((len(label) for _, label in self._labelled), default=1)

    def drawn(self, right: float) -> list[str]:
        """Return grid lines at labelled heights, and the line at the bottom of a chart."""
        left, base, parts = self.left, self.base, []
        for value, label in self._labelled:
            y = self.y(value)
            parts.append(element("line", x1=left, y1=y, x2=right, y2=y, class_="grid"))
            parts.append(text(label, left - 6, y + 4.5, class_="label", text_anchor="end"))
        return [*parts, element("line", x1=left, y1=base, x2=right, y2=base, class_="axis")]


def points(places: Sequence[tuple[float, float]]) -> str:
    """Write places as the corners of a line or an area."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _decimals_of(values: Sequence[float]) -> int:
    """Return how many decimals tell the ticks apart."""
    gaps = [b - a for a, b in pairwise(values)]
    if not gaps:
        return 2
    places = wording.decimals_for(min(gaps))
    # A step of 0.25 needs one more than its size says.
    exact = all(abs(round(value, places) - value) < 1e-9 for value in values)
    return places if exact else places + 1
