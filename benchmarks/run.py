"""Runs benchmarks in processes of their own; prints one table, writes JSON and the page.

Some train for half an hour. They are run by hand (``--only NAME --into benchmarks/results.json``);
a whole run keeps their last results, and every row says when it was measured.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from _first_table import with_table
from _machine import load, machine
from _page import page
from _results import BY_HAND, Row, missing, number, read_row, verdict
from rich.box import ASCII, HEAVY_HEAD
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
LIMIT = 3600.0  # seconds for one benchmark, also on a busy machine
GRACE = 15.0  # seconds for a benchmark to stop its own children
COLUMNS = ("what", "case", "ours", "peer", "theirs", "unit", "ratio", "verdict")


def scripts(folder: Path) -> list[Path]:
    """Return the benchmarks of a folder: every script but this one and the shared modules."""
    found = sorted(folder.glob("*.py"))
    return [path for path in found if path.name != "run.py" and not path.name.startswith("_")]


def run_script(script: Path, quick: bool, limit: float) -> tuple[list[Row], str | None]:
    """Return the rows of one benchmark, and why it failed if it did."""
    command = [sys.executable, str(script), *(["--quick"] if quick else [])]
    with started(command) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return [], f"it took more than {limit:g} seconds"
    rows, failed = read_rows(output, script.stem)
    return rows, f"exit code {process.returncode}" if process.returncode else failed


@contextlib.contextmanager
def started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that leads its own group; whatever happens, the group ends with the block."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:  # Ctrl-C or too slow: first let it clean up
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def read_rows(output: str, benchmark: str) -> tuple[list[Row], str | None]:
    """Return the rows of a benchmark's output, and what is wrong with it."""
    try:
        rows = [read_row(line, benchmark) for line in output.splitlines()]
    except ValueError as error:
        return [], f"it printed a line that is not a comparison: {error}"
    return rows, None if rows else "it printed no comparison"


def run_all(chosen: list[Path], *, quick: bool, limit: float) -> dict[str, Any]:
    """Run benchmarks one after the other, with progress on stderr."""
    rows: list[Row] = []
    benchmarks = []
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    for place, script in enumerate(chosen, start=1):
        say(f"{place}/{len(chosen)} {script.stem} ... ", end="")
        start, busy = time.monotonic(), load()
        found, failed = run_script(script, quick, limit)
        seconds = round(time.monotonic() - start)
        say(f"{seconds} s" + (f", FAILED: {failed}" if failed else ""))
        rows += [row | {"measured": date} for row in found]
        run = {"name": script.stem, "seconds": seconds, "failed": failed}
        benchmarks.append(run | {"measured": date, "quick": quick, "load": busy})
    return {
        "date": date,
        "machine": machine(),
        "benchmarks": benchmarks,
        "missing": missing(rows, [script.stem for script in chosen]),
        "rows": rows,
    }


