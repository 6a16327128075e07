"""The verdict in plain language; it claims no more than the certificate does.

*The truth* is the population value: what infinitely many fresh examples would give.
"""

from typing import Any

from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.text import LARGE_EPSILON, USELESS, counted
from torch_holdout.mechanisms import mechanism_of
from torch_holdout.report.closed_verdict import (
    best_remarks,
    closed_remark,
    sealed_headline,
    sealed_verdict,
)
from torch_holdout.report.records import RecordsReport
from torch_holdout.report.remarks import (
    Remark,
    batches,
    blocks,
    confidence,
    groups,
    privacy,
    quotient,
    short,
    strength,
)
from torch_holdout.report.summary import HoldoutReport, Report, Run, StatisticReport
from torch_holdout.report.wording import (
    cost_text,
    delta_text,
    distance_text,
    interval_text,
    joined,
    named,
    of_run,
    percent_text,
    value_text,
)

_MANY = 3  # statistics, beyond which a headline names none
NEXT = "the next number, if it is released,"  # a later one may be farther off


def paragraph(report: Report) -> str:
    """Return the headlines of all accounts, for a terminal.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> from torch_holdout.report.summary import summarise
        >>> paragraph(summarise(Ledger("memory://")))
        'The ledger has no account yet.'
    """
    require_instance("report", report, Report)
    if not (report.holdouts or report.records):
        return "The ledger has no account yet."
    lines = [f"{named(h.status.name)}: {headline(h)}" for h in report.holdouts]
    return "\n".join(
        lines + [f"records {named(r.status.name)}: {records_headline(r)}" for r in report.records]
    )


def headline(holdout: HoldoutReport) -> str:
    """Return a sentence: the budget left, the certified distance, and what not to report."""
    if holdout.status.unit == "run":
        return sealed_headline(holdout)
    parts = [_left(holdout), _worth(holdout)]
    if holdout.status.guesses and holdout.status.releases:
        parts.append("do not report guesses")
    if holdout.refused:
        parts.append("do not report stale values")
    sentence = "; ".join(parts) + "."
    return sentence[0].upper() + sentence[1:]


def verdict(holdout: HoldoutReport) -> tuple[Remark, ...]:
    """Return remarks on what may be reported, what may not, and why."""
    if holdout.status.unit == "run":
        return sealed_verdict(holdout)
    remarks = [
        Remark("Certificate", strength(told(holdout), closed=holdout.status.closed)),
        *(Remark(f"Best {short(s)}", _best(s, holdout)) for s in holdout.statistics),
        Remark("Runs", " ".join(filter(None, map(_side_by_side, holdout.statistics)))),
        Remark("Guesses", _guesses(holdout)),
        Remark("Stale values", _stale(holdout)),
        Remark("Closed", closed_remark(holdout)),
        *best_remarks(holdout),
        Remark("Privacy", privacy(holdout)),
    ]
    return tuple(remark for remark in remarks if remark.text)


def not_promised(holdout: HoldoutReport) -> tuple[str, ...]:
    """Return what the numbers do not promise."""
    status = holdout.status
    limits = [
        "Nothing is claimed about values that did not pass the door: raw metrics that were "
        "printed, logged or kept elsewhere void every claim on this page.",
        "The claim is about examples like those of the holdout. It does not cover another "
        "population, or a later one that has drifted.",
        "Values are clipped to the declared bounds; what lies beyond them does not count.",
    ]
    limits += meanings(holdout)
    if not status.renaming_detected:
        limits.append(
            "The account does not know its data's fingerprint: the same data under another name "
            "would have a new budget, and this page would not show it."
        )
    if status.seeded:
        limits.append(
            "The noise comes from a seed, for tests: anyone who knows the seed can remove it, so "
            "no privacy is given."
        )
    if mechanism_of(status.mechanism).guess_source() == "training":
        limits.append("Guesses are training values: they give the training records no privacy.")
    names = "Run names, and how often runs asked after the budget was gone, are not checked."
    if status.unit == "run":
        names = (
            "Run names are not checked. Weights that a silent run has kept tell more than was "
            "charged for if they are loaded by hand before closing."
        )
    return (
        *limits,
        names,
        "The ledger's own checks find damage and careless edits, not a rewrite of all of it. A "
        "restored backup or a copy refunds budget, and this page cannot show that.",
        "Python cannot keep other code in the same process from reading the raw values.",
    )


