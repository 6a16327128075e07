"""A plan as a table, for the command line."""

import sys
from typing import Any

from torch_holdout._shared.text import confidence_text, counted, up
from torch_holdout.planning.plan import Plan


def print_plan(plan: Plan) -> None:
    """Print a plan as a table, and its sentences."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"A plan (purpose: {plan.purpose})", show_header=False, title_justify="left"
    )
    shown = {
        "holdout examples": f"{plan.size:,}",
        "queries": f"{plan.queries:,} ({counted(plan.statistics, 'statistic')})",
        "mechanism": _brief(plan.mechanism.identity()),
        "budget": counted(plan.budget, "release"),
        "grid": f"{plan.grid} intervals",
        "certificate": "nothing"
        if plan.certificate.vacuous
        else f"+-{up(plan.certificate.tolerance)} (normalised)",
        "confidence": confidence_text(plan.certificate.failure),
        "epsilon": up(plan.epsilon) + ("" if plan.delta is None else f" at delta {plan.delta:g}"),
        "min_delta": f"{plan.min_delta:.2g} (times the statistic's range)",
        "patience": str(plan.patience),
    }
    for name, value in shown.items():
        table.add_row(name, value)
    width = None if sys.stdout.isatty() else 100
    console = Console(highlight=False, width=width)
    console.print(table)
    for sentence in plan.explanation.splitlines():
        console.print(f"- {sentence}")


def _brief(mechanism: dict[str, Any]) -> str:
    parameters = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in mechanism.items()
        if name != "kind" and value != {}
    )
    return f"{str(mechanism['kind']).capitalize()}: {parameters}"
