"""The majority attack: an analyst who learns nothing and looks better with every question.

Labels are coin flips, so no classifier is better than 50 %. The analyst asks for the accuracy of
random classifiers, keeps those that look better than a coin, inverts the others, and lets them
vote. On a raw holdout of n examples the vote of k classifiers scores Phi(sqrt(2 k / (pi n))).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch import Tensor

from torch_holdout.holdout import ReusableHoldout
from torch_holdout.noise import coin_flips


@final
@dataclass(frozen=True)
class Attack:
    """What the holdout says of the final vote, and what fresh data says."""

    claimed: float
    fresh: float


def majority_attack(
    answer: Callable[[Tensor], float], *, size: int, queries: int, seed: int
) -> Attack:
    """Attack whatever answers: ``answer(correct)`` gets which of ``size`` predictions are right.

    Example:
        >>> raw = majority_attack(lambda c: float(c.double().mean()), size=500, queries=200, seed=0)
        >>> raw.claimed > 0.6, abs(raw.fresh - 0.5) < 0.01
        (True, True)
    """
    labels = coin_flips((size,), seed)
    guesses = coin_flips((queries, size), seed + 1)
    votes = []
    for guess in guesses:
        looks_good = answer(guess == labels) > 0.5
        votes.append(guess if looks_good else ~guess)
    vote = sum(v.long() for v in votes) * 2 > queries
    fresh = coin_flips((200, size), seed + 2)
    return Attack(answer(vote == labels), float((vote == fresh).double().mean()))


def guarded_answers(holdout: ReusableHoldout, statistic: str) -> Callable[[Tensor], float]:
    """Answer through a holdout; when it is exhausted, with its last answer, as a user would see."""
    last = 0.5
    asked = 0

    def answer(correct: Tensor) -> float:
        nonlocal last, asked
        asked += 1
        sums = holdout.accumulator(statistic)
        sums.update(correct)
        found = holdout.release(statistic, sums, query=f"classifier {asked}")
        if found.kind != "exhausted":
            last = found.value
        return last

    return answer
