"""The rows that ranks exchange at the end of a pass, and the raw values they add up to."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from torch_holdout._fingerprints.row_sums import LANES
from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.distributed import gathered, share_of
from torch_holdout.errors import PartialPassError, WeightsChangedError
from torch_holdout.holdout.checks import Question, other_rank_failed
from torch_holdout.holdout.columns import Columns, guess_columns, holdout_columns
from torch_holdout.holdout.groups import GroupLevels, group_levels
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.ledger.run_events import Sums, part_names
from torch_holdout.statistics import SealedSums
from torch_holdout.statistics.base import OrderedStatistic
from torch_holdout.statistics.group_sums import GroupSums

_NO_SQUARES = -1  # on the wire, where the squares are not kept


class Count(NamedTuple):
    """Sums of levels (0 for rows, which are added up later) and the examples they are made of."""

    total: int
    kept: int
    seen: int  # with a sampler's padding
    beyond: int = 0  # the sum of levels of what was seen and not kept
    squares: int = _NO_SQUARES  # the sum of squared levels
    squares_beyond: int = 0  # of what was seen and not kept

    def __repr__(self) -> str:
        return "<sealed count>"


_COUNTED = len(Count._fields)


@dataclass(frozen=True, repr=False)
class RankRow:
    """The numbers that one rank sends. The fields are the wire format, in this order.

    Attributes:
        holdout: For each statistic that is asked, the holdout's count; of a ratio, two.
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
        """Read back what ``pack`` has laid out for that many statistics, or parts of them."""
        rest = iter(numbers)
        row = cls(
            holdout=tuple(Count(*islice(rest, _COUNTED)) for _ in range(statistics)),
            guess=tuple(Count(*islice(rest, _COUNTED)) for _ in range(statistics)),
            lanes=tuple(islice(rest, LANES)),
            confirm=tuple(islice(rest, LANES)),
            structure=next(rest),
            failed=bool(next(rest)),
        )
        if next(rest, None) is not None:
            raise ValueError("a row is longer than its fields")
        return row


@dataclass(frozen=True, repr=False)
class Reading:
    """One statistic's value and guess, between the host read and the decision. Raw."""

    total: int
    guess: Fraction | None
    query: str
    squares: int | None = None  # the sum of squared levels, where it is kept
    parts: tuple[Sums, ...] = ()  # of a ratio, whose total is the quotient

    @property
    def sums(self) -> Sums:
        """What is kept until closing."""
        return Sums(self.total, self.squares, self.parts)


