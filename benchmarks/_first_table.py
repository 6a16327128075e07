"""The table on the README's first screen: what is chosen, what may be claimed, and epsilon."""

import math
from collections.abc import Iterator
from typing import Any

from _results import Row, number

BEGIN = "<!-- first table: benchmarks/run.py --readme README.md -->"
END = "<!-- end of the first table -->"
LOSS, HITS = "tabular CE, n=10,000", "tabular 0-1, n=10,000"
RANGES = (5.0, 1.0)  # of both; of the plan: how many epochs, how many releases
QUERIES, BUDGET = 200, 20
PEER, LIVE, SEALED, PRIVATE = "raw values", "live plan", "sealed", "sealed, epsilon 1"


def with_table(text: str, results: dict[str, Any]) -> str:
    """Return the README with the table of these results between its two comments.

    Raises:
        ValueError: If a comment or a result is missing.
    """
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError("the README has no place for the table")
    return "\n".join([before + BEGIN, "", *first_table(results["rows"]), "", END + after])


def first_table(rows: list[Row]) -> Iterator[str]:
    """Yield the table of three ways and the words under it."""
    own = [row for row in rows if row["benchmark"] == "quality"]
    chosen = {(row["way"], row["task"]): row for row in own if row["peer"] == PEER}
    widths = {row["case"]: row["ours"] for row in own if row["peer"] != PEER}
    for way in (LIVE, SEALED, PRIVATE):
        if not {(way, LOSS), (way, HITS)} <= set(chosen):
            raise ValueError(f"the results lack the way {way!r}")

    def quality(way: str, column: str = "ours") -> str:
        values = (chosen[way, task][column] for task in (LOSS, HITS))
        return "loss {:.3f}, accuracy {:.3f}".format(*values)

    def width(way: str, when: str) -> str:
        found = (widths[f"{task}, {way}, {when}"] for task in (LOSS, HITS))
        wide = (value * scale for value, scale in zip(found, RANGES, strict=True))
        return "loss within {:.3f}, accuracy within {:.3f}".format(*map(_up, wide))

    yield "| early stopping by | the chosen model on fresh data | what may be claimed | epsilon |"
    yield "|---|---|---|---|"
    yield f"| raw values | {quality(SEALED, 'theirs')} | nothing: it was used to choose | none |"
    yield (
        f"| guarded values | {quality(LIVE)} | at any time, of every value released: "
        f"{width(LIVE, 'certified')} | {_epsilon(chosen[LIVE, LOSS])} |"
    )
    yield (
        f"| sealed: decisions only | {quality(SEALED)} | at the end, of the chosen model: "
        f"{width(SEALED, 'closed')} | infinite; 1 with `epsilon=1.0`: {quality(PRIVATE)}, and no "
        f"value is shown |"
    )
    yield ""
    yield from _caption(list(chosen.values()), chosen[LIVE, LOSS])


def _caption(rows: list[Row], first: Row) -> Iterator[str]:
    live = [row for row in rows if row["way"] == LIVE]
    sealed = [row for row in rows if row["way"] == SEALED]
    lost = [row["regret"] - row["raw_regret"] for row in live]
    same, fits = (sum(row[key] for row in sealed) for key in ("same_weights", "seeds"))
    yield (
        f"*Means over {first['seeds']} seeds of two tasks with 10,000 holdout examples and at most "
        f"{QUERIES} epochs; claims hold with 95 % confidence, losses go from 0 to 5. Guarded: "
        f"`th.plan(size=10_000, queries={QUERIES}, budget={BUDGET})`. Over all {len(live)} tasks "
        f"([benchmarks](docs/benchmarks.md#quality-of-the-chosen-model)) the sealed run took the "
        f"weights of raw early stopping in {same} of {fits} fits, and guarded values cost "
        f"{_percent(min(lost))} to {_percent(max(lost))} of the range of the statistic.*"
    )


def _up(width: float) -> float:
    """Round a claim outwards."""
    return math.ceil(1000 * width) / 1000


def _percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %" if share > 0 else "nothing"


def _epsilon(row: Row) -> str:
    """The epsilon of the plan that the row's way is: it follows from the plan alone."""
    import torch_holdout as th

    size = int(row["task"].rpartition("n=")[2].replace(",", ""))
    epsilon = th.plan(size=size, queries=QUERIES, budget=BUDGET).epsilon
    return "infinite" if epsilon == float("inf") else f"at most {number(epsilon)}"
