"""The tables of ``private_prediction_ways.py``: ways and queries against epsilon."""

from collections.abc import Iterator

from _results import Row


def ways_tables(rows: list[Row]) -> Iterator[str]:
    r"""Yield a table for each task; nothing without rows of ways.

    Example:
        >>> facts = {"data": "digits", "queries": 1000, "epsilon": 2.0, "seeds": 3}
        >>> row = {**facts, "way": "neighbours", "ours": 0.6951, "theirs": 0.978,
        ...        "smallest": 0.69, "largest": 0.70}
        >>> print(*ways_tables([row]), sep="\n")
        Accuracy on digits, mean over 3 splits (without privacy: .978):
        <BLANKLINE>
        | way | queries | epsilon 2 |
        |---|---:|---:|
        | neighbours | 1,000 | .695 |
        <BLANKLINE>
    """
    rows = [row for row in rows if "way" in row and "data" in row]
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        epsilons = list(dict.fromkeys(row["epsilon"] for row in own))
        seeds, plain = own[0]["seeds"], _share(own[0]["theirs"])
        yield f"Accuracy on {data}, mean over {seeds} splits (without privacy: {plain}):"
        yield ""
        yield f"| way | queries | {' | '.join(f'epsilon {epsilon:g}' for epsilon in epsilons)} |"
        yield f"|---|---:|{'---:|' * len(epsilons)}"
        cells = {(row["way"], row["queries"], row["epsilon"]): _share(row["ours"]) for row in own}
        for way, queries in dict.fromkeys((row["way"], row["queries"]) for row in own):
            reached = [cells[way, queries, epsilon] for epsilon in epsilons]
            yield f"| {_named(way, queries)} | {_asked(queries)} | {' | '.join(reached)} |"
        yield ""


def _named(way: str, queries: int | None) -> str:
    return f"student of the {way}" if queries is None and "DP-SGD" not in way else way


def _asked(queries: int | None) -> str:
    return "any" if queries is None else f"{queries:,}"


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