@dataclass(frozen=True, repr=False)
class Gathered:
    """All ranks' rows of one evaluation, after its one host read. Raw."""

    names: Sequence[str]  # of the statistics that are asked, in registered order
    rows: Sequence[RankRow]
    # For statistics that need order: all examples of the holdout, and of the guess.
    columns: Mapping[str, tuple[Columns, Columns]] = field(default_factory=dict)
    groups: Mapping[str, GroupLevels] = field(default_factory=dict)  # of means over groups
    copied: Collection[str] = ()  # sums of which every rank has all rows
    ratios: Collection[str] = ()  # those of the statistics that have two sums

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

    @cached_property
    def sums(self) -> list[str]:
        """The names of the sums: those of the statistics, of a ratio those of its parts."""
        return [sum_name for name in self.names for sum_name in self._sums_of(name)]

    def total(self, name: str) -> int:
        """Return the holdout's sum of levels: over all ranks, or of one of equal copies."""
        counts = self._counts(name)
        if name in self.copied:
            return counts[0].total + counts[0].beyond
        return sum(count.total for count in counts)

    def squares(self, name: str) -> int | None:
        """Return the holdout's sum of squared levels, as ``total``; None where it is not kept."""
        counts = self._counts(name)
        if any(count.squares == _NO_SQUARES for count in counts):
            return None
        if name in self.copied:
            return counts[0].squares + counts[0].squares_beyond
        return sum(count.squares for count in counts)

    def values_per_example(self, name: str, size: int) -> int | None:
        """Return k if each rank has seen exactly k values for each of its examples, else None."""
        counts, world = self._counts(name), len(self.rows)
        largest = share_of(size, 0, world)
        per_example = counts[0].seen // largest
        whole = all(
            count.seen in (per_example * largest, per_example * share_of(size, rank, world))
            for rank, count in enumerate(counts)
        )
        return per_example if whole and per_example else None

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

    def everywhere(self, name: str, size: int) -> bool:
        """Whether every rank has seen as many examples as there are, and not only its share."""
        counts = self._counts(name)
        several = len(counts) > 1 and not self.complete(name, size)
        return several and all(count.seen == size for count in counts)

    def alike(self, name: str) -> bool:
        """Whether the ranks' sums over all that they have seen are the same integers."""
        sums = {
            (count.total + count.beyond, count.squares + count.squares_beyond)
            for count in self._counts(name)
        }
        return len(sums) == 1

    def guess(self, name: str, resolution: int) -> Fraction | None:
        """Return the normalised mean of the training examples, if a rank has some."""
        total, largest = self._guessed(name, resolution)
        return Fraction(total, largest) if largest else None

    def reading(self, name: str, registration: Registration, asked: Question) -> Reading:
        """Return one statistic's value and guess; here the metric of blocks is computed."""
        statistic, levels = registration.statistic(name), registration.levels
        squares: int | None = None
        parts: tuple[Sums, ...] = ()
        if name in self.ratios:
            total, guess, parts = self._divided(name, registration)
        else:
            total = statistic.settled(self.total(name), registration.size, levels)
            guess, squares = self.guess(name, levels), self.squares(name)
        given = asked.guesses.get(name)
        if guess is None and given is not None and not isinstance(given, SealedSums):
            guess = Fraction(min(max(statistic.to_normalised(float(given)), 0.0), 1.0))
        if isinstance(statistic, OrderedStatistic):
            holdout, training = self.columns[name]
            total = statistic.total(holdout, levels)
            if training:
                largest = registration.units(name) * levels
                guess = Fraction(statistic.total(training, levels), largest)
        if name in self.groups:
            total, squares = self.groups[name].total, self.groups[name].squares
        query = asked.query if isinstance(asked.query, str) else asked.query.query(self.lanes)
        return Reading(total, guess, query, squares, parts)

    def _divided(
        self, name: str, registration: Registration
    ) -> tuple[int, Fraction | None, tuple[Sums, ...]]:
        """Return a ratio's quotient in levels, that of the training examples, and its sums."""
        quotient = StoredStatistic(registration.statistic(name).identity()).quotient
        levels = registration.levels
        parts = tuple(Sums(self.total(part), self.squares(part)) for part in part_names(name))
        (above, largest), (below, _) = (self._guessed(part, levels) for part in part_names(name))
        guess = quotient.normalised(above, below, largest) if largest else None
        whole = registration.units(name) * levels
        return quotient.total(parts[0].total, parts[1].total, whole), guess, parts

    def _guessed(self, name: str, resolution: int) -> tuple[int, int]:
        """Return the sum of levels of the training examples, and how large it could be."""
        place = self.sums.index(name)
        counts = [row.guess[place] for row in self.rows]
        largest = sum(count.kept for count in counts) * resolution
        return sum(count.total for count in counts), largest

    def _sums_of(self, name: str) -> tuple[str, ...]:
        return part_names(name) if name in self.ratios else (name,)

    def _counts(self, name: str) -> list[Count]:
        place = self.sums.index(name)
        return [row.holdout[place] for row in self.rows]


def gather(registration: Registration, address: str, asked: Question) -> Gathered:
    """Exchange the ranks' rows; raise unless all of them made a whole pass without a problem."""
    problem = asked.problem(registration, address)
    if problem is not None and asked.world == 1:
        raise problem
    names = [name for name in registration.statistics if name in asked.sums]
    parts = {name: len(registration.statistic(name).parts) for name in names}
    lanes, confirm, structure = _weights(asked.query)
    packed = RankRow.pack(
        holdout=[_count(asked.sums[name], parts[name]) for name in names],
        guess=[_count(asked.guesses.get(name), parts[name]) for name in names],
        lanes=lanes,
        confirm=confirm,
        structure=structure,
        failed=problem is not None,
    )
    counted = sum(max(1, several) for several in parts.values())
    rows = [RankRow.unpack(row, counted) for row in gathered(packed, asked.world)]
    if problem is not None:
        raise problem
    ranks = Gathered(names, rows, ratios=[name for name in names if parts[name]])
    if ranks.failed:
        raise other_rank_failed()
    copied = [name for name in ranks.sums if ranks.everywhere(name, registration.size)]
    ranks = replace(ranks, copied=copied)
    _require_whole_pass(ranks, registration, asked.query)
    # Whether or not this rank has rows of a guess, the others may: all take part.
    compares = registration.mechanism.wants_guess()
    columns = {
        name: (
            holdout_columns(asked.sums[name], name in copied),
            guess_columns(asked.guesses.get(name), asked.world) if compares else (),
        )
        for name in names
        if registration.statistic(name).needs_order
    }
    groups = {
        name: group_levels(sums, copied=name in copied)
        for name in names
        if isinstance(sums := asked.sums[name], GroupSums)
    }
    return replace(ranks, columns=columns, groups=groups)


