r"""The probability that a label wins when every count gets integer Gaussian noise."""

import math

import torch
from torch import Tensor

_REACH = 9.5  # standard deviations; beyond them is less than 1e-20
_AT_ONCE = 2**22  # numbers held at once
_ROUNDING = 1 + 1e-9


def winning_chances(counts: Tensor, labels: Tensor, sigma: float, margin: int = 0) -> Tensor:
    r"""Return the probability that each row's label is answered, float64 [B]. As raw as the counts.

    The label's noisy count must reach those of later classes and pass those of earlier ones, or be
    ``margin`` above all others: a sum over its noise of products of distribution functions.

    Args:
        counts: Votes, whole numbers [B, C].
        labels: One class for each row, int64 [B].
        sigma: The noise on each count.
        margin: How far the largest must be above the next; 0 for any.

    Example:
        >>> counts = torch.tensor([[5, 5], [5, 5], [20, 0]])
        >>> [round(p, 3) for p in winning_chances(counts, torch.tensor([0, 1, 0]), 2.0).tolist()]
        [0.571, 0.429, 1.0]
        >>> round(winning_chances(counts, torch.tensor([0, 1, 0]), 2.0, margin=3)[0].item(), 3)
        0.187
    """
    law = _law(sigma, counts.device)
    reach, below = len(law) // 2, law.cumsum(0)
    noise = torch.arange(-reach, reach + 1, device=counts.device)
    classes = torch.arange(counts.shape[1], device=counts.device)
    at_once = max(1, _AT_ONCE // (counts.shape[1] * len(law)))
    chances = []
    for votes, label in zip(
        torch.split(counts, at_once), torch.split(labels, at_once), strict=True
    ):
        own = votes.gather(1, label[:, None])
        earlier = (classes < label[:, None]).to(torch.int64)
        room = own - votes - (margin if margin else earlier)  # [b, C], without the own noise
        places = (room[:, :, None] + noise + reach).clamp(-1, len(law) - 1)
        reached = torch.where(places < 0, 0.0, below[places.clamp(min=0)])
        others = reached.masked_fill((classes == label[:, None])[:, :, None], 1.0)
        chances.append(others.prod(dim=1) @ law)
    return torch.cat(chances) if chances else counts.new_zeros(0, dtype=torch.float64)


def winner_sensitivity(sigma: float) -> float:
    r"""Bound how far a vote that comes, and one that goes, move the probability of any answer.

    It is the total variation of integer Gaussian noise shifted by (1, -1). The ratio of the two
    laws grows with the difference of the two noises, so it is the probability that this difference
    is 0 or 1; and for one vote alone that the noise is 0, which is less.

    Example:
        >>> round(winner_sensitivity(10.0), 3), round(1 / (10 * math.sqrt(math.pi)), 3)
        (0.056, 0.056)
    """
    law = _law(sigma, torch.device("cpu"))
    both = float(law @ law + law[1:] @ law[:-1])
    return max(both, float(law.max())) * _ROUNDING


def _law(sigma: float, device: torch.device) -> Tensor:
    reach = math.ceil(_REACH * sigma) + 1
    noise = torch.arange(-reach, reach + 1, dtype=torch.float64, device=device)
    weights = (noise / sigma).square_().mul_(-0.5).exp_()
    return weights / weights.sum()
