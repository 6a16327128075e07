"""What a board promises, in sentences that its page shows."""

import math
from collections.abc import Mapping
from typing import Any

from torch_holdout._shared.text import confidence_text, counted, up
from torch_holdout.bounds.closing import exact_interval
from torch_holdout.holdout.board_results import Standing
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.statistics import statistic

_FEW = 200  # rows of 0 and 1: with fewer, Hoeffding's distance is promised
_EVERY_ACCOUNT = "All accounts count together: having two of them gains nothing that is certified."


def promises(
    config: BoardConfig, rows: int, standing: Standing, results: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Return the sentences of the box "What this board promises"."""
    if results is not None:
        return _after(config, results)
    public = public_rows(rows, config.data.public)
    return (*_now(config, public, standing), *_at_closing(config, rows, public, standing))


def public_rows(rows: int, share: float) -> int:
    """Return how many rows give feedback; at least one on each side of a real cut.

    Example:
        >>> public_rows(10_000, 0.3), public_rows(3, 0.01), public_rows(10, 0.0)
        (3000, 1, 0)
    """
    if share in (0, 1):
        return int(rows * share)
    return min(max(round(rows * share), 1), rows - 1)


def final_half_width(config: BoardConfig, rows: int, asked: int) -> float:
    """Return how far a value at closing can be from its interval's farther end, at most.

    In units of the first statistic. Each of ``asked`` submissions, and each of their K statistics,
    has its own share of the failure, so nothing that was told before matters:
    c = ln(2 K asked / failure).

    Example:
        >>> config = BoardConfig.model_validate({
        ...     "board": {"name": "digits", "title": "Digits"},
        ...     "data": {"labels": "labels.npy", "classes": 10, "upload": "classes",
        ...              "public": 0.3},
        ...     "statistics": {"accuracy": {"kind": "accuracy"}},
        ...     "feedback": {"mode": "ladder", "baseline": 0.55, "step": 0.01},
        ...     "limits": {"teams": 50, "submissions": 50, "releases": 8, "budget": 400},
        ...     "store": {"ledger": "sqlite:///board.db"}})
        >>> round(final_half_width(config, rows=7_000, asked=100), 4)
        0.0209
    """
    section = config.statistics[config.first]
    made = statistic(section)
    bracket = math.log(2 * len(config.statistics) * asked / config.limits.failure)
    units, kind = made.units(rows), StoredStatistic(made.identity()).interval_kind
    if kind == "zero_one" and units >= _FEW:
        middle = _exact_distance(units // 2, units, bracket)
        beside = units // 2 - round(units * middle / 2)  # its interval lies around 1/2: the widest
        return max(middle, _exact_distance(beside, units, bracket))
    if kind == "mean":  # the part of the failure that `combined_interval` leaves to KL
        bracket += math.log(10)
    return min(1.0, math.sqrt(bracket / (2 * units))) * (made.high - made.low)


def _exact_distance(successes: int, units: int, bracket: float) -> float:
    low, high = exact_interval(successes, units, bracket)
    return max(high - successes / units, successes / units - low)


def _now(config: BoardConfig, public: int, standing: Standing) -> tuple[str, ...]:
    mode = config.feedback.mode
    if mode == "sealed":
        return ("Nothing is told before closing, so nothing can be overfitted.",)
    if mode == "gate":
        certified = (
            f"Now: with {_confidence(config)} confidence no challenger that was kept is worse than "
            f"what it replaced."
        )
        margin = "Now: a challenger is kept when it looks better by the margin; nothing is claimed."
        return (certified if config.feedback.gate_rule == "certified" else margin, _EVERY_ACCOUNT)
    told = [answer.results[config.first].interval for answer in standing.best]
    rows = f"Now: {counted(public, 'row')}"
    if all(told) and (told or standing.claim.certified):
        sentence = f"{rows}; the intervals hold together with {_confidence(config)} confidence."
    elif any(told):
        sentence = (
            f"{rows}; the intervals that are drawn hold together with {_confidence(config)} "
            f"confidence. Values without one are guidance, not certified."
        )
    else:
        sentence = (
            f"{rows}; so much was told about them that intervals would be wider than a tenth "
            f"of the range: values are guidance, not certified."
        )
    return sentence, _EVERY_ACCOUNT


def _at_closing(config: BoardConfig, rows: int, public: int, standing: Standing) -> tuple[str, ...]:
    if config.feedback.mode == "sealed":
        what = f"At closing: all {counted(rows, 'row')} judge every submission"
    elif public == rows:
        return ("There is no vault: closing adds no other statement.",)
    else:
        what = f"At closing: {counted(rows - public, 'row')} that nobody was told anything about"
    asked = _judged_at_most(config, standing)
    width = final_half_width(config, rows - public, asked)
    return (
        f"{what}; with {_confidence(config)} confidence each of {asked:,} lies within "
        f"±{up(width, 2)} at worst.",
    )


def _judged_at_most(config: BoardConfig, standing: Standing) -> int:
    """Return how many submissions closing can judge: of the teams there are, and those planned."""
    limits, sealed = config.limits, config.feedback.mode == "sealed"
    planned = max(0, limits.teams - len(standing.analysts))
    quotas = [*(own.submissions for own in standing.analysts), *[limits.submissions] * planned]
    return sum(quota if sealed else min(limits.finalists, quota) for quota in quotas)


def _after(config: BoardConfig, results: Mapping[str, Any]) -> tuple[str, ...]:
    if not results["finalists"]:
        return ("No submission was judged.",)
    judged = counted(len(results["finalists"]), "submission")
    return (
        f"{judged} were judged on {counted(results['rows'], 'row')}"
        + (" that nobody had been told anything about." if results["vault"] else "."),
        f"With {_confidence(config)} confidence all intervals hold together; and, as another "
        f"statement, with {_confidence(config)} confidence all orderings.",
        _EVERY_ACCOUNT,
    )


def _confidence(config: BoardConfig) -> str:
    return confidence_text(config.limits.failure)
