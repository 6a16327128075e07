"""A paragraph for a paper or a model card: how the data was used, and what may be claimed."""

import math

from torch_holdout._shared.text import LARGE_EPSILON, counted
from torch_holdout.ledger.backend import library_version
from torch_holdout.mechanisms import mechanism_of
from torch_holdout.report.closed_verdict import closed_remark, place
from torch_holdout.report.records import RecordsReport
from torch_holdout.report.remarks import confidence, privacy, short
from torch_holdout.report.summary import HoldoutReport, Shown, StatisticReport
from torch_holdout.report.verdict import meanings, records_headline
from torch_holdout.report.wording import (
    interval_text,
    named,
    of_run,
    parameters_text,
    unquoted,
    value_text,
)


def model_card(holdout: HoldoutReport) -> str:
    """Return a paragraph about a holdout that may be published as it is.

    It claims nothing but released or closed values, each with its interval.
    """
    closing, claims = holdout.closing, _closed(holdout) or _released(holdout)
    sentences = [
        f"A holdout of {counted(holdout.status.size, 'example')} "
        f"({named(holdout.status.name)}) was kept behind {library_version()} "
        f"({parameters_text(holdout.status.mechanism)}).",
        _shown(holdout),
        *claims,
    ]
    if claims:
        assumed = holdout.certificate.assumptions if closing is None else closing.assumptions
        sentences += [_together(holdout), *meanings(holdout)]
        sentences += [_privacy(holdout), f"This rests on assumptions: {'; '.join(assumed)}."]
    else:
        sentences += [_none(holdout), _privacy(holdout)]
    return " ".join(sentences)


def records_card(records: RecordsReport) -> str:
    """Return a paragraph about training records that may be published as it is."""
    return (
        f"Training records ({named(records.status.name)}) were used through private answers of "
        f"{library_version()}. {records_headline(records)} This assumes that "
        f"members saw only their part of the records (or, where nearest records vote, that the "
        f"embedding is public), and that nothing but the answers has left."
    )


def _shown(holdout: HoldoutReport) -> str:
    status = holdout.status
    if status.unit == "run":
        return (
            f"While it was in use it showed decisions and no value: "
            f"{counted(status.queries, 'evaluation')} in {counted(len(status.runs), 'run')}."
        )
    guesses = f", and {status.guesses:,} by a guess, which is no result" if status.guesses else ""
    return (
        f"It answered {counted(status.queries, 'question')}: {status.releases:,} with a released "
        f"value, of a budget of {status.budget:,}{guesses}."
    )


def _released(holdout: HoldoutReport) -> list[str]:
    return [_best(s, s.best) for s in holdout.statistics if s.best is not None and not s.unclaimed]


def _best(statistic: StatisticReport, best: Shown) -> str:
    value = value_text(best.value, statistic.step)
    where = f"question {best.position:,}{of_run(best.run)}"
    return (
        f"{_which(statistic.releases, 'released value')} of {short(statistic)} is "
        f"{value} ({where}); {_population(interval_text(best.low, best.high, statistic.step))}"
    )


def _closed(holdout: HoldoutReport) -> list[str]:
    found = []
    for statistic in holdout.closed:
        first = statistic.curves[0]
        best = first.best
        found.append(
            f"{_which(statistic.values, 'value')} of {unquoted(statistic.name)} is "
            f"{value_text(best.value, statistic.step)} ({place(best, first.name)}); "
            f"{_population(interval_text(best.low, best.high, statistic.step))}"
        )
    return found


def _which(number: int, noun: str) -> str:
    return f"The {noun}" if number == 1 else f"The best of {counted(number, noun)}"


def _population(interval: str) -> str:
    return f"the population value of that model lies between {interval.replace(' to ', ' and ')}."


def _together(holdout: HoldoutReport) -> str:
    what = "of the holdout's own values" if holdout.closed else "of released values"
    theorem = "" if holdout.closed else f" ({holdout.certificate.theorem})"
    return (
        f"With {confidence(holdout)} confidence all intervals {what} hold at once{theorem}, "
        f"although models were chosen by what the holdout had answered before."
    )


def _none(holdout: HoldoutReport) -> str:
    if holdout.status.closed:
        return f"{closed_remark(holdout)} No value is claimed."
    if holdout.status.unit == "run":
        return "It has not been closed: no value is known, and none is claimed."
    return "No value is claimed."


def _privacy(holdout: HoldoutReport) -> str:
    status = holdout.status
    private = mechanism_of(status.mechanism).is_private() and not status.seeded
    if not private or math.isinf(status.epsilon) or status.epsilon > LARGE_EPSILON:
        return "No privacy is claimed for its examples."
    return privacy(holdout)
