"""The verdict on sealed runs and on closed values; no value of an open holdout is known here."""

import math

from torch_holdout._shared.text import USELESS, counted
from torch_holdout.holdout.closing import ClosedValue
from torch_holdout.holdout.prices import HalfWidths
from torch_holdout.mechanisms import mechanism_of
from torch_holdout.report.remarks import Remark, confidence, privacy, short, strength
from torch_holdout.report.sealed import ClosedStatistic, Curve
from torch_holdout.report.summary import HoldoutReport
from torch_holdout.report.wording import (
    cost_text,
    distance_text,
    interval_text,
    joined,
    named,
    unquoted,
    value_text,
)

_MANY = 3  # statistics, beyond which a sentence names none


def sealed_headline(holdout: HoldoutReport) -> str:
    """Return a sentence: the runs left and what closing will be worth, or the best value."""
    if holdout.status.closed:
        return _closed_headline(holdout)
    parts = [_left(holdout), *_made(holdout), _worth(holdout)]
    sentence = "; ".join(parts) + "."
    return sentence[0].upper() + sentence[1:]


def sealed_verdict(holdout: HoldoutReport) -> tuple[Remark, ...]:
    """Return remarks on the runs, what they have said, and what was published."""
    opened = not holdout.status.closed
    remarks = [
        Remark("Certificate", strength(holdout.statistics, "run") if opened else ""),
        Remark("Values", _values(holdout) if opened else ""),
        Remark("Closed", closed_remark(holdout)),
        *best_remarks(holdout),
        Remark("Runs told apart", " ".join(filter(None, map(_told_apart, holdout.closed)))),
        Remark("Weights", _weights(holdout)),
        Remark("Decisions", _said(holdout)),
        Remark("Next", _next(holdout)),
        Remark("Privacy", privacy(holdout)),
    ]
    return tuple(remark for remark in remarks if remark.text)


def closed_remark(holdout: HoldoutReport) -> str:
    """Return what closing has published; empty while the holdout is open."""
    closing = holdout.closing
    if closing is None:
        return ""
    exact = sum(value.exact for value in closing.values)
    if exact:
        published = (
            f"{counted(exact, 'value')} of the holdout itself {'are' if exact > 1 else 'is'} "
            f"public now, with an interval each; with {confidence(holdout)} confidence all "
            f"intervals hold at once."
        )
    elif not closing.exact:
        published = (
            "Its noise protects the examples: no exact value was published, and no sums are kept."
        )
    else:
        published = "It had kept no value to publish."
    if holdout.status.unit == "run":
        return f"Nothing can be evaluated any more. {published}"
    return f"Nothing new can be asked; answers given before are repeated. {published}"


def best_remarks(holdout: HoldoutReport) -> list[Remark]:
    """Return the best of the holdout's own values, by statistic."""
    exact = "Best" if holdout.status.unit == "run" else "Exact"
    return [Remark(f"{exact} {unquoted(s.name)}", _best(s, holdout)) for s in holdout.closed]


def place(value: ClosedValue, name: str | None) -> str:
    """Format which evaluation a value is of."""
    called = "" if name is None else f" {named(name)}"
    if value.run:
        return f"run {value.run:,}{called}, evaluation {value.evaluation:,}"
    return f"question {value.evaluation:,}" + (f", run{called}" if called else "")


def _protects(holdout: HoldoutReport) -> bool:
    return mechanism_of(holdout.status.mechanism).is_private()


def _values(holdout: HoldoutReport) -> str:
    none = "No value has been shown, and this page has read none."
    if _protects(holdout):
        return (
            f"{none} The noise protects the examples: closing erases the sums, and shows the "
            f"values only with --exact, which states epsilon as infinite for good."
        )
    return (
        f"{none} Closing shows all of them, with an interval each, and ends the holdout for good: "
        f"torch-holdout close."
    )


def _closed_headline(holdout: HoldoutReport) -> str:
    if not holdout.closed:
        return f"Closed. {closed_remark(holdout)}"
    decides = _deciding(holdout)
    first = decides.curves[0]
    made = counted(holdout.status.queries, "evaluation")
    sentence = (
        f"Closed; the best {unquoted(decides.name)} of {made} in "
        f"{counted(len(holdout.status.runs), 'run')} is {_value(first.best, decides)} "
        f"({place(first.best, first.name)}), and the truth lies between {_between(first, decides)} "
        f"with {confidence(holdout)} confidence"
    )
    if decides.near:
        sentence += f"; {_near(decides)} cannot be told apart from it"
    return f"{sentence}."


def _deciding(holdout: HoldoutReport) -> ClosedStatistic:
    """Return the statistic that decided what is best in the first run."""
    closing = holdout.closing
    name = closing.runs[0].statistic if closing is not None and closing.runs else ""
    return next((s for s in holdout.closed if s.name == name), holdout.closed[0])


def _left(holdout: HoldoutReport) -> str:
    status = holdout.status
    if status.exhausted:
        return f"no runs left of {status.budget:,}"
    left = f"{counted(status.budget_left, 'run')} left"
    return left if status.runs else f"no run has been begun yet, {left}"


