"""Four ways to make a holdout lie, against a raw holdout and against every mechanism.

There is nothing to be found in the data: whatever is claimed beyond chance is overfitting.

    python examples/attacks.py --quick    # seconds; too small to show much
    python examples/attacks.py            # minutes

Look at the column "gap": large for the raw holdout, near 0 behind a mechanism. Leaves attacks.png.
"""

import argparse
from pathlib import Path

from experiments.attacks import Row, attack_table, draw
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table


def table(rows: list[Row]) -> Table:
    found = Table(
        padding=(0, 1, 0, 0),
        title="What analysts claim, and what is true",
        box=SIMPLE,
        show_edge=False,
    )
    for name in ("attack", "defence"):
        found.add_column(name, no_wrap=True)
    for name in ("claimed", "fresh", "gap", "releases"):
        found.add_column(name, justify="right", no_wrap=True)
    for before, row in zip([None, *rows], rows, strict=False):
        new = before is None or before.attack != row.attack
        if new and before is not None:
            found.add_section()
        found.add_row(
            row.attack if new else "", row.defence, f"{row.claimed:.3f}", f"{row.fresh:.3f}",
            f"{row.gap:+.3f}", f"{row.releases:.0f}",
        )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes; too small to show much"
    )
    parser.add_argument("--output", type=Path, default=Path("attacks.png"))
    arguments = parser.parse_args()
    small = {"size": 100, "queries": 60, "budget": 5, "repetitions": 1}
    rows = attack_table(**small if arguments.quick else {})
    Console().print(table(rows))
    draw(rows, arguments.output)
    print(f"Linear: mean inner product, chance 0. The others: accuracy, chance 0.5.\n"
          f"Picture: {arguments.output}")  # fmt: skip


if __name__ == "__main__":
    main()
