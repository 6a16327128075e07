"""A plan in words: one sentence for each decision, what is not reached and what would help."""

import sys
from typing import Any

from torch_holdout._shared.text import LARGE_EPSILON, USELESS, WEAK, confidence_text, counted, up
from torch_holdout.bounds.single_query import hoeffding
from torch_holdout.planning.setting import Plan, Setting

VAULT = 0.2  # of the size, suggested for one final number


def explanation(plan: Plan, setting: Setting, assumed: bool) -> str:
    """Return the sentences of a plan; ``assumed`` says that no budget was given."""
    claim = plan.certificate
    sentences = [
        _mechanism(setting),
        _budget(plan, assumed),
        f"Certificate: with {confidence_text(claim.failure)} confidence every released value is "
        f"within {up(claim.tolerance)} of the population's, however the budget is spent in these "
        f"queries ({claim.theorem}).",
        _privacy(plan),
    ]
    if plan.purpose != "search":
        sentences.append(
            f"EarlyStopping: min_delta {plan.min_delta:.2g} (half a grid step) and patience "
            f"{plan.patience} (evaluations for each release)."
        )
    shortfall = _shortfall(plan)
    if shortfall:
        sentences += [shortfall, *_remedies(plan.tolerance or WEAK, plan.budget, setting)]
    vault = int(VAULT * plan.size)
    if vault:
        sentences.append(
            f"For one final number keep a vault besides: {vault:,} more examples that nothing "
            f"reads until the end are within {up(hoeffding(vault, claim.failure))}, once."
        )
    return "\n".join(sentences)


def _mechanism(setting: Setting) -> str:
    if setting.purpose == "curve":
        rule = "Thresholdout; the last release is returned until the holdout is more than"
        rule += f" {setting.threshold:.3g} away from it"
    else:
        rule = "Ladder; the best value is returned until one beats it by more than"
        rule += f" {setting.threshold:.3g}"
    return (
        f"Mechanism: {rule}; noise of scale {setting.sigma:.3g}, answers in steps of "
        f"1/{setting.grid} (all normalised)."
    )


def _budget(plan: Plan, assumed: bool) -> str:
    shared = " All statistics share it." if plan.statistics > 1 else ""
    if assumed:
        shared += f" No budget was given: {plan.budget} is the default."
    if plan.budget >= plan.queries:
        return f"Budget: {plan.budget}; each of {plan.queries} queries may be a release.{shared}"
    return (
        f"Budget: {plan.budget} of {plan.queries} queries may be answered from the holdout; the "
        f"others cost nothing.{shared}"
    )


def _privacy(plan: Plan) -> str:
    at = "pure" if plan.delta is None else f"at delta {plan.delta:g}"
    cost = f"epsilon {up(plan.epsilon)} for the whole budget, {at}, replacing one example"
    weak = "; that protects nobody's record: the certificate is what this buys"
    return f"Privacy: {cost}{weak if plan.epsilon > LARGE_EPSILON else ''}."


def _shortfall(plan: Plan) -> str | None:
    tolerance, wanted = plan.certificate.tolerance, plan.tolerance
    if wanted is not None:
        missed = tolerance > wanted
        return f"The wanted tolerance of {wanted:g} is not reached." if missed else None
    if tolerance > USELESS:
        return "Nothing useful can be certified with these numbers."
    return "That is a weak certificate." if tolerance > WEAK else None


def _remedies(target: float, budget: int, setting: Setting) -> list[str]:
    needed, fits = setting.smallest_size(target, budget), setting.largest_budget(target)
    return [
        f"It would take {needed:,} examples for {target:g}."
        if needed
        else f"No number of examples gives {target:g}.",
        f"These {setting.size:,} allow {counted(fits, 'release')} for that."
        if fits
        else "Not even one release of these examples is that close.",
    ]


def print_plan(plan: Plan) -> None:
    """Print a plan as a table, and its sentences."""
    from rich.console import Console
    from rich.table import Table

    title = f"A plan (purpose: {plan.purpose})"
    table = Table(title=title, show_header=False, title_justify="left")
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
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
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