def meanings(holdout: HoldoutReport) -> list[str]:
    """Return what is claimed where a statistic is no plain mean over examples."""
    status = holdout.status
    found = [blocks(s, status.size) for s in holdout.statistics if s.blocks is not None]
    sizes = {n: own["batch_size"] for n, own in status.statistics.items() if "batch_size" in own}
    found += [batches(s, sizes[s.name]) for s in holdout.statistics if s.name in sizes]
    found += [groups(s, status.size) for s in holdout.statistics if s.name in status.grouped]
    return found + [quotient(s) for s in holdout.statistics if s.ratio]


def records_headline(records: RecordsReport) -> str:
    """Return a sentence: the charges so far, and the promise."""
    status = records.status
    at = "" if status.delta is None else f" at delta {delta_text(status.delta)}"
    cost = f"epsilon {cost_text(status.epsilon)}{at}, {status.relation}"
    promise = f"all answers together cost at most {cost}"
    if status.seeded:
        promise = "the noise is seeded, so no privacy is given"
    if not status.queries:
        return f"Nothing has been asked yet; {promise}."
    asked = f"{counted(status.queries, 'question')} answered"
    return f"{asked}, {percent_text(status.share_spent)} of the budget charged; {promise}."


def records_verdict(records: RecordsReport) -> tuple[Remark, ...]:
    """Return the remarks on an account of training records."""
    status = records.status
    remarks = [
        "The cap holds for everything that was and will be asked, by anyone, in any order, until "
        "the budget is gone; then a batch is refused as a whole."
    ]
    if status.epsilon > LARGE_EPSILON and not status.seeded:
        remarks.append(f"An epsilon above {LARGE_EPSILON} protects nobody's record.")
    if status.epsilon_spent is None:
        remarks.append(
            "With a delta, no smaller number than the cap is a promise: what has been charged is a "
            "share of the budget, not an epsilon."
        )
    if status.share_spent >= 1:
        remarks.append("The budget is gone: nothing more is answered.")
    return (Remark("Privacy", " ".join(remarks)),)


def records_not_promised(records: RecordsReport) -> tuple[str, ...]:
    """Return what an account of training records does not protect."""
    limits = [
        "The records are protected from the answers and from nothing else: not from the members' "
        "weights, outputs, losses or checkpoints, which stay as secret as the records.",
        "Hyperparameters, normalisation and vocabularies that were chosen on the records are not "
        "covered.",
        "Members must have seen nothing but their own part; verify_isolation tests that.",
    ]
    if not records.status.renaming_detected:
        limits.append(
            "The account does not know its records' fingerprint: the same records under another "
            "name would have a new budget."
        )
    if records.status.seeded:
        limits.append("The noise comes from a seed, for tests: the privacy figures do not apply.")
    return tuple(limits)


def told(holdout: HoldoutReport) -> list[StatisticReport]:
    """Return the statistics that the certificate covers: those released, at first all of them.

    Once there are releases it holds for these, not for the next one, which may be farther off.
    """
    return [s for s in holdout.statistics if s.releases or not holdout.status.releases]


def reach(statistic: StatisticReport, holdout: HoldoutReport) -> str:
    """Format how far a statistic's answers can be off."""
    if statistic in told(holdout):
        which = "each release" if statistic.releases else "the next answer, if it is released,"
        claim = f"{which} within {distance_text(statistic.tolerance)} of the truth"
    else:
        claim = "no release, so nothing is claimed"
    guess = None if holdout.certificate.one_sided_guesses else statistic.guess_tolerance
    if guess is None or not statistic.guesses:
        return claim
    return f"{claim}, a guess within {distance_text(guess)}"


def _left(holdout: HoldoutReport) -> str:
    status = holdout.status
    if status.closed:
        return "closed, so nothing more can be asked"
    if status.exhausted:
        return f"no releases left of {status.budget:,}"
    left = f"{counted(status.budget_left, 'release')} left"
    return left if status.queries else f"nothing has been asked yet, {left}"


