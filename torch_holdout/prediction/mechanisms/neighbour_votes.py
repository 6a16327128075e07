"""Votes of the nearest records of a fresh sample, with integer Gaussian noise on all counts."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.gaussian_table import LARGEST_TABLE_SCALE, batch_gaussian_error
from torch_holdout._noise.laplace import DEVICE_BITS
from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting import Charge, SampledGaussian
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import (
    NO_CONSENSUS,
    KnownAccuracy,
    NearestVoters,
    PredictionMechanism,
    Setting,
    Voters,
)
from torch_holdout.prediction.mechanisms.neighbour_choice import (
    SMALLEST_SIGMA,
    choose_neighbours,
)
from torch_holdout.prediction.nearest.chances import winner_sensitivity, winning_chances
from torch_holdout.prediction.nearest.search import ABSENT
from torch_holdout.prediction.nearest.walk import MOST_VOTES, RATES, WALK_ERROR, walk
from torch_holdout.prediction.plain_inputs import require_plain_inputs

_AT_ONCE = 2**22  # coins held at once
_SIGMAS = SMALLEST_SIGMA, LARGEST_TABLE_SCALE


@final
@dataclass(frozen=True, kw_only=True)
class NeighbourVotes(PredictionMechanism, KnownAccuracy):
    r"""Answer the label with most votes among the nearest k of a random sample of the records.

    For each query a coin of probability ``rate`` decides for each record, or user, whether it is in
    the sample; the k nearest of the sample vote, integer noise :math:`\propto e^{-x^2/2\sigma^2}`
    is added to all counts, and the largest wins. The coins and the noise are fresh for each query,
    secret, and from the operating system.

    Guarantee:
        One record or user more or less changes the noisy counts by one vote that comes and one that
        goes, and only if it is in the sample: each query costs the Renyi curve of the sampled
        Gaussian at integer orders, :math:`\ln\sum_j\binom aj(1-q)^{a-j}q^je^{j(j-1)/\sigma^2}/
        (a-1)`, where integer and continuous noise agree (``SampledGaussian``; Mironov, Talwar and
        Zhang 2019). All noisy counts are charged: an abstention costs no more and no less.

    Args:
        rate: The probability that a record is in the sample; 1 for all records.
        k: How many vote.
        sigma: The noise on each count, in votes.
        margin: Abstain (-1) where the two largest noisy counts are closer than this; 0 for never.

    Example:
        >>> mechanism = NeighbourVotes(rate=0.2, k=60, sigma=14.0)
        >>> mechanism.charge(Setting(num_parts=1, num_outputs=10))
        SampledGaussian(rate=0.2, sigma=14.0, count=1)
        >>> mechanism.reach  # places that are walked until k are found
        726
    """

    kind: ClassVar[str] = "neighbour_votes"
    answers: ClassVar[Literal["labels", "values"]] = "labels"

    rate: float
    k: int
    sigma: float
    margin: int = 0

    def __post_init__(self) -> None:
        require_between("rate", self.rate, *RATES)
        require_whole("k", self.k, 1, MOST_VOTES)
        require_between("sigma", self.sigma, *_SIGMAS)
        require_whole("margin", self.margin, 0, 2**20)
        for name, plain in (("rate", float), ("k", int), ("sigma", float), ("margin", int)):
            object.__setattr__(self, name, plain(getattr(self, name)))
        walk(self.rate, self.k)

    @classmethod
    @formula
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float,
        queries: int,
        planned_records: int,
        num_classes: int,
        rate: float | None = None,
        margin: int = 0,
    ) -> "NeighbourVotes":
        """Return the rule that a budget pays for this often; chosen from public numbers only.

        Args:
            epsilon: Of all queries together.
            delta: Of all queries together.
            queries: How many the budget must cover.
            planned_records: About how many records, or users, there will be: declared, because how
                many there are is private.
            num_classes: How many labels there are.
            rate: Fixes the rate of sampling.
            margin: As of the class.

        Example:
            >>> public = {"planned_records": 3500, "num_classes": 10}
            >>> NeighbourVotes.for_budget(epsilon=2.0, delta=1e-5, queries=300, **public).k
            347
        """
        choice = choose_neighbours(
            epsilon=epsilon,
            delta=delta,
            queries=queries,
            planned_records=planned_records,
            num_classes=num_classes,
            rate=rate,
        )
        return cls(rate=choice.rate, k=choice.k, sigma=choice.sigma, margin=margin)

    @property
    def reach(self) -> int:
        """How many of the nearest are looked at for each query; public."""
        return walk(self.rate, self.k)

    def require_voters(self, voters: Voters) -> None:
        """Raise unless there are records whose nearness is exact."""
        if not isinstance(voters, NearestVoters):
            raise InvalidArgumentError(
                f"Expected EmbeddedRecords, whose nearest records vote, but got "
                f"{type(voters).__name__}. Take SoftMajority or GNMax for an ensemble."
            )

    def table(self, outputs: Tensor) -> Tensor:
        """Return the listed labels [B, reach] of [1, B, reach]: there is nothing to add up."""
        if outputs.ndim != 3 or (outputs.shape[0], outputs.shape[2]) != (1, self.reach):
            raise InvalidArgumentError(
                f"Expected the labels of the nearest {self.reach} records, [1, B, {self.reach}], "
                f"but got {list(outputs.shape)}."
            )
        return outputs[0]

    def public_table(self, voters: Voters, inputs: Any) -> Tensor:
        """Return the table of no records; it raises if the queries are wrong."""
        require_plain_inputs(inputs)
        codes = voters.public_outputs(inputs)
        return codes.new_full((len(codes), self.reach), ABSENT, dtype=torch.int32)

    def total_table(self, voters: Voters, inputs: Any) -> Tensor:
        """Return the labels of the nearest, int32 [B, reach], and -1 for none. Raw.

        Only the embedding of the queries can raise: it is public, and comes first.
        """
        require_plain_inputs(inputs)
        self.require_voters(voters)
        nearest = cast(NearestVoters, voters).nearest(inputs, self.reach)
        return self.table(nearest[None])

    def num_outputs(self, table: Tensor) -> int | None:
        """Return None: a table lists labels and does not show how many classes there are."""
        return None

    def charge(self, setting: Setting) -> Charge:
        """Return the charge of one query, whatever the answer."""
        return SampledGaussian(self.rate, self.sigma)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one label per query, or ``NO_CONSENSUS``."""
        counts = self.sampled_counts(table, setting.num_outputs, uniforms)
        noisy = counts + uniforms.gaussian(self.sigma, tuple(counts.shape), counts.device)
        label = noisy.argmax(dim=1)
        if not self.margin:
            return label
        first, second = noisy.topk(2, dim=1).values.unbind(1)
        return torch.where(first - second >= self.margin, label, NO_CONSENSUS)

    def label_chances(
        self, table: Tensor, labels: Tensor, num_classes: int, uniforms: Uniforms
    ) -> Tensor:
        """Return the probability of each row's label, given one fresh secret sample for each row.

        Over the noise it is exact; an abstention is not the label.
        """
        counts = self.sampled_counts(table, num_classes, uniforms)
        return winning_chances(counts, labels.to(counts.device), self.sigma, self.margin)

    def accuracy_sensitivity(self) -> float:
        """Return the total variation between noisy counts with one record and without.

        The coins do not depend on the records, so this holds for each sample, and no less is
        claimed for the sampling.
        """
        return winner_sensitivity(self.sigma)

    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law."""
        short = 0.0 if self.rate == 1 else WALK_ERROR
        return setting.num_outputs * batch_gaussian_error(self.sigma) + short

    def sampled_counts(self, table: Tensor, num_classes: int, uniforms: Uniforms) -> Tensor:
        """Toss a coin for each listed record and count the first k heads, int64 [B, C]. Raw.

        Example:
            >>> from torch_holdout._noise.streams import SeededNoise
            >>> mechanism = NeighbourVotes(rate=1.0, k=3, sigma=4.0)
            >>> listed = torch.tensor([[2, 2, 0], [1, -1, -1]], dtype=torch.int32)
            >>> mechanism.sampled_counts(listed, 3, SeededNoise(1).uniforms())
            tensor([[1, 0, 2],
                    [0, 1, 0]])
        """
        shape = (len(table), num_classes)
        counts = torch.zeros(shape, dtype=torch.int64, device=table.device)
        at_once = max(1, _AT_ONCE // self.reach)
        blocks = torch.split(counts, at_once), torch.split(table, at_once)
        for rows, listed in zip(*blocks, strict=True):
            voting = listed >= 0
            if self.rate < 1:
                # Rounded down: a sample that is too small by 2^-63 is more private.
                heads = uniforms.draw(tuple(listed.shape), listed.device) < int(
                    self.rate * 2.0**DEVICE_BITS
                )
                voting &= heads
                voting &= voting.cumsum(dim=1) <= self.k
            rows.scatter_add_(1, listed.clamp(min=0).to(torch.int64), voting.to(torch.int64))
        return counts
