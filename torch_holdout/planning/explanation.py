"""A plan in words: one sentence for each decision, what is not reached and what would help."""

import math
import sys
from dataclasses import replace
from typing import Any

from torch_holdout._shared.text import LARGE_EPSILON, USELESS, WEAK, confidence_text, counted, up
from torch_holdout.bounds.single_query import hoeffding
from torch_holdout.planning.curves import lasting_interval
from torch_holdout.planning.decisions import sealed_size, sealed_tolerance
from torch_holdout.planning.setting import Plan, Setting

_SHORT = f"The certificate is weak: it is above {WEAK:g}."
_SLOW = 3  # how much longer the start of a slow run was, measured as in ``curves``
VAULT = 0.2  # of the size, suggested for one final number


def explain_runs(plan: Plan, setting: Setting) -> str:
    """Return the sentences of a plan for decisions."""
    claim, runs = plan.certificate, plan.budget
    facts = _run_facts(setting) | {"evaluations": plan.queries}
    sentences = [
        "Mechanism: Sealed; a run shows when it stops and which evaluation was its best, closing "
        "shows every value.",
        f"Budget: {counted(runs, 'run')} of {counted(plan.queries, 'evaluation')}; more "
        f"evaluations may come, at a higher price.",
        f"Certificate: with {confidence_text(claim.failure)} confidence every value of every "
        f"evaluation is within {up(claim.tolerance)} of the population's, once the holdout is "
        f"closed ({claim.theorem}).",
    ]
    if plan.statistics > 1:
        sentences.append(
            f"{plan.statistics} statistics: ln {plan.statistics} = {math.log(plan.statistics):.3f} "
            f"nats are in it; one alone would be within "
            f"{up(sealed_tolerance(**facts | {'statistics': 1}, runs=runs))}."
        )
    sentences.append(
        "Privacy: none, epsilon is infinite: decisions are taken on the raw values. "
        "th.Sealed(epsilon=1) takes them with noise."
    )
    if runs == 1:
        sentences.append(
            f"Stopping: th.Patience(statistic, patience={plan.patience}) stops the run where early "
            f"stopping on the raw values would."
        )
    else:
        stopped = sealed_tolerance(**facts, runs=runs, stops=runs - 1)
        sentences.append(
            f"Stopping: let a display set (th.split) stop the runs, and this holdout be silent "
            f"until closing: the certificate counts on that. If it stopped each run itself, the "
            f"stop epochs would cost extra: the last run would be within {up(stopped)}."
        )
    releases = min(20, plan.queries * plan.statistics)
    shown = replace(setting, queries=plan.queries * plan.statistics).certificate(releases)
    sentences.append(
        f"Showing {counted(releases, 'value')} instead (budget={releases}) would certify "
        f"+-{up(shown.tolerance)}."
    )
    if claim.tolerance > WEAK:
        needed = sealed_size(WEAK, **{k: v for k, v in facts.items() if k != "size"}, runs=runs)
        useless = claim.tolerance > USELESS
        sentences += [
            "Nothing useful can be certified with these numbers." if useless else _SHORT,
            f"It would take {needed:,} examples for {WEAK:g}.",
        ]
    return "\n".join(sentences)


def explain_values(plan: Plan, setting: Setting) -> str:
    """Return the sentences of a plan for values."""
    claim = plan.certificate
    sentences = [
        _mechanism(plan, setting),
        _budget(plan),
        f"Certificate: with {confidence_text(claim.failure)} confidence every released value is "
        f"within {up(claim.tolerance)} of the population's, however the budget is spent in these "
        f"queries ({claim.theorem}).",
        _privacy(plan),
    ]
    if plan.purpose != "search":
        sentences.append(
            f"EarlyStopping: min_delta {plan.min_delta:.2g} (half a grid step) and patience "
            f"{plan.patience} (a quarter of the evaluations: a release is better by a whole step)."
        )
    if plan.budget < setting.lasting_budget:
        sentences.append(_burning(plan.budget, setting))
    elif plan.purpose != "search" and plan.budget < min(
        plan.queries, _SLOW * setting.lasting_budget
    ):
        sentences.append(_slow(plan.budget, setting))
    if plan.refusal is None:
        sentences.append(f"{_decisions(setting)}.")
    else:
        sentences.append(plan.refusal)
    if plan.refusal is None and (shortfall := _shortfall(plan)):
        sentences += [shortfall, *_remedies(plan.tolerance or WEAK, plan.budget, setting)]
    vault = int(VAULT * plan.size)
    if vault:
        sentences.append(
            f"For one final number also keep a vault: {vault:,} more examples that nothing "
            f"reads until the end are within {up(hoeffding(vault, claim.failure))}, once."
        )
    return "\n".join(sentences)