def _worth(holdout: HoldoutReport) -> str:
    status = holdout.status
    if status.queries and not status.releases:
        return "nothing has been released, so there is nothing to report"
    spoken = told(holdout)
    usable = [s for s in spoken if s.share <= USELESS]
    confident = f"with {confidence(holdout)} confidence"
    if not usable:
        return "the certificate says nothing useful"
    what = "each released number" if status.releases else NEXT
    if len(spoken) == 1:
        return f"{what} is within {distance_text(spoken[0].tolerance)} of the truth {confident}"
    if len(spoken) > _MANY:
        most = percent_text(float(distance_text(max(s.share for s in usable))))
        if len(usable) < len(spoken):
            what = f"of {len(usable)} statistics {what}"
        return f"{what} is off by at most {most} of its range {confident}{_silent(spoken)}"
    if not status.releases:
        within = " or ".join(f"{distance_text(s.tolerance)} ({short(s)})" for s in usable)
        return f"{confident} {NEXT} is within {within} of the truth{_silent(spoken)}"
    claims = [
        f"{short(s)} {'within' if i else 'is within'} {distance_text(s.tolerance)}"
        for i, s in enumerate(usable)
    ]
    return f"{confident} each released {joined(claims)} of the truth{_silent(spoken)}"


def _silent(spoken: list[StatisticReport]) -> str:
    silent = [short(s) for s in spoken if s.share > USELESS]
    return f"; the certificate says nothing useful about {joined(silent)}" if silent else ""


def _best(statistic: StatisticReport, holdout: HoldoutReport) -> str:
    best = statistic.best
    if best is None:
        return ""
    remark = (
        f"The best released {short(statistic)} is {value_text(best.value, statistic.step)} "
        f"(question {best.position:,}{of_run(best.run)}). The truth about that model lies between "
        f"{interval_text(best.low, best.high, statistic.step).replace(' to ', ' and ')} with "
        f"{confidence(holdout)} confidence."
    )
    if statistic.releases > 1:
        remark += (
            f" It was chosen as the best of {counted(statistic.releases, 'release')}: report it "
            f"with its interval, which allows for that."
        )
    return remark


def overlapping(statistic: StatisticReport) -> tuple[list[Run], list[Run]]:
    """Return the listed runs with a release, and those that the best cannot be told apart from."""
    released = [run for run in statistic.runs if run.best is not None]
    if not released or released[0].best is None:
        return [], []
    first = released[0].best
    near = [
        run
        for run in released[1:]
        if run.best is not None and run.best.high >= first.low and run.best.low <= first.high
    ]
    return released, near


def _side_by_side(statistic: StatisticReport) -> str:
    released, near = overlapping(statistic)
    if len(released) < 2:
        return ""
    best, others = f"By {short(statistic)} the best run", len(released) - 1
    left_out = statistic.runs_released - len(released)
    # Those left out are worse, but their intervals may be wider and reach farther.
    of_all = f"next best of {others + left_out:,} others" if left_out else "others"
    if not near:
        which = f"{'the' if left_out else 'all'} {others:,} {of_all}"
        which = "the other" if others == 1 else which
        apart = "the intervals do not overlap"
        return f"{best} can be told apart from {which} with a release: {apart}."
    if len(near) == others:
        which = "the other run" if others == 1 else f"any of the {others:,} {of_all}"
    else:
        which = f"{len(near):,} of the {others:,} {of_all}"
    return f"{best} cannot be told apart from {which} with a release: their intervals overlap."


def _guesses(holdout: HoldoutReport) -> str:
    status = holdout.status
    if not status.guesses:
        return ""
    kind = "are guesses" if status.guesses > 1 else "is a guess"
    number = f"{status.guesses:,} of {counted(status.queries, 'answer')} {kind}"
    if holdout.certificate.one_sided_guesses:
        baseline = " or the registered baseline" if status.mechanism.get("baseline") else ""
        meaning = (
            f"the best release{baseline} again. It says only that the model asked about is not "
            f"much better; it may be far worse"
        )
    else:
        meaning = f"{_source(status.mechanism)}, farther off than a release may be"
    return f"{number}: {meaning}. A guess costs nothing and is not a result; do not report it."


def _source(identity: dict[str, Any]) -> str:
    source = mechanism_of(identity).guess_source()
    if source == "training":
        return "the training value, which the holdout did not contradict"
    if source == "caller":
        return "the caller's own value, which the holdout did not contradict"
    first = " or the registered first guess" if identity.get("initial") else ""
    return f"the last release{first} again, which the holdout did not contradict"


def _stale(holdout: HoldoutReport) -> str:
    if not holdout.refused:
        return ""
    runs = {stale.run for s in holdout.statistics for stale in s.stale}
    return (
        f"{counted(holdout.refused, 'question')} from {counted(len(runs), 'run')} came after the "
        f"budget was gone and got no answer. Such a run then showed its last answer "
        f"again, a stale value: it certifies nothing about the model at that time."
    )
