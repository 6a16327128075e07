"""The tools of every audit: rows, bounds from samples, laws and scripted noise."""

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor

from torch_holdout._shared.checks import require_between, require_failure, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.single_query import clopper_pearson
from torch_holdout.errors import InvalidArgumentError

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
        measured: The measured value; for samples a lower confidence bound.
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
        """Whether twins, and only twins, are flagged."""
        return self.flagged == self.twin


@formula
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
    first, second = _whole("first", first), _whole("second", second)
    require_failure(failure)
    require_between("delta", delta, 0, 1)
    half = len(first) // 2
    if len(second) <= half:
        raise InvalidArgumentError(
            f"Expected samples of the same size, but got {len(first)} and {len(second)} answers."
        )
    flip, cut, sign = _best_event(first[:half], second[:half])
    pair = (second, first) if flip else (first, second)
    counts = [sum(sign * x >= sign * cut for x in sample[half:]) for sample in pair]
    sizes = [len(sample) - half for sample in pair]
    low, _ = clopper_pearson(counts[0], sizes[0], failure)
    _, high = clopper_pearson(counts[1], sizes[1], failure)
    return math.log((low - delta) / high) if low > delta else -math.inf


def epsilon_row(
    subject: str,
    samples: Sequence[Sequence[int]],
    claimed: float,
    failure: float,
    *,
    twin: bool,
    what: str = "epsilon, at least",
) -> Row:
    """Compare a lower confidence bound from two samples of answers with the claimed epsilon."""
    measured = epsilon_lower_bound(samples[0], samples[1], failure)
    return Row(subject, "sampled", what, claimed, measured, twin)


def law_row(
    subject: str, drawn: Tensor, law: Sequence[float], failure: float, *, twin: bool
) -> Row:
    """Compare how often outcomes up to k = 0, 1, ... came with the distribution function."""
    below = torch.bincount(drawn, minlength=len(law)).cumsum(0)[: len(law)]
    distance = (below.to(torch.float64) / len(drawn) - torch.tensor(law, dtype=torch.float64)).abs()
    allowed = math.sqrt(math.log(2 / failure) / (2 * len(drawn)))
    return Row(subject, "sampled", "distance to the law", allowed, float(distance.max()), twin)


def largest_ratio(first: Mapping[Any, float], second: Mapping[Any, float], likely: float) -> float:
    """Return the largest logarithm of a ratio between two laws.

    Outcomes of a probability of at most ``likely`` under both are not compared: truncated noise
    decides those.

    Example:
        >>> round(largest_ratio({"a": 0.5, "b": 0.5}, {"a": 0.25, "b": 0.75}, 1e-6), 3)
        0.693
    """
    losses = []
    for outcome in first.keys() | second.keys():
        p, q = first.get(outcome, 0.0), second.get(outcome, 0.0)
        if max(p, q) > likely:
            losses.append(math.inf if min(p, q) == 0 else abs(math.log(p / q)))
    return max(losses)


def laplace_probability(k: int, scale: float) -> float:
    """Return the probability of k under integer Laplace noise.

    Example:
        >>> abs(sum(laplace_probability(k, 2.0) for k in range(-80, 81)) - 1) < 1e-12
        True
    """
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(k)


def laplace_cdf(k: int, scale: float) -> float:
    """Return the probability of at most k under integer Laplace noise.

    Example:
        >>> laplace_cdf(0, 2.0) - laplace_cdf(-1, 2.0) - laplace_probability(0, 2.0) < 1e-15
        True
    """
    q = math.exp(-1 / scale)
    return 1 - q ** (k + 1) / (1 + q) if k >= 0 else q**-k / (1 + q)


def geometric_probability(k: int, scale: float) -> float:
    """Return the probability of k = 0, 1, ... under one-sided integer noise.

    Example:
        >>> abs(sum(geometric_probability(k, 2.0) for k in range(80)) - 1) < 1e-12
        True
    """
    q = math.exp(-1 / scale)
    return (1 - q) * q**k


class ScriptEndError(Exception):
    """More noise is needed than the script has; the argument is its scale."""


@final
class ScriptedNoise:
    """Noise that was decided beforehand: integers of a stream, or batches of uniform numbers."""

    def __init__(self, script: Sequence[Any]) -> None:
        self._script = iter(script)

    def laplace(self, scale: float) -> int:
        """Return the next integer, as a ``NoiseStream`` does."""
        if scale == 0:
            return 0
        for draw in self._script:
            return int(draw)
        raise ScriptEndError(scale)

    geometric = laplace

    def draw(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """Return the next batch, as ``Uniforms`` do."""
        batch: Tensor = next(self._script)
        return batch


def _whole(name: str, sample: Sequence[int]) -> list[int]:
    """Return a sample of answers as a list; raise unless it has some, all whole numbers."""
    if not isinstance(sample, Sequence) or not len(sample):
        kind = type(sample).__name__
        raise InvalidArgumentError(f"Expected `{name}` to be a list of answers, but got a {kind}.")
    require_whole(f"len({name})", len(sample), 1, 10**9)
    for answer in sample:
        require_whole(name, answer, -(2**63), 2**63)
    return list(sample)


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
    return len(ordered) - bisect_left(ordered, cut) if sign > 0 else bisect_right(ordered, cut)


def print_audit(rows: list[Row]) -> None:
    """Print what was claimed and measured as a table, and count what holds."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Claimed against measured", title_justify="left")
    for heading in ("subject", "evidence", "what", "claimed", "measured", "verdict"):
        table.add_column(heading, justify="right" if heading in ("claimed", "measured") else "left")
    for row in rows:
        verdict = "caught" if row.twin and row.flagged else "MISSED" if row.twin else "holds"
        verdict = "LEAKS" if row.flagged and not row.twin else verdict
        subject = f"twin: {row.subject}" if row.twin else row.subject
        numbers = (f"{row.claimed:.4g}", f"{row.measured:.4g}")
        table.add_row(subject, row.evidence, row.what, *numbers, verdict)
    width = None if sys.stdout.isatty() else 120
    Console(highlight=False, width=width).print(table)
    ours = sum(not row.twin for row in rows)
    caught = sum(row.twin and row.flagged for row in rows)
    held = sum(row.right for row in rows if not row.twin)
    print(
        f"{held} of {ours} checks hold; {caught} of {len(rows) - ours} broken twins were caught. "
        f"Sampled rows flag what is right with probability 1e-6 together."
    )