def not_lasting(setting: Setting, tolerance: float, kept: int) -> str:
    """Return why a wanted tolerance is not answered with a budget, and the ways that reach it."""
    lasting = setting.lasting_budget
    needed = setting.smallest_size(tolerance, None)
    reach = (
        f"only {counted(kept, 'release')} of {setting.size:,} examples would reach it, and a run "
        f"like this spends {lasting}"
        if kept
        else f"not even one release of {setting.size:,} examples is that close"
    )
    larger = (
        f"It would take {needed:,} examples for {tolerance:g} with values that last."
        if needed
        else f"No number of examples gives {tolerance:g}."
    )
    return (
        f"The wanted tolerance of {tolerance:g} is not reached with values: {reach}. "
        f"{_decisions(setting)}. {larger}"
    )


def _run_facts(setting: Setting) -> dict[str, Any]:
    evaluations = setting.evaluations
    return {
        "size": setting.size,
        "evaluations": evaluations,
        "failure": setting.failure,
        "statistics": setting.statistics,
    }


def _decisions(setting: Setting) -> str:
    certified = f"would certify +-{up(sealed_tolerance(**_run_facts(setting), runs=1))}"
    way = f"(runs=1, queries={setting.evaluations})"
    if setting.purpose == "search":
        return f"Trials that need no values, as those of a random sampler, {way} {certified}"
    return f"Showing decisions instead {way} {certified}"


def _burning(budget: int, setting: Setting) -> str:
    lasting, evaluations = setting.lasting_budget, setting.evaluations
    if setting.purpose == "search":
        return (
            f"This budget may end early: {counted(evaluations, 'trial')} can have {lasting} "
            f"records, and each is a release."
        )
    share = max(1, budget // setting.statistics)
    every = lasting_interval(evaluations, share, setting.threshold)
    fewer = -(-evaluations // every) * setting.statistics
    return (
        f"A steep start can spend this budget: runs of {counted(evaluations, 'evaluation')} took "
        f"up to {lasting} releases at this step. Validate every {_ordinal(every)} time only, and "
        f"plan for queries={fewer}."
    )


def _slow(budget: int, setting: Setting) -> str:
    fewer = -(-setting.evaluations // _SLOW) * setting.statistics
    rarely = replace(setting, queries=fewer).certificate(budget).tolerance
    return (
        f"A network that learns slowly takes up to {_SLOW} times the releases. If yours does, "
        f"validate every {_ordinal(_SLOW)} time: queries={fewer} would certify +-{up(rarely)}."
    )


def _ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _mechanism(plan: Plan, setting: Setting) -> str:
    if setting.purpose == "curve":
        rule = "Thresholdout; the last release is returned until the holdout is more than"
        rule += f" {setting.threshold:.3g} away from it"
    else:
        rule = "Ladder; the best value is returned until one beats it by more than"
        rule += f" {setting.threshold:.3g}"
    sigma = setting.sigma(plan.budget)
    noise = f"noise of scale {sigma:.3g}" if sigma else "no noise"
    return f"Mechanism: {rule}; {noise}, answers in steps of 1/{setting.grid} (all normalised)."


def _budget(plan: Plan) -> str:
    shared = " All statistics share it." if plan.statistics > 1 else ""
    releases = counted(plan.budget, "release")
    if plan.budget >= plan.queries:
        return f"Budget: {releases}; each of {plan.queries} queries may be one.{shared}"
    return (
        f"Budget: {releases}: as many of {plan.queries} queries may be answered from the holdout; "
        f"the others cost nothing.{shared}"
    )


def _privacy(plan: Plan) -> str:
    if math.isinf(plan.epsilon):
        return (
            f"Privacy: none, epsilon is infinite. Noise that suits {plan.size:,} examples would "
            f"cost an epsilon above {LARGE_EPSILON}, which protects nobody: it is left out."
        )
    at = "pure" if plan.delta is None else f"at delta {plan.delta:g}"
    return f"Privacy: epsilon {up(plan.epsilon)} for the whole budget, {at}, replacing one example."


def _shortfall(plan: Plan) -> str | None:
    tolerance, wanted = plan.certificate.tolerance, plan.tolerance
    if wanted is not None:
        missed = tolerance > wanted
        return f"The wanted tolerance of {wanted:g} is not reached." if missed else None
    if tolerance > USELESS:
        return "Nothing useful can be certified with these numbers."
    return _SHORT if tolerance > WEAK else None


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

    shows = plan.mechanism.shows_values
    title = f"A plan for values (purpose: {plan.purpose})" if shows else "A plan for decisions"
    table = Table(title=title, show_header=False, title_justify="left")
    shown = {
        "holdout examples": f"{plan.size:,}",
        "queries" if shows else "evaluations of a run": (
            f"{plan.queries:,} ({counted(plan.statistics, 'statistic')})"
        ),
        "mechanism": _brief(plan.mechanism.identity()),
        "budget": counted(plan.budget, plan.unit),
        **({"grid": f"{plan.grid} intervals"} if shows else {}),
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
        if name != "kind" and value not in ({}, None)
    )
    return f"{str(mechanism['kind']).capitalize()}: {parameters}"
