"""Audits of the votes of nearest records and of their twins, enumerated and sampled."""

import itertools
import math
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import cast

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import DEVICE_BITS
from torch_holdout._noise.streams import NoiseSource
from torch_holdout.accounting import SampledGaussian, compose
from torch_holdout.audit.evidence import Row, ScriptedNoise, epsilon_lower_bound, law_row
from torch_holdout.prediction.mechanisms import NeighbourVotes, Setting

RECORDS, PAIRED = 6, 4  # at most, for one query and for two
SIGMA, DELTA = 1.0, 1e-3
ORDER, PAIR_ORDER = 4, 2
RIGHT = 3  # sampled rows of ours, which share the false-alarm rate
_REACH = 7  # standard deviations around the places where a moment is taken
_TAILS = 2**DEVICE_BITS - 1
_UNSAMPLED, _SHARED, _NARROW = "no sampling", "one sample for all queries", "noise for one vote"
Labels = tuple[int, ...]  # of records, nearest first; there are two classes
Pmf = dict[Labels, float]  # of counts: of two classes, or of two classes for each of two queries


def neighbour_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Audit the votes of nearest records and their twins; see ``audit``.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rows = neighbour_rows(SeededNoise(1), draws=300, failure=1e-6)
        >>> any(row.flagged for row in rows if not row.twin)
        False
    """
    share = failure / RIGHT
    return [
        *exact_neighbours(),
        *_law_rows(source, 3 * draws, share),
        *_pair_rows(source, draws, share),
        *_repeated_rows(source, draws // 4, share),
    ]


def exact_neighbours() -> list[Row]:
    """Compare exact losses over all small sets of records, with and without one, with the claims.

    Example:
        >>> [row.subject for row in exact_neighbours() if row.twin]
        ['noise for one vote', 'no sampling', 'one sample for all queries']
    """
    rows, what = [], f"divergence of order {ORDER}"
    # A high rate makes the claim tight: few samples of the others are too small to lose a vote.
    for rate, votes in ((0.9, 1), (0.4, 2)):
        mechanism = NeighbourVotes(rate=rate, k=votes, sigma=SIGMA)
        laws, charge = _laws(partial(sampled_pmf, mechanism), RECORDS), mechanism.charge(_setting())
        subject, claimed = f"NeighbourVotes, rate {rate}", charge.curve()(ORDER)
        rows.append(Row(subject, "exact", what, claimed, _largest(_divergence, laws, ORDER)))
        epsilon = compose([charge], DELTA).epsilon
        at = f"epsilon at delta {DELTA:g}"
        rows.append(Row(subject, "exact", at, epsilon, _largest(_hockey_stick, laws, ORDER)))
    narrow = SampledGaussian(0.9, SIGMA * math.sqrt(2)).curve()(ORDER)
    rows.append(Row(_NARROW, "exact", what, narrow, rows[0].measured, twin=True))
    everyone = NeighbourVotes(rate=1.0, k=2, sigma=SIGMA)
    measured = _largest(_divergence, _laws(partial(sampled_pmf, everyone), RECORDS), ORDER)
    rows.append(Row(_UNSAMPLED, "exact", what, claimed, measured, twin=True))
    return [*rows, *_exact_pairs()]


def _exact_pairs() -> list[Row]:
    """Ask twice: fresh samples cost twice one query, one sample for both costs more."""
    one = NeighbourVotes(rate=0.8, k=1, sigma=SIGMA)

    def shared(labels: Labels) -> Pmf:
        return {counts + counts: chance for counts, chance in sampled_pmf(one, labels).items()}

    what, claimed = "two queries", 2 * one.charge(_setting()).curve()(PAIR_ORDER)
    measured = [
        _largest(_divergence, _laws(pmf, PAIRED, PAIR_ORDER), PAIR_ORDER)
        for pmf in (partial(sampled_pmf, one, queries=2), shared)
    ]
    return [
        Row("NeighbourVotes, rate 0.8", "exact", what, claimed, measured[0]),
        Row(_SHARED, "exact", what, claimed, measured[1], twin=True),
    ]


def sampled_pmf(mechanism: NeighbourVotes, labels: Labels, queries: int = 1) -> Pmf:
    """Return how likely counts are for queries about the same records, over all their coins.

    The counts come from the mechanism's own code.

    Example:
        >>> counts = sampled_pmf(NeighbourVotes(rate=0.5, k=1, sigma=1.0), (0, 1))
        >>> sorted(counts.items())
        [((0, 0), 0.25), ((0, 1), 0.25), ((1, 0), 0.5)]
    """
    every = list(itertools.product((0, 1), repeat=queries * len(labels)))
    heads = torch.tensor(every, dtype=torch.int64).view(len(every) * queries, len(labels))
    reach = mechanism.reach
    coins = torch.full((len(heads), max(reach, len(labels))), _TAILS)
    coins[:, : len(labels)] = (1 - heads) * _TAILS
    listed = torch.full((len(heads), max(reach, len(labels))), -1, dtype=torch.int32)
    listed[:, : len(labels)] = torch.tensor(labels, dtype=torch.int32)
    script = cast(Uniforms, ScriptedNoise([coins[:, :reach]]))
    counts = mechanism.sampled_counts(listed[:, :reach].contiguous(), 2, script)
    chances = torch.where(heads == 1, _heads(mechanism), 1 - _heads(mechanism))
    pmf: Pmf = {}
    together = zip(
        counts.view(len(every), -1).tolist(),
        chances.view(len(every), -1).prod(dim=1).tolist(),
        strict=True,
    )
    for outcome, chance in together:
        pmf[tuple(outcome)] = pmf.get(tuple(outcome), 0.0) + chance
    return pmf


@lru_cache(maxsize=16)
def _heads(mechanism: NeighbourVotes) -> float:
    """Return the share of the 2^63 numbers for which a record is in the sample."""
    if mechanism.rate == 1:
        return 0.5  # no coin is tossed: each outcome counts the same
    listed = torch.full((1, mechanism.reach), -1, dtype=torch.int32)
    listed[0, 0] = 0
    low, high = 0, 2**DEVICE_BITS
    while high - low > 1:
        middle = (low + high) // 2
        script = cast(Uniforms, ScriptedNoise([torch.full_like(listed, middle, dtype=torch.int64)]))
        taken = int(mechanism.sampled_counts(listed, 2, script)[0, 0])
        low, high = (middle, high) if taken else (low, middle)
    return high / 2.0**DEVICE_BITS


def _laws(pmf: Callable[[Labels], Pmf], most: int, order: int = ORDER) -> dict[Labels, Tensor]:
    """Return the law of the noisy counts for all sets of up to ``most`` records."""
    reach = math.ceil(order + 1 + _REACH * SIGMA)
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)

    @cache
    def noisy(counts: Labels) -> Tensor:
        around = torch.softmax(-((places - counts[0]) ** 2) / (2 * SIGMA**2), dim=0)
        return around if len(counts) == 1 else torch.outer(noisy(counts[1:]), around).flatten()

    return {
        labels: cast(Tensor, sum(chance * noisy(c) for c, chance in pmf(labels).items()))
        for size in range(most + 1)
        for labels in itertools.product((0, 1), repeat=size)
    }


def _largest(
    loss: Callable[[Tensor, Tensor, int], float], laws: dict[Labels, Tensor], order: int
) -> float:
    """Return the largest loss over all sets and each record of them, added and removed."""
    return max(
        max(loss(law, without, order), loss(without, law, order))
        for labels, law in laws.items()
        for place in range(len(labels))
        for without in (laws[labels[:place] + labels[place + 1 :]],)
    )


def _divergence(p: Tensor, q: Tensor, order: int) -> float:
    """Return the Renyi divergence of p from q."""
    logs = order * p.log() + (1 - order) * q.log()
    return float(logs.logsumexp(dim=0)) / (order - 1)


def _hockey_stick(p: Tensor, q: Tensor, order: int) -> float:
    """Return the smallest epsilon for which p exceeds e^epsilon q by delta in all."""
    low, high = 0.0, 20.0
    for _ in range(30):
        middle = (low + high) / 2
        beyond = float((p - math.exp(middle) * q).clamp(min=0).sum())
        low, high = (middle, high) if beyond > DELTA else (low, middle)
    return low


def _law_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare labels of one set of records with their law."""
    labels, rate, votes, sigma = (0, 0, 0, 0, 1, 0, 1, 1), 0.5, 3, 2.0
    right = NeighbourVotes(rate=rate, k=votes, sigma=sigma)
    law = [_first_wins(right, labels)]
    cases = [
        ("NeighbourVotes", right),
        (_UNSAMPLED, NeighbourVotes(rate=1.0, k=votes, sigma=sigma)),
        (_NARROW, NeighbourVotes(rate=rate, k=votes, sigma=sigma / math.sqrt(2))),
    ]
    rows = []
    for subject, mechanism in cases:
        uniforms = source.uniforms("audit", "neighbour law", subject)
        drawn = mechanism.answer(_listed(mechanism, labels, draws), _setting(), uniforms)
        rows.append(law_row(subject, drawn, law, failure, twin=mechanism is not right))
    return rows