def joined(found: dict[str, Any], earlier: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """Return a run's results with an earlier run's for the known benchmarks that were left out.

    Date and machine are those of the run that had more of them; of the other's benchmarks each says
    on what it was measured, as far as that differs.
    """
    run = {one["name"] for one in found["benchmarks"]}
    left = [one for one in earlier["benchmarks"] if one["name"] in set(known) - run]
    main = found if len(run) > len(left) else earlier
    benchmarks = [
        one | _differing(one.get("machine", {}), results["machine"], main["machine"])
        for results, own in ((found, found["benchmarks"]), (earlier, left))
        for one in own
    ]
    names = {one["name"] for one in left}
    rows = found["rows"] + [row for row in earlier["rows"] if row["benchmark"] in names]
    benchmarks.sort(key=lambda one: known.index(one["name"]))
    rows.sort(key=lambda row: known.index(row["benchmark"]))
    lacking = missing(rows, [one["name"] for one in benchmarks])
    facts = {"date": main["date"], "machine": main["machine"]}
    return facts | {"benchmarks": benchmarks, "missing": lacking, "rows": rows}


def _differing(own: dict[str, str], run: dict[str, str], shown: dict[str, str]) -> dict[str, Any]:
    facts = {name: value for name, value in (run | own).items() if shown.get(name) != value}
    return {"machine": facts} if facts else {}


def table(results: dict[str, Any], *, plain: bool) -> Table:
    """Return one table with a row for each comparison and for each failure."""
    title = f"{results['date']}, {results['machine']['processor']}"
    made = Table(title=title, box=ASCII if plain else HEAVY_HEAD)
    for name in COLUMNS:
        right = name in ("ours", "theirs", "ratio")
        made.add_column(name, justify="right" if right else "left", overflow="fold")
    for run in results["benchmarks"]:
        for row in results["rows"]:
            if row["benchmark"] == run["name"]:
                made.add_row(*cells(row))
        if run["failed"]:
            made.add_row(run["name"], f"failed: {run['failed']}", *[""] * 5, "failed")
        made.add_section()
    return made


def cells(row: Row) -> list[str]:
    """Return a row's texts in the order of the columns."""
    ours, theirs, ratio = (number(row[key]) for key in ("ours", "theirs", "ratio"))
    return [
        *(row["benchmark"], row["case"], ours, row["peer"], theirs),
        *(row["unit"], ratio, verdict(row)),
    ]


def write(results: dict[str, Any], output: Path | None, document: Path | None) -> None:
    """Write the JSON and the page."""
    if output is not None:
        output.write_text(json.dumps(results, indent=1) + "\n")
    if document is not None:
        document.write_text(page(results))


def say(text: str, end: str = "\n") -> None:
    """Tell the person who waits."""
    print(text, end=end, file=sys.stderr, flush=True)


def arguments(given: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each under 30 seconds, noisier")
    parser.add_argument("--only", action="append", metavar="NAME", help="a benchmark; repeatable")
    parser.add_argument("--all", action="store_true", help="those too that are run by hand")
    parser.add_argument("--output", type=Path, help="JSON of this run alone")
    parser.add_argument(
        "--into",
        type=Path,
        help="JSON of earlier runs, to be updated; a whole run's is results.json",
    )
    parser.add_argument("--show", type=Path, help="show the JSON of an earlier run, run nothing")
    parser.add_argument("--page", type=Path, help="the documentation page to rewrite")
    parser.add_argument("--readme", type=Path, help="the README whose first table to rewrite")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the benchmarks are")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each benchmark")
    found = parser.parse_args(given)
    known = [script.stem for script in scripts(found.folder)]
    unknown = sorted(set(found.only or ()) - set(known))
    if unknown or not known:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    if not (found.quick or found.only or found.show or found.output or found.into):
        found.into = found.folder / "results.json"
    return found


def main(given: list[str] | None = None) -> int:
    """Run, print, write; 1 if a benchmark failed or a required ratio is missing."""
    asked = arguments(given)
    if asked.show is not None:
        results = json.loads(asked.show.read_text())
    else:
        known = scripts(asked.folder)
        names = asked.only or {path.stem for path in known} - set(() if asked.all else BY_HAND)
        chosen = [path for path in known if path.stem in names]
        results = run_all(chosen, quick=asked.quick, limit=asked.limit)
        if asked.into is not None and asked.into.exists():
            earlier = json.loads(asked.into.read_text())
            results = joined(results, earlier, [path.stem for path in known])
    plain = not sys.stdout.isatty()
    Console(width=200 if plain else None).print(table(results, plain=plain))
    for output in (asked.output, asked.into):
        write(results, output, None)
    write(results, None, asked.page)
    if asked.readme is not None:
        asked.readme.write_text(with_table(asked.readme.read_text(), results))
    for name in results["missing"]:
        say(f"missing: {name}")
    failed = any(run["failed"] for run in results["benchmarks"])
    return int(failed or bool(results["missing"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; nothing was written")
        sys.exit(130)