def _require_whole_pass(
    ranks: Gathered, registration: Registration, query: str | WeightsFingerprint
) -> None:
    # A fingerprint loses its structure if the second look at the weights saw another one.
    steady = ranks.steady and (isinstance(query, str) or bool(query.structure))
    for name in ranks.sums:
        if name in ranks.copied:
            if not ranks.alike(name):
                raise _other_copies(registration)
        elif not ranks.complete(name, registration.size):
            raise _partial_pass(registration, ranks.values_per_example(name, registration.size))
        if not steady:
            raise WeightsChangedError(
                "Expected the same weights and buffers throughout the pass and on every rank, but "
                "they changed while the holdout was read, or the ranks have different ones. Call "
                "model.eval() first and do not train inside the pass; where a strategy does not "
                "share BatchNorm's running statistics, set sync_batchnorm=True. Nothing was "
                "released or charged."
            )


def _partial_pass(registration: Registration, values_per_example: int | None) -> PartialPassError:
    """Return the error for a pass that is not the holdout.

    How many values came is not told: of a step that filters, that is a value. An exact multiple is
    a matter of layout.
    """
    came = "another number of values"
    remedy = (
        "Use the whole holdout without drop_last, return a value for every example, and take a new "
        "accumulator (or reset()) for every pass"
    )
    if values_per_example is not None and values_per_example > 1:
        came = f"{values_per_example} values for each example"
        remedy = (
            "Reduce values per token, pixel or view to one, e.g. values.flatten(1).mean(1), and "
            "take a new accumulator (or reset()) for every pass"
        )
    return PartialPassError(
        f"Expected a pass over all {registration.size} examples of holdout {registration.name!r}, "
        f"each once, but got {came}. {remedy}. Nothing was released or charged."
    )


def _other_copies(registration: Registration) -> PartialPassError:
    return PartialPassError(
        f"Expected each rank to have its share of the {registration.size} examples of holdout "
        f"{registration.name!r}, or the same values of all of them, but every rank has as many and "
        f"they differ. Use a DistributedSampler, or gather the values before they are added. "
        f"Nothing was released or charged."
    )


def _count(sums: object, parts: int = 0) -> Tensor:
    """Return the fields of a ``Count``, or of one for each part, on the sums' device."""
    if not isinstance(sums, SealedSums):
        return torch.tensor(Count(0, 0, 0) * max(1, parts))
    squares = 0 if sums.keeps_squares else _NO_SQUARES
    if sums._sealed is None:  # nothing yet, or rows that are added up after the pass
        return torch.tensor(Count(0, sums._kept, sums._seen, squares=squares) * max(1, parts))
    known = sums._sealed.new_tensor([sums._kept, sums._seen, 0, squares])
    kept, seen, nothing, no_squares = known.unbind()
    beyond, squares_kept, squares_beyond = (
        otherwise if total is None else total.to(known.device)
        for total, otherwise in (
            (sums._beyond, nothing),
            (sums._squares, no_squares),
            (sums._squares_beyond, nothing),
        )
    )
    fields = (sums._sealed, kept, seen, beyond, squares_kept, squares_beyond)
    return torch.stack([each.expand_as(sums._sealed) for each in fields], dim=-1).flatten()


def _weights(query: object) -> tuple[Tensor, Tensor, int]:
    """Return lanes, confirming lanes and the mark of the structure; zeros for a text."""
    if not isinstance(query, WeightsFingerprint):
        nothing = torch.zeros(LANES, dtype=torch.int64)
        return nothing, nothing, 0
    again = query.lanes if query.confirm is None else query.confirm
    return query.lanes, again, int(query.structure[:15] or "0", 16)