def _pair_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare the labels of pairs of queries about the same records with independent ones."""
    labels = (0, 1, 1, 1, 1, 1)
    mechanism = NeighbourVotes(rate=0.5, k=1, sigma=0.7)
    one = _first_wins(mechanism, labels)
    law = [one * one, one, one + (1 - one) * one]
    rows = []
    for subject, answers in (("NeighbourVotes", _answers), (_SHARED, _shared_answers)):
        uniforms = source.uniforms("audit", "neighbour pairs", subject)
        pairs = answers(mechanism, labels, draws, 2, uniforms)
        drawn = 2 * pairs[:, 0] + pairs[:, 1]
        rows.append(law_row(subject, drawn, law, failure, twin=answers is not _answers))
    return rows


def _repeated_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Ask ten times about records with and without the nearest one, and count its label."""
    times, mechanism = 10, NeighbourVotes(rate=0.2, k=1, sigma=2.0)
    claimed = compose([SampledGaussian(mechanism.rate, mechanism.sigma, times)], DELTA).epsilon
    unsampled = NeighbourVotes(rate=1.0, k=1, sigma=mechanism.sigma)
    others = (1,) * 40
    rows = []
    for subject, asked in (("NeighbourVotes", mechanism), (_UNSAMPLED, unsampled)):
        samples = []
        for labels in ((0, *others), others):
            uniforms = source.uniforms("audit", "neighbour epsilon", subject, len(labels))
            first = _answers(asked, labels, draws, times, uniforms) == 0
            samples.append(first.sum(dim=1).tolist())
        measured = epsilon_lower_bound(samples[0], samples[1], failure, delta=DELTA)
        what = f"epsilon of {times} queries"
        rows.append(Row(subject, "sampled", what, claimed, measured, asked is unsampled))
    return rows


