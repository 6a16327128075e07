"""The majority attack: an analyst who learns nothing and looks better with every question.

Labels are coin flips, so no classifier is better than 50 %. The analyst asks for the accuracy of
random classifiers, keeps those that look better than a coin, inverts those that look worse, and
lets them vote (Blum and Hardt 2015). On a raw holdout of n examples the vote of k classifiers
scores Phi(sqrt(2 k / (pi n))).
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from torch_holdout._demo.doors import ACCURACY, Door, raw_mean
from torch_holdout._noise.fixed import coin_flips
from torch_holdout._shared.checks import require_whole

_FRESH = 200  # fresh labels for every example


@final
@dataclass(frozen=True)
class Attack:
    """How an attack ended.

    Attributes:
        claimed: What was published of the final model.
        fresh: What fresh data says about it.
        held: What the raw holdout says about it, which no analyst sees: how far it was overfitted.
    """

    claimed: float
    fresh: float
    held: float


def majority_attack(
    door: Door, *, size: int, queries: int, seed: int, times: int = 1, disguised: bool = True
) -> Attack:
    """Ask for random classifiers, and claim their vote.

    Args:
        door: What answers.
        size: Examples of the holdout.
        queries: How many questions are asked at most.
        seed: Decides labels and classifiers.
        times: How often each classifier is asked; the answers are averaged, against noise.
        disguised: Whether the repetitions go under new names, as new queries.

    Example:
        >>> from torch_holdout._demo.doors import RawDoor
        >>> raw = majority_attack(RawDoor(), size=500, queries=200, seed=0)
        >>> raw.claimed > 0.6, abs(raw.fresh - 0.5) < 0.01
        (True, True)
    """
    require_whole("queries", queries, times, 2**24)
    labels = coin_labels(size, seed)
    guesses = coin_flips((queries // times, 2, size), seed + 1)
    right = (guesses == labels).repeat_interleave(times, dim=0)
    answers = door.ask(right, _names(len(guesses), times, disguised))
    whole = len(answers) // times  # classifiers whose repetitions were all answered
    averages = answers[: whole * times].view(whole, times).mean(dim=1)
    signs = signs_of(averages - ACCURACY.chance, len(guesses))
    vote = torch.einsum("k,k...->...", signs, guesses.float().mul_(2).sub_(1)) > 0
    return Attack(
        door.claim(vote == labels, "vote"),
        fresh_accuracy(vote[0], seed + 2),
        float(raw_mean(vote[0] == labels[0])),
    )


def coin_labels(size: int, seed: int) -> Tensor:
    """Return random labels, [2, size]: the holdout's and the analyst's own.

    Example:
        >>> coin_labels(5, seed=0).shape
        torch.Size([2, 5])
    """
    return coin_flips((2, size), seed)


def fresh_accuracy(predictions: Tensor, seed: int) -> float:
    """Return the accuracy of predictions on fresh coin flips.

    Example:
        >>> abs(fresh_accuracy(torch.ones(500, dtype=torch.bool), seed=0) - 0.5) < 0.01
        True
    """
    labels = coin_flips((_FRESH, len(predictions)), seed)
    return float(raw_mean((predictions == labels).flatten()))


def signs_of(answers: Tensor, count: int) -> Tensor:
    """Return -1, 0 or 1 for each of ``count`` questions: 0 where nothing was learned.

    If nothing was learned, every direction is equally good: all ones.

    Example:
        >>> signs_of(torch.tensor([0.1, 0.0, -0.2]), 4), signs_of(torch.tensor([]), 2)
        (tensor([ 1.,  0., -1.,  0.]), tensor([1., 1.]))
    """
    signs = torch.zeros(count)
    signs[: len(answers)] = answers.sign().float()
    return signs if signs.any() else torch.ones(count)


def _names(classifiers: int, times: int, disguised: bool) -> list[str]:
    return [
        f"classifier {number}, version {version * disguised}"
        for number in range(classifiers)
        for version in range(times)
    ]
