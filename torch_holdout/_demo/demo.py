"""The demo: a guarded run, the certificate of its result, and an attack."""

import math
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch_holdout as th
from torch_holdout._demo.digits import Run, early_stopping, has_digits
from torch_holdout._demo.doors import STATISTIC, GuardedDoor, RawDoor
from torch_holdout._demo.majority import Attack, majority_attack
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import Ledger
from torch_holdout.report import summarise, write
from torch_holdout.report.wording import distance_text

SIZE, QUERIES, BUDGET = 1000, 500, 20


def demo(picture: Path, *, epochs: int = 60, quiet: bool = False) -> dict[str, Any]:
    """Run both parts, print the results, and draw them (a table without matplotlib).

    Args:
        picture: Path of the picture; the report of the run goes beside it.
        epochs: The largest number of epochs.
        quiet: Print to the error stream, without progress bars.
    """
    from rich.console import Console

    _require_place(picture)  # not after a minute of training
    console = Console(highlight=False, stderr=quiet)
    run, page, stopped = _stop_early(console, picture, epochs, progress=not quiet)
    raw, guarded, unspent = _attack(console)
    if find_spec("matplotlib") is None:
        picture = picture.with_suffix(".txt")
        picture.write_text(written(run, raw, guarded))
    else:
        draw(run, raw, guarded, picture)
    _say_where(console, picture, page)
    return {
        "picture": str(picture),
        "report": str(page),
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


def written(run: Run, raw: Attack, guarded: Attack) -> str:
    """Format both parts as a table, where matplotlib is missing."""
    rows = [f"{'epoch':>5}  {'published':>9}  {'fresh data':>10}  {'left':>4}  what it is"]
    for epoch in run.epochs:
        mark = " <- chosen" if epoch is run.chosen else ""
        rows.append(
            f"{epoch.number:5d}  {epoch.published:9.3f}  {epoch.fresh:10.3f}  "
            f"{epoch.budget_left:4d}  {epoch.kind}{mark}"
        )
    return "\n".join(
        [
            *("Early stopping: validation loss", *rows, ""),
            f"Coin-flip labels, {QUERIES} adaptive questions: accuracy (truth 50 %)",
            f"raw holdout {_percent(raw.claimed)}, guarded holdout {_percent(guarded.claimed)}, "
            f"fresh data {_percent(guarded.fresh)}\n",
        ]
    )


def draw(run: Run, raw: Attack, guarded: Attack, picture: Path) -> None:
    """Draw both parts."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(3, 2))
    numbers = [epoch.number for epoch in run.epochs]
    left.plot(
        numbers, [e.fresh for e in run.epochs], color="0.55", lw=2, label="fresh data (the truth)"
    )
    left.step(
        numbers, [e.published for e in run.epochs], where="mid", color="C0", lw=1, alpha=0.6,
        label="published",
    )  # fmt: skip
    released = [e for e in run.epochs if e.kind == "release"]
    left.plot(
        [e.number for e in released], [e.published for e in released], "o", color="C0",
        label="release (costs one of the budget)",
    )  # fmt: skip
    left.axvline(run.chosen.number, color="C3", ls="--", lw=1.2, label="chosen epoch")
    left.set(
        xlabel="epoch",
        ylabel="validation loss",
        title=f"Early stopping: {len(released)} of {run.holdout.budget} releases spent",
    )
    left.legend(frameon=False)
    names = ["raw holdout\nsays", "guarded holdout\nsays", "fresh data\nsays"]
    values = [raw.claimed, guarded.claimed, guarded.fresh]
    bars = right.bar(names, values, color=["C3", "C0", "0.55"], width=0.6)
    shown = list(map(_percent, values))
    right.bar_label(bars, shown, label_type="center", color="white", fontsize=12, weight="bold")
    right.axhline(0.5, color="black", lw=1, ls=":")
    right.text(2, 0.51, "truth: 50 %", ha="center", va="bottom", fontsize=9)
    right.set(
        ylim=(0, 0.8),
        ylabel="accuracy of the analyst's classifier",
        title=f"Coin-flip labels, {QUERIES} adaptive questions",
    )
    left.xaxis.get_major_locator().set_params(integer=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _stop_early(
    console: Any, picture: Path, epochs: int, *, progress: bool
) -> tuple[Run, Path, dict[str, Any]]:
    """Train, tell, and write the report; return also what the ledger said, which is gone then."""
    data = "Digits" if has_digits() else "Generated patterns in ten classes"
    console.print(
        "[bold]1. Early stopping on a guarded validation loss[/bold]\n"
        f"{data} with 30 % of the labels replaced: a network that learns them by heart gets worse "
        "on new data. EarlyStopping reads only what the guard publishes; the progress bar shows "
        "how much of the budget is left.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = f"sqlite:///{folder}/holdout.db"
        run = early_stopping(ledger, epochs=epochs, progress=progress)
        console.print(_table(run))
        _explain(console, run)
        page = write(summarise(Ledger(ledger)), picture.with_suffix(".html"))
        results = {
            "epochs": [asdict(epoch) for epoch in run.epochs],
            "chosen": asdict(run.chosen),
            "budget_left": run.holdout.budget_left,
            "certificate": asdict(run.holdout.certificate()),
        }
    return run, page, results


def _attack(console: Any) -> tuple[Attack, Attack, int]:
    console.print(
        f"\n[bold]2. Why anyone should care[/bold]\n"
        f"{SIZE} labels are coin flips: nobody can be better than 50 %. An analyst asks for the "
        f"accuracy of {QUERIES} random classifiers, keeps those that look better than a coin, "
        f"inverts those that look worse, and lets them vote.\n"
    )
    raw, guarded, unspent = attacks()
    console.print(
        f"  a raw holdout says of the vote      {_percent(raw.claimed)}\n"
        f"  a guarded holdout says              {_percent(guarded.claimed)}   "
        f"({BUDGET - unspent} of {BUDGET} releases spent)\n"
        f"  on fresh data it is                 {_percent(guarded.fresh)}"
    )
    return raw, guarded, unspent


def _say_where(console: Any, picture: Path, page: Path) -> None:
    """Print the files, and which extra would improve them."""
    kind = "table" if picture.suffix == ".txt" else "picture"
    console.print(f"\nBoth parts in one {kind}: {picture}")
    console.print(f"The run's report, for a browser: {page}")
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


def _table(run: Run) -> Any:
    from rich.table import Table

    table = Table(title="What was published", title_justify="left")
    for name in ("epoch", "val_loss", "what it is", "releases left"):
        table.add_column(name, justify="left" if name == "what it is" else "right")
    for epoch in run.epochs:
        mark = " <- chosen" if epoch is run.chosen else ""
        table.add_row(
            str(epoch.number), f"{epoch.published:.3f}", epoch.kind + mark, str(epoch.budget_left)
        )
    return table


def _explain(console: Any, run: Run) -> None:
    chosen, certificate = run.chosen, run.holdout.certificate()
    distance = distance_text(certificate.user_tolerance["val_loss"])
    console.print(
        f"Chosen: epoch {chosen.number}, released val_loss {chosen.published:.3f}; on fresh data "
        f"it is {chosen.fresh:.3f}. The last epoch: {run.epochs[-1].fresh:.3f}.\n\n"
        f"{run.holdout.status()}\n\n"
        f"What the number is worth: with 95 % confidence every released val_loss is within "
        f"{distance} of the population's (losses go from 0 to 5), whatever was done "
        f"with the answers. That is wide, because {run.holdout.size} examples are few; a larger "
        f"holdout or fewer releases would narrow it."
    )
