"""What the ranks tell each other at the end of a pass, and what follows from it: raw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from torch_holdout._fingerprints.weights import LANES, WeightsFingerprint
from torch_holdout._shared.distributed import gathered, gathered_rows, share_of
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.checks import require_whole_pass
from torch_holdout.holdout.question import Question
from torch_holdout.holdout.registration import Registration
from torch_holdout.statistics import SealedSums, Statistic


class Count(NamedTuple):
    """A sum of levels (0 for rows, which are added up later) and the examples it is made of."""

    total: int
    kept: int
    seen: int  # with a sampler's padding

    def __repr__(self) -> str:
        return "<sealed count>"


@dataclass(frozen=True, repr=False)
class RankRow:
    """What one rank sends. The fields are the wire format, in this order.

    Attributes:
        holdout: For each statistic that is asked, the holdout's count.
        guess: For each, the count of training examples; zeros where there is none.
        lanes: The weights' content before the pass; zeros for a query by text.
        confirm: The same after the pass.
        structure: A mark of the weights' structure.
        failed: Whether this rank could not ask.
    """

    holdout: tuple[Count, ...]
    guess: tuple[Count, ...]
    lanes: tuple[int, ...]
    confirm: tuple[int, ...]
    structure: int
    failed: bool

    @staticmethod
    def pack(
        *,
        holdout: Sequence[Tensor],
        guess: Sequence[Tensor],
        lanes: Tensor,
        confirm: Tensor,
        structure: int,
        failed: bool,
    ) -> Tensor:
        """Lay everything out in one tensor, on the first device that is not the host."""
        parts = [*holdout, *guess, lanes, confirm, torch.tensor([structure, int(failed)])]
        device = next((part.device for part in parts if part.device.type != "cpu"), None)
        return torch.cat([part.to(device) for part in parts])

    @classmethod
    def unpack(cls, numbers: Sequence[int], statistics: int) -> "RankRow":
        """Read back what ``pack`` has laid out for that many statistics."""
        rest = iter(numbers)
        row = cls(
            holdout=tuple(Count(*islice(rest, 3)) for _ in range(statistics)),
            guess=tuple(Count(*islice(rest, 3)) for _ in range(statistics)),
            lanes=tuple(islice(rest, LANES)),
            confirm=tuple(islice(rest, LANES)),
            structure=next(rest),
            failed=bool(next(rest)),
        )
        if next(rest, None) is not None:
            raise ValueError("a row is longer than its fields")
        return row


@dataclass(frozen=True, repr=False)
class Gathered:
    """All ranks' rows of one evaluation, after its one host read."""

    names: Sequence[str]
    rows: Sequence[RankRow]

    @classmethod
    def from_ranks(cls, names: Sequence[str], asked: Question, *, failed: bool) -> "Gathered":
        """Send this rank's row, of the same length whatever it has, and take those of all."""
        lanes, confirm, structure = _weights(asked.query)
        packed = RankRow.pack(
            holdout=[_count(asked.sums[name]) for name in names],
            guess=[_count(asked.guesses.get(name)) for name in names],
            lanes=lanes,
            confirm=confirm,
            structure=structure,
            failed=failed,
        )
        rows = gathered(packed, asked.world)
        return cls(names, [RankRow.unpack(row, len(names)) for row in rows])

    @property
    def failed(self) -> bool:
        """Whether some rank could not ask."""
        return any(row.failed for row in self.rows)

    @property
    def steady(self) -> bool:
        """Whether all ranks had the same weights, before and after the pass."""
        looks = {(row.lanes, row.confirm, row.structure) for row in self.rows}
        return len(looks) == 1 and self.rows[0].lanes == self.rows[0].confirm

    @property
    def lanes(self) -> list[int]:
        """The weights' content, as the first rank has seen it."""
        return list(self.rows[0].lanes)

    def total(self, name: str) -> int:
        """Return the holdout's sum of levels over all ranks."""
        return sum(count.total for count in self._counts(name))

    def seen(self, name: str) -> int:
        """Return how many examples all ranks have seen, padding included."""
        return sum(count.seen for count in self._counts(name))

    def complete(self, name: str, size: int) -> bool:
        """Whether each rank had its share, padded or not, and every example was kept once."""
        counts, world = self._counts(name), len(self.rows)
        if world == 1:
            return counts[0].kept == size
        padded = share_of(size, 0, world)
        return all(
            count.kept == share_of(size, rank, world) and count.seen <= padded
            for rank, count in enumerate(counts)
        )

    def guess(self, name: str, resolution: int) -> Fraction | None:
        """Return the normalised mean of the training examples, if a rank has some."""
        place = self.names.index(name)
        counts = [row.guess[place] for row in self.rows]
        largest = sum(count.kept for count in counts) * resolution
        return Fraction(sum(count.total for count in counts), largest) if largest else None

    def _counts(self, name: str) -> list[Count]:
        place = self.names.index(name)
        return [row.holdout[place] for row in self.rows]


