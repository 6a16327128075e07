"""The tables of ``sweeps.py``: ways against tasks, and widths against sizes."""

from collections.abc import Callable, Iterator

from _results import Row

Cell = Callable[[Row], str]


def sweep_tables(rows: list[Row]) -> Iterator[str]:
    """Yield all tables; nothing without rows of sweeps."""
    studies = [row for row in rows if "search" in row]
    if studies:
        yield from found_tables(studies)
        yield from claim_tables(studies)
        yield from effort_tables(studies)
    yield from width_table([row for row in rows if "evaluations" in row])


def found_tables(rows: list[Row]) -> Iterator[str]:
    r"""Yield what the winners are worth on fresh examples, for each kind of search.

    Example:
        >>> row = {"task": "digits", "search": "TPE", "way": "live", "peer": "raw values",
        ...        "seeds": 8, "ours": 0.641, "theirs": 0.65, "behind": 0.009, "error": 0.002}
        >>> print(*list(found_tables([row]))[2:6], sep="\n")
        | TPE | digits |
        |---|---:|
        | raw values | .6500 |
        | live | .6410 (-.0090 ± .0020) |
    """
    yield "The winner's accuracy on fresh examples (and how it differs from that of raw values,"
    yield f"with the standard error; mean over {rows[0]['seeds']} paired seeds):"
    yield ""
    yield from _tables(rows, _found, lambda row: _share(row["theirs"]))


def claim_tables(rows: list[Row]) -> Iterator[str]:
    r"""Yield what is claimed of the winners.

    Example:
        >>> row = {"task": "digits", "search": "TPE", "way": "live", "peer": "raw values",
        ...        "seeds": 8, "claimed": 0.65, "width": 0.12, "covered": 8, "raw_claimed": 0.66}
        >>> print(*list(claim_tables([row]))[3:6], sep="\n")
        |---|---:|
        | raw values | .6600, no interval |
        | live | .6500 ± .1200 (8) |
    """
    yield "What is claimed of it: its value, half of its interval, and in how many of"
    yield f"{rows[0]['seeds']} seeds the interval holds the fresh value:"
    yield ""
    yield from _tables(rows, _claim, lambda row: f"{_share(row['raw_claimed'])}, no interval")


def effort_tables(rows: list[Row]) -> Iterator[str]:
    """Yield how many trials had a value for the sampler, and how long they trained."""
    yield "Trials that ended with a value for the sampler, and epochs trained in the whole study:"
    yield ""
    yield from _tables(rows, lambda row: _effort(row, ""), lambda row: _effort(row, "raw_"))


def width_table(rows: list[Row]) -> Iterator[str]:
    r"""Yield the half-widths of claims, by size of the holdout and of the study.

    Example:
        >>> row = {"size": 10_000, "trials": 20, "theirs": 0.051}
        >>> rows = [row | {"evaluations": 1, "ours": 0.0185},
        ...         row | {"evaluations": 200, "ours": 0.0247}]
        >>> print(*list(width_table(rows))[-4:], sep="\n")
        | n | 20 trials |
        |---|---:|
        | 10,000 | .0510, .0185 / .0247 |
        <BLANKLINE>
    """
    if not rows:
        return
    many = list(dict.fromkeys(row["evaluations"] for row in rows))
    yield "Half-width of the claim, by computation: live with one question a trial, then sealed"
    yield f"with {' / '.join(map(str, many))} evaluations a trial:"
    yield ""
    cells: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["size"], row["trials"]), []).append(row)
    sizes, trials = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    yield f"| n | {' | '.join(f'{number} trials' for number in trials)} |"
    yield f"|---|{'---:|' * len(trials)}"
    for size in sizes:
        yield f"| {size:,} | {' | '.join(_widths(cells[size, one]) for one in trials)} |"
    yield ""


def _tables(rows: list[Row], cell: Cell, raw: Cell) -> Iterator[str]:
    for search in dict.fromkeys(row["search"] for row in rows):
        own = [row for row in rows if row["search"] == search]
        tasks = list(dict.fromkeys(row["task"] for row in own))
        yield f"| {search} | {' | '.join(tasks)} |"
        yield f"|---|{'---:|' * len(tasks)}"
        first = {row["task"]: raw(row) for row in own}
        yield f"| {own[0]['peer']} | {' | '.join(first[task] for task in tasks)} |"
        for way in dict.fromkeys(row["way"] for row in own):
            cells = {row["task"]: cell(row) for row in own if row["way"] == way}
            yield f"| {way} | {' | '.join(cells[task] for task in tasks)} |"
        yield ""


def _found(row: Row) -> str:
    error = "" if row["error"] is None else f" ± {_share(row['error'])}"
    return f"{_share(row['ours'])} ({_share(-row['behind'], sign='+')}{error})"


def _claim(row: Row) -> str:
    return f"{_share(row['claimed'])} ± {_share(row['width'])} ({row['covered']})"


def _effort(row: Row, prefix: str) -> str:
    return f"{row[f'{prefix}complete']:.1f}, {row[f'{prefix}epochs']:.0f}"


def _widths(rows: list[Row]) -> str:
    sealed = " / ".join(_share(row["ours"]) for row in rows)
    return f"{_share(rows[0]['theirs'])}, {sealed}"


def _share(value: float, sign: str = "") -> str:
    """Write four decimals without the zero before them."""
    return f"{value:{sign}.4f}".replace("0.", ".", 1)