def _made(holdout: HoldoutReport) -> list[str]:
    status = holdout.status
    if not status.queries:
        return []
    return [
        f"{counted(status.queries, 'evaluation')} in {counted(len(status.runs), 'run')}, sealed"
    ]


def _worth(holdout: HoldoutReport) -> str:
    usable = [s for s in holdout.statistics if s.share <= USELESS]
    if not usable:
        return "the certificate says nothing useful"
    which = "each of them" if holdout.status.queries else "each evaluation of a first run"
    claim = f"with {confidence(holdout)} confidence closing will show {which} within"
    if _protects(holdout):
        claim = f"with {confidence(holdout)} confidence the hidden value of {which} is within"
    if len(usable) > _MANY:
        most = max(s.share for s in usable)
        return f"{claim} {distance_text(100 * most)} % of its range of the truth"
    if len(holdout.statistics) == 1:
        return f"{claim} {distance_text(usable[0].tolerance)} of the truth"
    within = joined([f"{distance_text(s.tolerance)} ({short(s)})" for s in usable])
    return f"{claim} {within} of the truth"


def _best(statistic: ClosedStatistic, holdout: HoldoutReport) -> str:
    first = statistic.curves[0]
    behind = "" if first.run else " behind an answer"
    remark = (
        f"The best {unquoted(statistic.name)}{behind} is {_value(first.best, statistic)} "
        f"({place(first.best, first.name)}). The truth about that model lies between "
        f"{_between(first, statistic)} with {confidence(holdout)} confidence."
    )
    if statistic.values > 1:
        remark += (
            f" It was chosen as the best of {counted(statistic.values, 'value')}: report it "
            f"with its interval, which allows for that."
        )
    return remark


def _told_apart(statistic: ClosedStatistic) -> str:
    if not statistic.others:
        return ""
    best = f"By {unquoted(statistic.name)} the best run"
    if not statistic.near:
        which = "the other" if statistic.others == 1 else f"all {statistic.others:,} others"
        return f"{best} can be told apart from {which}: the intervals do not overlap."
    overlap = "their intervals overlap"
    if statistic.near < statistic.others:
        which = f"{statistic.near:,} of the {statistic.others:,} others"
    else:
        which = (
            "the other run" if statistic.others == 1 else f"any of the {statistic.others:,} others"
        )
    return f"{best} cannot be told apart from {which}: {overlap}."


def _near(statistic: ClosedStatistic) -> str:
    return "1 other run" if statistic.near == 1 else f"{statistic.near:,} other runs"


def _weights(holdout: HoldoutReport) -> str:
    closing = holdout.closing
    kept = None if closing is None else closing.best_with_weights
    if closing is None or kept is None:
        return ""
    names = {run.number: run.name for run in closing.runs}
    same = closing.best_of(kept.statistic) == kept
    which = "The best evaluation's weights were kept" if same else "The best weights that were kept"
    return f"{which}: {place(kept, names[kept.run])}. closing.load_best(model) loads them."


def _said(holdout: HoldoutReport) -> str:
    status = holdout.status
    whole = math.fsum(status.nats.values())
    if not whole:
        return ""
    kinds = [
        f"{cost_text(said)} by {_SAYING[kind].format(counted(_number(holdout, kind), 'run'))}"
        for kind, said in status.nats.items()
        if said
    ]
    paid = "Every evaluation of another run pays for what was said before it."
    return f"Decisions have cost {cost_text(whole)} nats: {joined(kinds)}. {paid}"


_SAYING = {
    "open": "the silence of {} still open",
    "stopped": "{} that patience has stopped",
    "ended": "{} ended by hand",
    "given_up": "{} given up",
    "record": "record bits",
    "winner": "naming the best run",
    "challenge": "challenges",
}


def _number(holdout: HoldoutReport, state: str) -> int:
    return sum(run.state == state and run.nats > 0 for run in holdout.status.runs)


def _next(holdout: HoldoutReport) -> str:
    """Return what the next run is worth, and the last one, if nothing is shown."""
    prices = holdout.prices
    if prices.next is None:
        return ""
    made = counted(prices.evaluations, "evaluation")
    sentence = (
        f"A new run pays {cost_text(prices.said)} nats for what was said before it; "
        f"{made if prices.evaluations == 1 else f'each of its {made}'} would be within "
        f"{_reach(prices.next, holdout)} of the truth."
    )
    if prices.left == 1:
        return sentence
    last = _reach(prices.choices["nothing"].last, holdout)
    return f"{sentence} If nothing is shown until then, the last of {prices.left:,} within {last}."


def _reach(worth: HalfWidths, holdout: HoldoutReport) -> str:
    within = [
        distance_text(worth.by_statistic[s.name])
        + (f" ({short(s)})" if len(holdout.statistics) > 1 else "")
        for s in holdout.statistics[:_MANY]
    ]
    return joined(within)


def _value(value: ClosedValue, statistic: ClosedStatistic) -> str:
    return value_text(value.value, statistic.step)


def _between(curve: Curve, statistic: ClosedStatistic) -> str:
    best = curve.best
    return interval_text(best.low, best.high, statistic.step).replace(" to ", " and ")
