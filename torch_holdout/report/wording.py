"""Formats of numbers, times and names: never more exact, or more certain, than they are."""

import json
import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timezone

from torch_holdout._shared.text import floor, up

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PLACES, _PLAIN, _DIGITS = 6, 1e9, 8  # beyond these a number is written with an exponent
_ISOLATE, _END = "\u2068", "\u2069"


def joined(parts: Sequence[str]) -> str:
    """Format a list with commas and "and".

    Example:
        >>> joined(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def named(text: str, most: int = 60) -> str:
    """Quote a user's name.

    Example:
        >>> named("digits-val"), named("x" * 70, most=10)
        ("'digits-val'", "'xxxxxxxxx...'")
    """
    return f"'{unquoted(text, most)}'"


def unquoted(text: str, most: int = 60) -> str:
    """Shorten a user's name; one that is written from right to left stays in its place."""
    short = shortened("".join(c if c.isprintable() else "\ufffd" for c in text), most)
    turns = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in short)
    return f"{_ISOLATE}{short}{_END}" if turns else short


def of_run(run: str | None) -> str:
    """Format the run of an answer, to end a sentence; empty if it has no name.

    Example:
        >>> "question 3" + of_run("baseline"), "question 3" + of_run(None)
        ("question 3, run 'baseline'", 'question 3')
    """
    return "" if run is None else f", run {named(run)}"


def shortened(text: str, most: int) -> str:
    """Cut a text that is too long."""
    return text if len(text) <= most else f"{text[: most - 1]}..."


def decimals_for(step: float) -> int:
    """Return how many decimals tell the points of a grid apart, nearly.

    Example:
        >>> decimals_for(0.0019), decimals_for(0.00098), decimals_for(0.04), decimals_for(2.0)
        (3, 3, 2, 0)
    """
    return max(math.ceil(-math.log10(1.1 * step)), 0)


def fixed_text(value: float, places: int) -> str:
    """Format a number with fixed decimals; a very small or large one with an exponent.

    Example:
        >>> fixed_text(1234.5, 2), fixed_text(1.5e-9, 11), fixed_text(2e12, 0)
        ('1,234.50', '1.5e-09', '2e+12')
    """
    plain = places <= _PLACES and abs(value) < _PLAIN
    return f"{value + 0.0:,.{max(places, 0)}f}" if plain else f"{value:.{_DIGITS}g}"


def value_text(value: float, step: float) -> str:
    """Format a published value to the step of its grid."""
    return fixed_text(value, decimals_for(step))


def interval_text(low: float, high: float, step: float) -> str:
    """Format an interval, rounded outwards.

    Example:
        >>> interval_text(0.8567, 0.9412, 0.004), interval_text(0.0, 12_345_678_901.0, 1e6)
        ('0.856 to 0.942', '0 to 1.2345679e+10')
    """
    places, largest = decimals_for(step), max(abs(low), abs(high))
    if largest and (places > _PLACES or largest >= _PLAIN):  # as many digits as are written
        places = min(places, _DIGITS - 1 - math.floor(math.log10(largest)))
    below, above = floor(low, places), -floor(-high, places)
    return f"{fixed_text(below, places)} to {fixed_text(above, places)}"


def distance_text(distance: float, digits: int = 2) -> str:
    """Format a distance with two digits, rounded up.

    Example:
        >>> distance_text(0.0491), distance_text(0.231), distance_text(37.2)
        ('0.05', '0.24', '38')
    """
    return up(distance, digits)


def cost_text(cost: float) -> str:
    """Format an epsilon or a rho with three digits, rounded up.

    Example:
        >>> cost_text(3.1087), cost_text(2.0), cost_text(math.inf)
        ('3.11', '2', 'infinite')
    """
    return distance_text(cost, digits=3)


def number_text(value: float) -> str:
    """Format a parameter; infinity in a word.

    Example:
        >>> number_text(0.25), number_text(float("inf"))
        ('0.25', 'infinite')
    """
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def delta_text(delta: float) -> str:
    """Format a delta.

    Example:
        >>> delta_text(1e-6)
        '1e-6'
    """
    return f"{delta:g}".replace("e-0", "e-")


def percent_text(share: float) -> str:
    """Format a share; 0 % and 100 % only where they are exact.

    Example:
        >>> percent_text(0.5631), percent_text(0.9999), percent_text(1e-9), percent_text(1.0)
        ('56.3 %', '99.9 %', 'less than 0.1 %', '100 %')
    """
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{min(100 * share, 99.9) if share < 1 else 100:.3g} %"


def moment(text: str) -> datetime | None:
    """Return a time of the ledger, or None if it cannot be read."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read.astimezone(timezone.utc) if read.tzinfo else read.replace(tzinfo=timezone.utc)


def moment_text(text: str) -> str:
    """Format a time of the ledger.

    Example:
        >>> moment_text("2026-11-03T09:05:00.123+00:00")
        '3 Nov 2026, 09:05 UTC'
    """
    when = moment(text)
    return f"{day_text(when)} {when.year}, {clock_text(when)} UTC" if when else text[:40]


def day_text(when: datetime) -> str:
    """Format a day without its year."""
    return f"{when.day} {_MONTHS[when.month - 1]}"


def clock_text(when: datetime) -> str:
    """Format the time of day."""
    return f"{when.hour:02}:{when.minute:02}"


def span_text(first: str, last: str) -> str:
    """Format a span of time, the day once if it is the same.

    Example:
        >>> span_text("2026-11-03T09:05:00+00:00", "2026-11-03T10:15:00+00:00")
        '3 Nov 2026, 09:05 to 10:15 UTC'
    """
    begin, end = moment(first), moment(last)
    if begin is None or end is None:
        return f"{moment_text(first)} to {moment_text(last)}"
    if begin.date() != end.date():
        year = "" if begin.year == end.year else f" {begin.year}"
        return f"{day_text(begin)}{year} to {day_text(end)} {end.year}"
    same = clock_text(begin) == clock_text(end)
    until = "" if same else f" to {clock_text(end)}"
    return f"{day_text(begin)} {begin.year}, {clock_text(begin)}{until} UTC"


def parameters_text(identity: dict[str, object]) -> str:
    """Format a mechanism with its parameters.

    Example:
        >>> parameters_text({"kind": "gn_max", "sigma": 40.0, "initial": {}})
        'Gn max, sigma 40'
    """
    kind = str(identity.get("kind", "unknown")).replace("_", " ").replace("-", " ").capitalize()
    parts = [
        f"{name.replace('_', ' ')} {number_text(value) if isinstance(value, float) else value}"
        for name, value in identity.items()
        if name != "kind" and value is not None and not isinstance(value, dict)
    ]
    return ", ".join([kind, *parts])


def charged_text(detail: str) -> str:
    """Format the mechanism of a charge; for a validation also the holdout that was asked."""
    try:
        stored = json.loads(detail)
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        return "unknown"
    if not isinstance(stored.get("mechanism"), dict):
        return parameters_text(stored)
    asked = f" on {stored.get('statistic')} of holdout {stored.get('holdout')}"
    return parameters_text(stored["mechanism"]) + asked
