"""The result of an audit as a table, for the command line."""

import sys

from torch_holdout.audit.evidence import Row


def print_audit(rows: list[Row]) -> None:
    """Print what was claimed and measured as a table, and count what holds."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Claimed against measured", title_justify="left")
    for heading in ("subject", "evidence", "what", "claimed", "measured", "verdict"):
        table.add_column(heading, justify="right" if heading in ("claimed", "measured") else "left")
    for row in rows:
        verdict = "caught" if row.twin and row.flagged else "MISSED" if row.twin else "holds"
        verdict = "LEAKS" if row.flagged and not row.twin else verdict
        subject = f"twin: {row.subject}" if row.twin else row.subject
        numbers = (f"{row.claimed:.4g}", f"{row.measured:.4g}")
        table.add_row(subject, row.evidence, row.what, *numbers, verdict)
    width = None if sys.stdout.isatty() else 120
    Console(highlight=False, width=width).print(table)
    ours = sum(not row.twin for row in rows)
    caught = sum(row.twin and row.flagged for row in rows)
    print(
        f"{sum(row.right for row in rows if not row.twin)} of {ours} checks hold; {caught} of "
        f"{len(rows) - ours} broken twins were caught. Sampled rows flag what is right with "
        f"probability 1e-6 together."
    )
