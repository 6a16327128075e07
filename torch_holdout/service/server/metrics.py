"""Counters of a serving board, for Prometheus: routes, statuses, bytes, budget; never an answer.

Nothing is split by team or by kind of answer, so nothing here tells what a team was told.
"""

import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import final

ROUTES = (
    "GET /v1/boards/{board}",
    "GET /v1/boards/{board}/leaderboard",
    "PUT /v1/boards/{board}/submissions/{sha256}",
    "GET /v1/boards/{board}/submissions/{sha256}",
    "GET /v1/boards/{board}/submissions",
    "PUT /v1/boards/{board}/finalists",
    "GET /v1/me",
    "POST /v1/token",
    "GET /boards/{board}",
    "GET /boards/{board}/team",
    "GET /boards/{board}/host",
    "GET /assets/{name}",
    "other",
)
# 0: the client went away before there was an answer.
STATUSES = (0, 200, 201, 304, 401, 403, 404, 405, 408, 409, 411, 413, 415, 422, 429, 500, 503)

# Sums over workers, then what is the same in every worker, where the newest is the largest.
_SUMS = ("bytes_received", "bytes_sent", "started", "finished", "answers", "answer_microseconds")
_GAUGES = ("heartbeat", "budget", "released", "planned", "submitted", "millinats")
_NAMES = _SUMS + _GAUGES
_PLACES = {(r, s): i for i, (r, s) in enumerate((r, s) for r in ROUTES for s in STATUSES)}
_SLOTS = {name: len(_PLACES) + i for i, name in enumerate(_NAMES)}
_SIZE = 8 * (len(_PLACES) + len(_NAMES))
_ALIVE_SECONDS = 15.0


@final
class Counters:
    """The counters of one worker: 64-bit numbers in a file of their own, written in place.

    One thread of one process writes; the admin port reads the files of all workers. So nothing
    waits for anything, and a killed worker's counts stay.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     counters = Counters(Path(folder))
        ...     counters.count("GET /v1/me", 200)
        ...     "me" in exposition(Path(folder)), ready(Path(folder))
        (True, False)
    """

    def __init__(self, folder: Path) -> None:
        path = folder / f"{os.getpid()}-{time.monotonic_ns()}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._numbers = memoryview(mmap.mmap(descriptor, _SIZE)).cast("Q")
        finally:
            os.close(descriptor)

    def count(self, route: str, status: int) -> None:
        """Count an answered request."""
        route = route if route in ROUTES else "other"
        self._numbers[_PLACES[route, status if status in STATUSES else 500]] += 1

    def add(self, name: str, amount: int) -> None:
        """Add to a sum."""
        self._numbers[_SLOTS[name]] += amount

    def put(self, name: str, amount: int) -> None:
        """Set a gauge."""
        self._numbers[_SLOTS[name]] = amount


def ready(folder: Path) -> bool:
    """Return whether a worker has reached the ledger within the last seconds."""
    newest = max((numbers[_SLOTS["heartbeat"]] for numbers in _read(folder)), default=0)
    return time.time() - newest < _ALIVE_SECONDS


def exposition(folder: Path) -> str:
    """Return the sums over all workers in the text format of Prometheus."""
    files = list(_read(folder))
    lines = _counter("requests_total", "Requests by route and status.", _requests(files))
    totals = {name: sum(numbers[_SLOTS[name]] for numbers in files) for name in _SUMS}
    newest = {
        name: max((numbers[_SLOTS[name]] for numbers in files), default=0) for name in _GAUGES
    }
    for name, about, value in (
        ("received_bytes_total", "Bytes of bodies that were read.", totals["bytes_received"]),
        ("sent_bytes_total", "Bytes of bodies that were sent.", totals["bytes_sent"]),
        ("answers_total", "Uploads that were evaluated or looked up.", totals["answers"]),
    ):
        lines += _counter(name, about, [("", str(value))])
    seconds = totals["answer_microseconds"] / 1e6
    about = "Time that these took, waiting for the ledger included."
    lines += _counter("answer_seconds_total", about, [("", f"{seconds:.6f}")])
    for name, about, number in (
        ("requests_in_flight", "Requests begun and not ended.", _in_flight(folder)),
        ("releases_budget", "Releases that all teams may be told together.", newest["budget"]),
        ("releases_told", "Releases told so far.", newest["released"]),
        ("submissions_planned", "Submissions that all teams may send.", newest["planned"]),
        ("submissions_answered", "Submissions in the ledger.", newest["submitted"]),
        ("told_nats", "What all answers told together.", newest["millinats"] / 1000),
    ):
        lines += _metric(name, "gauge", about, [("", f"{number:g}")])
    return "\n".join(lines) + "\n"


def _requests(files: list[memoryview]) -> list[tuple[str, str]]:
    rows = []
    for (route, status), place in _PLACES.items():
        if total := sum(numbers[place] for numbers in files):
            method, _, template = route.rpartition(" ")
            series = f'{{method="{method}",route="{template}",status="{status}"}}'
            rows.append((series, str(total)))
    return rows


def _in_flight(folder: Path) -> int:
    living = list(_read(folder, living=True))
    return sum(numbers[_SLOTS["started"]] - numbers[_SLOTS["finished"]] for numbers in living)


def _counter(name: str, about: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return _metric(name, "counter", about, rows)


def _metric(name: str, kind: str, about: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    full = f"torch_holdout_{name}"
    head = [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
    return head + [f"{full}{series} {value}" for series, value in rows]


def _read(folder: Path, *, living: bool = False) -> Iterable[memoryview]:
    """Yield the numbers of each worker; a file that is not whole yet is left out."""
    for path in sorted(folder.iterdir()):
        if living and not Path(f"/proc/{path.name.partition('-')[0]}").exists():
            continue
        content = path.read_bytes()
        if len(content) == _SIZE:
            yield memoryview(content).cast("Q")
