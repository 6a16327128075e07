"""Which mechanism for early stopping? Real training curves, replayed through each of them.

Prints a table per data set and draws them all.

    python examples/mechanisms.py         # about a minute
    python examples/mechanisms.py --seeds 5 --epochs 200 --configurations 200

The second gives useful standard errors and takes much longer. Look at "regret" (what the mechanism
cost you) beside "certified" (what you may claim). Leaves mechanisms.png.
"""

import argparse
import sys
from pathlib import Path

from experiments.curves import TASKS
from experiments.early_stopping import experiment, groups, table
from experiments.mechanism_figure import draw
from rich.console import Console


def progress(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--configurations", type=int, default=20, help="of the random search")
    parser.add_argument("--output", type=Path, default=Path("mechanisms.png"))
    arguments = parser.parse_args()

    rows = experiment(
        seeds=arguments.seeds,
        epochs=arguments.epochs,
        configurations=arguments.configurations,
        progress=progress,
    )
    progress("")
    console = Console(highlight=False)
    for (data, loss), own in groups(rows).items():
        console.print(table(own, title=f"{data}, {loss}"), "")
    print(
        "Regret: fresh loss of the chosen model minus the best. Gap: reported minus fresh loss, "
        "below 0 is too optimistic.\nCertified: with 95 % confidence every released loss is this "
        "near to the population's. All losses are in [0, 1]."
    )
    for task in TASKS:
        if task.problem is not None:
            print(task.problem)
    draw(rows, arguments.output)
    print(f"Picture: {arguments.output}")


if __name__ == "__main__":
    main()
