"""Remarks that every kind of holdout has in common."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.text import LARGE_EPSILON, USELESS, WEAK, confidence_text, counted
from torch_holdout.mechanisms import mechanism_of
from torch_holdout.report.summary import HoldoutReport, StatisticReport
from torch_holdout.report.wording import cost_text, delta_text, distance_text, joined, unquoted

HELP = (
    "A larger holdout, fewer releases, or a part of the data that is opened only once would "
    "certify more; more noise rarely would."
)


@final
@dataclass(frozen=True)
class Remark:
    """One remark of a verdict, with its heading."""

    about: str
    text: str


def confidence(holdout: HoldoutReport) -> str:
    """Format the certificate's confidence."""
    return confidence_text(holdout.certificate.failure)


def strength(
    told: Sequence[StatisticReport], noun: str = "release", *, closed: bool = False
) -> str:
    """Return what is to be said about a weak certificate of some statistics; else nothing."""
    unclaimed = [s for s in told if s.unclaimed]
    useless = [s for s in told if s.share > USELESS and not s.unclaimed]
    weak = [s for s in told if WEAK < s.share <= USELESS]
    remarks = []
    if useless:
        which = joined(
            [f"{distance_text(s.tolerance)} for {short(s)} ({scale(s)})" for s in useless]
        )
        remarks.append(
            f"The certified distance is {which}: such an interval covers nearly everything, so the "
            f"certificate says nothing useful. Early {noun}s can have narrower intervals of their "
            f"own."
        )
    if weak:
        which = joined([f"{short(s)} ({distance_text(s.tolerance)}, {scale(s)})" for s in weak])
        remarks.append(f"That is a weak certificate for {which}.")
    if remarks:
        remarks.append(HELP.replace("releases", f"{noun}s"))
    if unclaimed:
        which = joined([short(s) for s in unclaimed])
        remedy = "register its smallest value in a new account, or close this one"
        if closed:
            remedy = "report what closing has shown"
        remarks.append(
            f"Nothing is claimed for {which} as published before closing, because the denominator "
            f"may be 0: {remedy}."
        )
    return " ".join(remarks)


def privacy(holdout: HoldoutReport) -> str:
    """Return what the answers cost in privacy."""
    status = holdout.status
    what = "answers" if status.unit == "release" else "decisions"
    if status.seeded:
        return "The noise is seeded, for tests only: the privacy figures do not apply."
    if math.isinf(status.epsilon):
        if status.closed and mechanism_of(status.mechanism).is_private():
            return (
                "There was noise, but closing with exact=True has published every value: epsilon "
                "is infinite for good."
            )
        if status.rho_spent is not None:
            return (
                "Gaussian noise has no pure epsilon, and the account was made without a delta: no "
                "finite epsilon is stated."
            )
        return (
            f"There is no privacy: {what} carry no noise, so epsilon is infinite. The certificate "
            f"does not need it; a holdout of sensitive records does."
        )
    at = "" if status.delta is None else f" at delta {delta_text(status.delta)}"
    remark = (
        f"All {what} of the whole budget together cost at most epsilon "
        f"{cost_text(status.epsilon)}{at}, replacing one holdout {status.replaced}."
    )
    if status.epsilon > LARGE_EPSILON:
        remark += f" An epsilon above {LARGE_EPSILON} protects nobody's record."
    return remark


def blocks(statistic: StatisticReport, size: int) -> str:
    """Return what a mean over blocks claims."""
    return (
        f"{short(statistic)} is a mean over {counted(statistic.units, 'block')} of about "
        f"{size / statistic.units:,.0f} examples each. The claim is about the expected metric on "
        f"such a block, not on all examples at once."
    )


def batches(statistic: StatisticReport, batch_size: int) -> str:
    """Return what a mean of logged batches claims."""
    return (
        f"{short(statistic)} is a mean over logged batches of {batch_size} examples, "
        f"counted as {counted(statistic.units, 'unit')}. The claim is about the expected clipped "
        f"mean of such a batch, and privacy counts per batch."
    )


def groups(statistic: StatisticReport, size: int) -> str:
    """Return what a mean over groups claims."""
    return (
        f"{short(statistic)} is a mean over {counted(statistic.units, 'group')} of the {size:,} "
        f"rows, and a group is a unit: each counts once, however many rows it has. The claim is "
        f"about groups like these, and holds if they are independent of each other."
    )


def quotient(statistic: StatisticReport) -> str:
    """Return what a ratio claims."""
    return (
        f"{short(statistic)} is the quotient of two means over the examples. The claim is about "
        f"the quotient of the two expectations, cut to its bounds, not about the mean of the "
        f"examples' own quotients."
    )


def short(statistic: StatisticReport) -> str:
    """Return a statistic's name, shortened."""
    return unquoted(statistic.name)


def scale(statistic: StatisticReport) -> str:
    """Return a statistic's bounds in words."""
    return f"on a scale from {statistic.low:g} to {statistic.high:g}"
