"""The figures of a closed holdout, as SVG text: each run's curve with a band for the truth."""

from typing import final

from torch_holdout._shared.text import counted
from torch_holdout.holdout.closing import ClosedValue
from torch_holdout.report import wording
from torch_holdout.report.closed_verdict import place
from torch_holdout.report.figures import (
    Scale,
    ValueAxis,
    line,
    points,
)
from torch_holdout.report.sealed import ClosedStatistic, Curve
from torch_holdout.report.svg import circle, element, picture, text, ticks, titled

CURVES_DRAWN = 8
_SMALL, _LOW = 150.0, 34.0  # a figure inside a table


def curves_chart(statistic: ClosedStatistic, *, narrow: bool = False) -> str:
    """Draw the curves of the best runs; the best run of all stands out."""
    return _CurvesChart(statistic, narrow).draw()


@final
class _CurvesChart:
    """One drawing: its margins and its scales."""

    def __init__(self, statistic: ClosedStatistic, narrow: bool) -> None:
        self.statistic, self.narrow = statistic, narrow
        self.curves = statistic.curves[:CURVES_DRAWN]
        self.axis = ValueAxis(*_range(statistic, self.curves), narrow)
        self.width, self.height = self.axis.width, self.axis.height
        self.left, self.y, self.right = self.axis.left, self.axis.y, self.width - 12
        numbers = [value.evaluation for curve in self.curves for value in curve.values]
        self.x = Scale(min(numbers), max(numbers), self.left + 10, self.right - 10)

    def draw(self) -> str:
        best, *others = self.curves
        parts = [self._axes(), *(self._band(curve, "area other") for curve in others)]
        parts += [self._band(best, "area"), *(line(self._places(curve)) for curve in others)]
        parts.append(element("polyline", points=points(self._places(best)), class_="spending"))
        parts += [self._best(curve) for curve in (*others, best)]
        shape = "narrow" if self.narrow else "wide"
        label = curves_label(self.statistic)
        return picture("".join(parts), self.width, self.height, label, class_=shape)

    def _axes(self) -> str:
        base, parts = self.axis.base, self.axis.drawn(self.right)
        numbers = ticks(self.x.low, self.x.high, 4 if self.narrow else 10)
        for number in sorted({round(number) for number in numbers if number == round(number)}):
            x = self.x(number)
            parts.append(element("line", x1=x, y1=base, x2=x, y2=base + 5, class_="axis"))
            parts.append(text(f"{number:,}", x, base + 19, class_="label", text_anchor="middle"))
        middle = (self.left + self.right) / 2
        what = "evaluation of the run" if self.curves[0].run else "question of the holdout"
        parts.append(text(what, middle, base + 38, class_="label quiet", text_anchor="middle"))
        return "".join(parts)

    def _places(self, curve: Curve) -> list[tuple[float, float]]:
        return [(self.x(v.evaluation), self.y(v.value)) for v in curve.values]

    def _band(self, curve: Curve, style: str) -> str:
        """Draw where the truth of each evaluation lies."""
        return _band(curve, self.x, self.y, style)

    def _best(self, curve: Curve) -> str:
        best = curve.best
        mark = circle(self.x(best.evaluation), self.y(best.value), 4.5)
        return titled(mark, _said(best, curve.name, self.statistic))


def curves_label(statistic: ClosedStatistic) -> str:
    """Describe the chart in words."""
    best = statistic.curves[0].best
    return (
        f"{counted(statistic.values, 'value')} of {wording.named(statistic.name)} in "
        f"{counted(len(statistic.curves) + statistic.curves_left_out, 'curve')}, with an interval "
        f"each; the best is {_said(best, statistic.curves[0].name, statistic)}."
    )


def curve_trail(curve: Curve, statistic: ClosedStatistic) -> str:
    """Draw one curve with its band, small; all curves of a statistic on one scale."""
    low, high = _range(statistic, statistic.curves)
    first, last = curve.values[0].evaluation, curve.values[-1].evaluation
    x, y = Scale(first, last, 6, _SMALL - 6), Scale(low, high, _LOW - 5, 5)
    parts = [_band(curve, x, y, "area")]
    parts.append(line([(x(v.evaluation), y(v.value)) for v in curve.values]))
    parts.append(circle(x(curve.best.evaluation), y(curve.best.value), 2.6))
    label = f"{counted(len(curve.values) + curve.left_out, 'value')} in order"
    return picture("".join(parts), _SMALL, _LOW, label, class_="trail")


def curve_interval(curve: Curve, statistic: ClosedStatistic) -> str:
    """Draw a curve's best value with its interval; all curves of a statistic on one scale."""
    bests = [each.best for each in statistic.curves]
    x = Scale(min(best.low for best in bests), max(best.high for best in bests), 6, _SMALL - 6)
    best = curve.best
    parts = [
        element("line", x1=6, y1=9, x2=_SMALL - 6, y2=9, class_="grid"),
        element("line", x1=x(best.low), y1=9, x2=x(best.high), y2=9, class_="band", stroke_width=9),
        circle(x(best.value), 9, 4),
    ]
    label = f"the truth lies in {wording.interval_text(best.low, best.high, statistic.step)}"
    return picture("".join(parts), _SMALL, 18, label, class_="range")


def _band(curve: Curve, x: Scale, y: Scale, style: str) -> str:
    if len(curve.values) == 1:
        (only,) = curve.values
        at = x(only.evaluation)
        low, high = y(only.low), y(only.high)
        return element("line", x1=at, y1=low, x2=at, y2=high, class_="band", stroke_width=9)
    above = [(x(v.evaluation), y(v.high)) for v in curve.values]
    below = [(x(v.evaluation), y(v.low)) for v in reversed(curve.values)]
    return element("polygon", points=points(above + below), class_=style)


def _range(statistic: ClosedStatistic, curves: tuple[Curve, ...]) -> tuple[float, float]:
    low = min(value.low for curve in curves for value in curve.values)
    high = max(value.high for curve in curves for value in curve.values)
    margin = max(0.03 * (high - low), statistic.step)
    return max(statistic.low, low - margin), min(statistic.high, high + margin)


def _said(value: ClosedValue, name: str | None, statistic: ClosedStatistic) -> str:
    return (
        f"{wording.value_text(value.value, statistic.step)} ({place(value, name)}): the truth lies "
        f"in {wording.interval_text(value.low, value.high, statistic.step)}"
    )
