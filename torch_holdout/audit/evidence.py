"""One line of the audit, and the lower confidence bound that sampled lines rest on."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from torch_holdout.bounds.clopper_pearson import clopper_pearson

_SLACK = 1e-3  # what truncating the noise can add to an exact loss


@final
@dataclass(frozen=True)
class Row:
    """One line of the audit's table.

    Attributes:
        subject: A mechanism or a twin.
        evidence: Exact, sampled or counted.
        what: What was measured.
        claimed: The largest value that is allowed.
        measured: What was found; for samples a lower confidence bound.
        twin: Whether the subject is broken on purpose.

    Example:
        >>> row = Row("half of the noise", "exact", "an answer", claimed=0.5, measured=1.0)
        >>> row.flagged, row.right  # as a twin it would be right
        (True, False)
    """

    subject: str
    evidence: Literal["exact", "sampled", "counted"]
    what: str
    claimed: float
    measured: float
    twin: bool = False

    @property
    def flagged(self) -> bool:
        """Whether more was measured than is claimed."""
        return self.measured > self.claimed + (_SLACK if self.evidence == "exact" else 0.0)

    @property
    def right(self) -> bool:
        """Whether the audit says of it what it must."""
        return self.flagged == self.twin


def epsilon_lower_bound(
    first: Sequence[int], second: Sequence[int], failure: float, *, delta: float = 0.0
) -> float:
    """Return a lower confidence bound on the epsilon (at delta) between two samples of answers.

    One half of each sample chooses a threshold and a direction; the other half is counted beyond it
    and compared by Clopper-Pearson bounds, so choosing costs nothing.

    Example:
        >>> epsilon_lower_bound([0, 1] * 5000, [1] * 10_000, 1e-6) > 5
        True
    """
    half = len(first) // 2
    flip, cut, sign = _best_event(first[:half], second[:half])
    pair = (second, first) if flip else (first, second)
    counts = [sum(sign * x >= sign * cut for x in sample[half:]) for sample in pair]
    sizes = [len(sample) - half for sample in pair]
    low, _ = clopper_pearson(counts[0], sizes[0], failure)
    _, high = clopper_pearson(counts[1], sizes[1], failure)
    return math.log((low - delta) / high) if low > delta else -math.inf


def _best_event(first: Sequence[int], second: Sequence[int]) -> tuple[bool, int, int]:
    """Choose the side, threshold and direction whose bound would be largest on these samples."""
    best, chosen = -math.inf, (False, 0, 1)
    samples = sorted(first), sorted(second)
    for cut in sorted(set(first) | set(second)):
        for sign in (1, -1):
            counts = [_beyond(sample, cut, sign) for sample in samples]
            for flip in (False, True):
                up, down = counts[::-1] if flip else counts
                # The logarithm of the ratio, less what its uncertainty takes away.
                score = math.log((up + 0.5) / (down + 0.5)) - 5 * math.sqrt(
                    1 / (up + 0.5) + 1 / (down + 0.5)
                )
                if score > best:
                    best, chosen = score, (flip, cut, sign)
    return chosen


def _beyond(ordered: Sequence[int], cut: int, sign: int) -> int:
    """Count what is at least the cut, or at most."""
    return len(ordered) - bisect_left(ordered, cut) if sign > 0 else bisect_right(ordered, cut)
