"""The tables of ``quality.py`` on the documentation page: ways against tasks."""

from collections.abc import Callable, Iterator
from typing import Any

from _results import Row, number

Cell = Callable[[str, str], str]


def quality_tables(rows: list[Row]) -> Iterator[str]:
    r"""Yield a table of regrets and one of widths; nothing without rows of tasks.

    Example:
        >>> facts = {"task": "digits", "way": "sealed"}
        >>> row = {**facts, "peer": "raw values", "seeds": 8, "same_weights": 8, "regret": 4e-4,
        ...        "largest_regret": 1e-3, "raw_regret": 5e-4, "raw_largest_regret": 2e-3}
        >>> print(*list(quality_tables([row]))[2:6], sep="\n")
        | way | digits |
        |---|---:|
        | raw values | 0.0005 (0.002) |
        | sealed | 0.0004 (0.001) |
    """
    regrets = {(row["way"], row["task"]): row for row in rows if "regret" in row}
    if not regrets:
        return
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    first = next(iter(regrets.values()))
    for task in tasks:
        own = regrets[ways[0], task]
        raw = {"regret": own["raw_regret"], "largest_regret": own["raw_largest_regret"]}
        regrets[first["peer"], task] = raw
    yield f"Regret, mean over {first['seeds']} seeds and the largest:"
    yield ""
    yield from _table(tasks, [first["peer"], *ways], lambda way, task: _regret(regrets, way, task))
    yield f"In how many of {first['seeds']} seeds the weights are those of raw values, bit for bit:"
    yield ""
    yield from _table(tasks, ways, lambda way, task: str(regrets[way, task]["same_weights"]))
    widths = {row["case"]: row for row in rows if row["peer"] == "one fresh query"}
    if widths:
        yield "Width before closing, and of the chosen model's interval after it:"
        yield ""
        yield from _table(tasks, ways, lambda way, task: _width(widths, way, task))


def _table(tasks: list[str], ways: list[str], cell: Cell) -> Iterator[str]:
    yield f"| way | {' | '.join(tasks)} |"
    yield f"|---|{'---:|' * len(tasks)}"
    for way in ways:
        yield f"| {way} | {' | '.join(cell(way, task) for task in tasks)} |"
    yield ""


def _regret(regrets: dict[Any, Row], way: str, task: str) -> str:
    row = regrets[way, task]
    return f"{_rounded(row['regret'])} ({_rounded(row['largest_regret'])})"


def _width(widths: dict[str, Row], way: str, task: str) -> str:
    cells = [widths.get(f"{task}, {way}, {when}") for when in ("certified", "closed")]
    return ", ".join(f"{row['ratio']:.2f}x" for row in cells if row is not None)


def _rounded(value: float) -> str:
    """Format to four decimals, as the table of the design has them."""
    return number(round(value, 4))