@dataclass(frozen=True, repr=False)
class Reading:
    """One statistic's value and guess: between the host read and the decision."""

    total: int
    guess: Fraction | None
    query: str


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A whole pass of all ranks, with the rows of statistics that need them in order."""

    registration: Registration
    asked: Question
    ranks: Gathered
    columns: Mapping[str, "_Columns"]

    def readings(self) -> dict[str, Reading]:
        """Add up what the ranks have sent, in registered order; compute the metric of blocks."""
        return {name: self._reading(name) for name in self.ranks.names}

    def _reading(self, name: str) -> Reading:
        statistic, levels = self.registration.statistic(name), self.registration.levels
        total, guess = self.ranks.total(name), self.ranks.guess(name, levels)
        if guess is None:
            guess = _given(statistic, self.asked.guesses.get(name))
        if name in self.columns:
            holdout, training = self.columns[name]
            total = statistic.total(holdout, levels)
            if training:
                largest = self.registration.units(name) * levels
                guess = Fraction(statistic.total(training, levels), largest)
        return Reading(total, guess, self.asked.text(self.ranks.lanes))


class _Columns(NamedTuple):
    holdout: tuple[Tensor, ...]
    guess: tuple[Tensor, ...]

    def __repr__(self) -> str:
        return "<sealed rows>"


def gather(registration: Registration, asked: Question, problem: HoldoutError | None) -> Evaluation:
    """Exchange what the ranks have; raise unless all of them made a whole pass without a problem.

    Args:
        registration: What the holdout is.
        asked: This rank's question.
        problem: Why this rank cannot ask; the other ranks must hear of it.
    """
    if problem is not None and asked.world == 1:
        raise problem
    names = [name for name in registration.statistics if name in asked.sums]
    ranks = Gathered.from_ranks(names, asked, failed=problem is not None)
    if problem is not None:
        raise problem
    if ranks.failed:
        raise HoldoutError("Another rank could not ask; nothing was released or charged.")
    for name in names:
        require_whole_pass(
            registration,
            ranks.seen(name),
            complete=ranks.complete(name, registration.size),
            steady=ranks.steady and asked.recognised,
        )
    # Whether or not this rank has rows of a guess, the others may: all take part.
    compares = registration.mechanism.wants_guess()
    columns = {
        name: _Columns(
            _gathered_columns(asked.sums[name], asked.world),
            _gathered_columns(asked.guesses.get(name), asked.world) if compares else (),
        )
        for name in names
        if registration.statistic(name).needs_order
    }
    return Evaluation(registration, asked, ranks, columns)


def _given(statistic: Statistic, guess: float | SealedSums | None) -> Fraction | None:
    """Return a guess that was given as a number, normalised."""
    if guess is None or isinstance(guess, SealedSums):
        return None
    return Fraction(min(max(statistic.to_normalised(float(guess)), 0.0), 1.0))


def _gathered_columns(sums: object, world: int) -> tuple[Tensor, ...]:
    """Return all ranks' rows in the dataset's order."""
    parts = sums._rows if isinstance(sums, SealedSums) else []
    return gathered_rows(tuple(torch.cat(column) for column in zip(*parts, strict=True)), world)


def _count(sums: object) -> Tensor:
    if not isinstance(sums, SealedSums):
        return torch.zeros(3, dtype=torch.int64)
    if sums._sealed is None:  # nothing yet, or rows that are added up after the pass
        return torch.tensor([0, sums.kept, sums.seen])
    counts = sums._sealed.new_tensor([sums.kept, sums.seen])
    return torch.cat([sums._sealed.view(1), counts])


def _weights(query: object) -> tuple[Tensor, Tensor, int]:
    """Return lanes, confirming lanes and the mark of the structure; zeros for a text."""
    if not isinstance(query, WeightsFingerprint):
        nothing = torch.zeros(LANES, dtype=torch.int64)
        return nothing, nothing, 0
    again = query.lanes if query.confirm is None else query.confirm
    return query.lanes, again, int(query.structure[:15] or "0", 16)