def _answers(
    mechanism: NeighbourVotes, labels: Labels, groups: int, times: int, uniforms: Uniforms
) -> Tensor:
    """Return labels [groups, times] of queries about the same records."""
    listed = _listed(mechanism, labels, groups * times)
    return mechanism.answer(listed, _setting(), uniforms).view(groups, times)


def _shared_answers(
    mechanism: NeighbourVotes, labels: Labels, groups: int, times: int, uniforms: Uniforms
) -> Tensor:
    """Answer as ``_answers``, from one sample for all queries of a group. Broken."""
    counts = mechanism.sampled_counts(_listed(mechanism, labels, groups), 2, uniforms)
    noise = uniforms.gaussian(mechanism.sigma, (groups, times, 2))
    return (counts[:, None] + noise).argmax(dim=2)


def _listed(mechanism: NeighbourVotes, labels: Labels, rows: int) -> Tensor:
    padded = (labels + (-1,) * mechanism.reach)[: mechanism.reach]
    return torch.tensor(padded, dtype=torch.int32).expand(rows, -1).contiguous()


def _first_wins(mechanism: NeighbourVotes, labels: Labels) -> float:
    """Return the probability that class 0 is answered, which a tie is too."""
    places = torch.arange(-200, 201, dtype=torch.float64)
    single = torch.softmax(-(places**2) / (2 * mechanism.sigma**2), dim=0)
    up_to = single.cumsum(dim=0)
    total = 0.0
    for (zeros, ones), chance in sampled_pmf(mechanism, labels).items():
        ahead = zeros - ones  # class 1 wins if its noise is more than that above the other's
        below = up_to[(torch.arange(401) + ahead).clamp(0, 400)]
        total += chance * float((single * below).sum())
    return total


def _setting() -> Setting:
    return Setting(num_parts=1, num_outputs=2)
