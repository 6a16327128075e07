"""The demo: early stopping in three ways with what each can claim, and an attack."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch_holdout as th
from torch_holdout._demo.digits import has_digits
from torch_holdout._demo.doors import STATISTIC, GuardedDoor, RawDoor
from torch_holdout._demo.majority import Attack, majority_attack
from torch_holdout._demo.picture import certified, draw, percent, written
from torch_holdout._demo.ways import Training, Way, live_way, raw_way, sealed_way
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import Ledger
from torch_holdout.report import summarise, write
from torch_holdout.report.wording import distance_text

SIZE, QUERIES, BUDGET = 1000, 500, 20


def demo(picture: Path, *, epochs: int = 60, quiet: bool = False) -> dict[str, Any]:
    """Run both parts, print the results, and draw them (a table without matplotlib).

    Args:
        picture: Path of the picture; the reports go beside it.
        epochs: The largest number of epochs.
        quiet: Print to the error stream, without progress bars.
    """
    from rich.console import Console

    _require_place(picture)  # not after a minute of training
    console = Console(highlight=False, stderr=quiet)
    live_page = _live_page(picture)
    ways, page, stopped = _stop_early(console, picture, epochs, progress=not quiet)
    raw, guarded, unspent = _attack(console)
    if find_spec("matplotlib") is None:
        picture = picture.with_suffix(".txt")
        picture.write_text(written(ways, raw, guarded, QUERIES))
    else:
        draw(ways, raw, guarded, QUERIES, picture)
    _say_where(console, picture, page, live_page)
    return {
        "picture": str(picture),
        "report": str(page),
        "live_report": str(live_page),
        "early_stopping": stopped,
        "attack": {
            "raw": asdict(raw),
            "guarded": asdict(guarded),
            "queries": QUERIES,
            "budget": BUDGET,
            "budget_left": unspent,
        },
    }


def attacks(seed: int | None = None) -> tuple[Attack, Attack, int]:
    """Attack a raw and a guarded holdout the same way; return both and the budget left.

    ``seed`` makes the holdout's noise reproducible, for tests.
    """
    raw = majority_attack(RawDoor(), size=SIZE, queries=QUERIES, seed=11)
    step = 1 / (2 * math.sqrt(SIZE))  # one standard error of the mean
    holdout = th.ReusableHoldout(
        "memory://",
        name="coin flips",
        size=SIZE,
        statistics={STATISTIC: th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=4 * step, sigma=step / 8, guess="last"),
        budget=BUDGET,
        seed=seed,
    )
    guarded = majority_attack(GuardedDoor(holdout), size=SIZE, queries=QUERIES, seed=11)
    return raw, guarded, holdout.budget_left


def _stop_early(
    console: Any, picture: Path, epochs: int, *, progress: bool
) -> tuple[list[Way], Path, dict[str, Any]]:
    """Train three times, print and report the results; return also what the ledgers said."""
    data = "Digits" if has_digits() else "Generated patterns in ten classes"
    console.print(
        "[bold]1. Early stopping, three ways[/bold]\n"
        f"{data} with 30 % of the labels replaced: a network that learns them by heart gets worse "
        "on new data. The same training is stopped by raw values of a holdout, by guarded values "
        "(Thresholdout: noisy, budgeted), and by a sealed run, of which one learns when it stops.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        training = Training(folder, epochs=epochs, progress=progress)
        # One ledger for each: as if the other ways had never read this holdout.
        ledgers = [f"sqlite:///{folder}/{name}.db" for name in ("live", "sealed")]
        ways = [
            raw_way(training),
            live_way(training, ledgers[0]),
            sealed_way(training, ledgers[1]),
        ]
        console.print(_table(ways))
        _explain(console, ways)
        live = ways[1].holdout
        page = write(summarise(Ledger(ledgers[1])), picture.with_suffix(".html"))
        write(summarise(Ledger(ledgers[0])), _live_page(picture))
        results = {
            "ways": [way.facts() for way in ways],
            "live": {
                "epochs": [asdict(epoch) for epoch in ways[1].epochs],
                "budget_left": live and live.budget_left,
                "certificate": live and asdict(live.certificate()),
            },
            "sealed": {"epochs": [asdict(epoch) for epoch in ways[2].epochs]},
        }
    return ways, page, results


def _attack(console: Any) -> tuple[Attack, Attack, int]:
    console.print(
        f"\n[bold]2. Why anyone should care[/bold]\n"
        f"{SIZE} labels are coin flips: nobody can be better than 50 %. An analyst asks for the "
        f"accuracy of {QUERIES} random classifiers, keeps those that look better than a coin, "
        f"inverts those that look worse, and lets them vote.\n"
    )
    raw, guarded, unspent = attacks()
    console.print(
        f"  the vote, by a raw holdout          {percent(raw.claimed)}\n"
        f"  the vote, by a guarded holdout      {percent(guarded.claimed)}   "
        f"({BUDGET - unspent} of {BUDGET} releases spent)\n"
        f"  the vote, on fresh data             {percent(guarded.fresh)}"
    )
    return raw, guarded, unspent


def _say_where(console: Any, picture: Path, page: Path, live_page: Path) -> None:
    """Print the files, and which extra would improve them."""
    kind = "table" if picture.suffix == ".txt" else "picture"
    console.print(f"\nBoth parts in one {kind}: {picture}")
    console.print(f"Reports, for a browser: {page} (sealed run), {live_page} (guarded values)")
    gains = {"sklearn": "real digits", "matplotlib": "a picture"}
    if missing := [gain for name, gain in gains.items() if find_spec(name) is None]:
        console.print(f"For {' and '.join(missing)}: pip install 'torch-holdout\\[demo]'")


def _require_place(picture: Path) -> None:
    """Raise unless the folder can be created and written to."""
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=picture.parent):
            pass
    except OSError as error:
        raise HoldoutError(
            f"Expected a folder for the picture that can be written to, but {picture.parent} "
            f"cannot: {error.strerror}. Choose another place with --picture."
        ) from None


def _live_page(picture: Path) -> Path:
    return picture.with_name(f"{picture.stem}-live.html")


def _table(ways: Sequence[Way]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = "The chosen epoch, and what is known of its loss"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)  # fits 80 columns
    for name in ("way", "was shown"):
        table.add_column(name, no_wrap=True)
    for name in ("chosen", "says", "fresh", "certified"):
        table.add_column(name, justify="right", no_wrap=True)
    for way in ways:
        table.add_row(
            way.name,
            way.seen,
            f"{way.chosen.number} of {len(way.epochs)}",
            f"{way.chosen.published:.2f}",
            f"{way.chosen.fresh:.2f}",
            certified(way),
        )
    return table


def _explain(console: Any, ways: Sequence[Way]) -> None:
    _, live, sealed = ways
    if live.distance is None or sealed.distance is None or live.holdout is None:
        raise HoldoutError("Expected a certificate of both guarded ways. Report this as a bug.")
    share = sealed.distance / sealed.chosen.published
    console.print(
        f"\nRaw values choose well here, but nothing can be claimed of a value that was used to "
        f"choose; part 2 shows how wrong it can be.\n"
        f"Guarded values may be watched and used at will. That costs width: every one that was "
        f"released is within {distance_text(live.distance)} of the population's, with 95 % "
        f"confidence (losses go from 0 to 5).\n"
        f"The sealed run stops where raw values would and takes the same weights"
        f"{'' if sealed.chosen.number == ways[0].chosen.number else ' (not this time)'}. Nothing "
        f"else was seen before closing, so its loss is known to within "
        f"{distance_text(sealed.distance)}, {percent(share)} of it:\n\n"
        f"{sealed.closing}\n\n"
        f"Each way had a ledger of its own here. With a holdout of yours take one of them: a "
        f"certificate counts only what went through its own door."
    )
